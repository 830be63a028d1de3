"""Conditioned anchors: the joint objective for many labels.

In the space of the prior's F leading features, f(x) = ψ(x)·w with w ~ N(0, I), the posterior given
*all* N labels costs N F² instead of N³:

    w | y ~ N(m, S),     S = (Ψᵀ Ψ/σ_ε² + I)⁻¹,     m = S Ψᵀ y/σ_ε²

Its leading axes on the pool become the code's axes, ψ(x)·(m + S^{1/2} V z): every z is a prior
function conditioned on the labels, and the generator is pulled to it on pool and labels alike. As
F grows this is the minimiser of the joint objective, without a Cholesky factor per step.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.batch import Batch
from gpn.core.generator import AffineGenerator
from gpn.core.losses import squared_error
from gpn.core.objective import Objective
from gpn.core.train import Terms


@dataclass(frozen=True)
class Conditioned:
    """The posterior in feature space: mean weights, code axes, and the share of variance kept."""

    mean: Float[Tensor, "F o"]
    axes: Float[Tensor, "F q"]
    kept: float


def condition(
    psi_obs: Float[Tensor, "N F"],
    y_obs: Float[Tensor, "N o"],
    psi_pool: Float[Tensor, "R F"],
    noise_std: float,
    n_axes: int,
) -> Conditioned:
    """Condition on the labels, then rotate so that the first axes hold most pool variance."""
    psi, targets, pool = psi_obs.double(), y_obs.double(), psi_pool.double()
    precision = psi.T @ psi / noise_std**2
    precision.diagonal().add_(1.0)
    cholesky = torch.linalg.cholesky(precision)
    mean = torch.cholesky_solve(psi.T @ targets / noise_std**2, cholesky)
    spread = torch.linalg.solve_triangular(cholesky, pool.T, upper=False)
    values, vectors = torch.linalg.eigh(spread @ spread.T)
    leading = vectors.flip(1)[:, :n_axes]
    axes = torch.linalg.solve_triangular(cholesky.T, leading, upper=True)
    kept = values.flip(0)[:n_axes].sum() / values.sum()
    return Conditioned(mean, axes, float(kept))


class Distil(Objective):
    """mean over labels and pool of E_z ‖g(x, z) − ψ(x)·(m + axes z)‖²: sums over columns."""

    table_mean: Tensor
    table_axes: Tensor

    def __init__(
        self,
        generator: AffineGenerator,
        mean: Float[Tensor, "R o"],
        axes: Float[Tensor, "R q"],
    ) -> None:
        super().__init__()
        self.generator: AffineGenerator = generator
        self.register_buffer("table_mean", mean)
        self.register_buffer("table_axes", axes)

    def terms(self, batch: Batch, rng: torch.Generator) -> Terms:
        columns = self.generator.columns(batch.x_pool)
        mean, axes = self.table_mean[batch.pool_rows], self.table_axes[batch.pool_rows]
        slopes = axes.T[:, :, None].expand(-1, -1, mean.shape[1])
        return {"anchor": squared_error(columns, torch.cat([mean[None], slopes])).sum()}
