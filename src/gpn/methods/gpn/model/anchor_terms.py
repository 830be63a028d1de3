"""How the gaps δ = g − f at different rows enter the loss: independently, or through Σ_Ŷ."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpn.core.losses import PerFunction, anchor_gap, joint_gap
from gpn.core.priors.cholesky import jittered_cholesky, warn_of_jitter
from gpn.core.types import Functions, Inputs
from gpn.methods.gpn.model.batch import Batch

SIGMA = "the prior's covariance Σ_Ŷ of a batch"
Kernel = Callable[[Tensor, Tensor], Tensor]


class AnchorTerm(nn.Module, ABC):
    """The gap between a function and its anchor, one number per function, and its weight β.

    `added_jitter`: the largest share of a covariance's mean diagonal that had to be added to it.
    """

    beta: Tensor
    added_jitter = 0.0
    graph_safe = True
    pool_only = False

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.register_buffer("beta", torch.tensor(beta, dtype=torch.float64), persistent=False)

    def select(self, rows: Tensor, n_labels: int) -> Tensor:
        """The rows that the term compares, of a tensor whose first rows are the labels'."""
        return rows[n_labels:] if self.pool_only else rows

    @abstractmethod
    def forward(self, generated: Functions, anchors: Functions, batch: Batch) -> PerFunction:
        """The gap, given functions and anchors at the selected rows."""


class IndependentTerm(AnchorTerm):
    """mean_m ‖δ(x'_m)‖² over the pool rows: the paper's practical form.

    Where pool rows have weights w, they are drawn in proportion to w, and `beta` is β w̄.
    """

    pool_only = True
    step: Tensor

    def __init__(self, beta: float, ramp_steps: int = 0) -> None:
        """`ramp_steps`: β rises from 0 in that many steps, for networks that find classes first."""
        super().__init__(beta)
        self.ramp_steps = ramp_steps
        if ramp_steps > 0:
            self.register_buffer("step", torch.zeros((), dtype=torch.float64))

    def forward(self, generated: Functions, anchors: Functions, batch: Batch) -> PerFunction:
        gap = anchor_gap(generated, anchors)
        if self.ramp_steps == 0:
            return gap
        self.step.add_(1.0)  # on the device, so that a replayed CUDA graph counts too
        return gap * (self.step / self.ramp_steps).clamp_max(1.0)


class JointTerm(AnchorTerm):
    """δᵀ Σ_Ŷ⁻¹ δ over labels and pool rows together: the paper's full form.

    Its `beta` is σ_ε²/N with a mean squared error, 1/2N with a mean cross-entropy. Every
    minibatch that holds all labels has the exact posterior as its minimiser, because Gaussian
    marginals are consistent. `jitter` is added to the diagonal of Σ_Ŷ, and more where that is not
    enough; because the success of the factor is checked, no step can be a CUDA graph.
    """

    graph_safe = False

    def __init__(self, kernel: Kernel, rows: Inputs | None, beta: float, jitter: float) -> None:
        """`rows`: all labels, then all stored pool rows, whose kernel is computed once."""
        super().__init__(beta)
        self.kernel = kernel
        self.table = None if rows is None else kernel(rows.double(), rows.double())
        self.jitter = jitter

    def gram(self, batch: Batch, n_labels: int) -> Float[Tensor, "n n"]:
        """Σ_Ŷ of a batch: looked up where pool rows are stored, else computed."""
        if self.table is None or batch.pool_rows is None:
            return self.kernel(batch.x.double(), batch.x.double())
        rows = torch.cat([batch.rows, n_labels + batch.pool_rows])
        return self.table[rows[:, None], rows[None, :]]

    def forward(self, generated: Functions, anchors: Functions, batch: Batch) -> PerFunction:
        gram = self.gram(batch, batch.n_labels)  # a batch of joint anchors holds all labels
        gram.diagonal().add_(self.jitter)
        factor, share = jittered_cholesky(gram, SIGMA)
        if share > self.added_jitter:
            self.added_jitter = share
            warn_of_jitter(SIGMA, share)
        return joint_gap(generated, anchors, factor)
