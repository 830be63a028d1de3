"""How the gaps δ = g − f at different rows belong together: independent, or through Σ_Ŷ."""

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
    """The anchor term, one number per function.

    `added_jitter`: the largest share of a covariance's mean diagonal that had to be added to it.
    """

    added_jitter = 0.0
    graph_safe = True
    pool_only = False

    @abstractmethod
    def part(self, rows: Tensor, n_labels: int) -> Tensor:
        """Which rows the term looks at, of something whose first rows are the labels'."""

    @abstractmethod
    def forward(self, generated: Functions, anchors: Functions, batch: Batch) -> PerFunction:
        """The term, given functions and anchors at the rows of `part`."""


class IndependentTerm(AnchorTerm):
    """β · mean_m ‖δ(x'_m)‖² over the pool rows: the paper's practical form.

    Where pool rows have weights w, they come as often as they weigh, and `beta` is β w̄.
    """

    pool_only = True
    beta: Tensor

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.register_buffer("beta", torch.tensor(beta, dtype=torch.float64), persistent=False)

    def part(self, rows: Tensor, n_labels: int) -> Tensor:
        return rows[n_labels:]

    def forward(self, generated: Functions, anchors: Functions, batch: Batch) -> PerFunction:
        return self.beta * anchor_gap(generated, anchors)


class JointTerm(AnchorTerm):
    """scale · δᵀ Σ_Ŷ⁻¹ δ over labels and pool rows together: the paper's full form.

    `scale` is σ_ε²/N beside a mean squared error, 1/2N beside a mean cross-entropy. Every
    minibatch that holds all labels has the exact posterior as its minimiser, because Gaussian
    marginals are consistent. `jitter` is added to the diagonal of Σ_Ŷ, and
    where that is not enough, more: a look at the factor decides, so that no step can be replayed.
    """

    graph_safe = False

    def __init__(self, gram: Gram, scale: float, jitter: float) -> None:
        super().__init__()
        self.gram = gram
        self.scale = scale
        self.jitter = jitter

    def part(self, rows: Tensor, n_labels: int) -> Tensor:
        return rows

    def forward(self, generated: Functions, anchors: Functions, batch: Batch) -> PerFunction:
        gram = self.gram(batch)
        gram.diagonal().add_(self.jitter)
        factor, share = jittered_cholesky(gram, SIGMA)
        if share > self.added_jitter:
            self.added_jitter = share
            warn_of_jitter(SIGMA, share)
        return self.scale * joint_gap(generated, anchors, factor)
