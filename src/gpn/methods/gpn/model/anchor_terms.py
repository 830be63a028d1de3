"""How the gaps δ = g − f at different rows enter the loss: independently, or through Σ_Ŷ."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpn.core.losses import PerFunction, anchor_gap, joint_gap
from gpn.core.priors.cholesky import jittered_cholesky, warn_of_jitter
from gpn.core.types import Functions
from gpn.methods.gpn.model.batch import Batch

SIGMA = "the prior's covariance Σ_Ŷ of a batch"
Gram = Callable[[Batch], Float[Tensor, "n n"]]


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

    def forward(self, generated: Functions, anchors: Functions, batch: Batch) -> PerFunction:
        return anchor_gap(generated, anchors)


class JointTerm(AnchorTerm):
    """δᵀ Σ_Ŷ⁻¹ δ over labels and pool rows together: the paper's full form.

    Its `beta` is σ_ε²/N beside a mean squared error, 1/2N beside a mean cross-entropy. Every
    minibatch that holds all labels has the exact posterior as its minimiser, because Gaussian
    marginals are consistent. `jitter` is added to the diagonal of Σ_Ŷ, and more where that is not
    enough; as the factor's success is looked at, no step can be replayed as a graph.
    """

    graph_safe = False

    def __init__(self, gram: Gram, beta: float, jitter: float) -> None:
        super().__init__(beta)
        self.gram = gram
        self.jitter = jitter

    def forward(self, generated: Functions, anchors: Functions, batch: Batch) -> PerFunction:
        gram = self.gram(batch)
        gram.diagonal().add_(self.jitter)
        factor, share = jittered_cholesky(gram, SIGMA)
        if share > self.added_jitter:
            self.added_jitter = share
            warn_of_jitter(SIGMA, share)
        return joint_gap(generated, anchors, factor)
