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

from gpn.core.losses import squared_error
from gpn.core.priors.cholesky import jittered_cholesky, warn_of_jitter
from gpn.core.priors.spectral import stretched
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.generator import AffineGenerator
from gpn.methods.gpn.model.objectives import Objective
from gpn.training.state import Terms

PRECISION = "the precision of the features' weights given the labels"


@dataclass(frozen=True)
class FeaturePosterior:
    """The posterior in feature space: mean weights, code axes, the Cholesky factor of S⁻¹, and the
    share of the pool's variance that the axes keep; `added_jitter` is what that factor took."""

    mean: Float[Tensor, "F o"]
    axes: Float[Tensor, "F q"]
    cholesky: Float[Tensor, "F F"]
    kept: float
    added_jitter: float = 0.0

    def targets(
        self, psi: Float[Tensor, "R F"]
    ) -> tuple[Float[Tensor, "R o"], Float[Tensor, "R q"]]:
        """Mean and axes at each row; the axes are stretched to the full marginal variance.

        What the axes left out is most where the posterior is narrow; a factor per row,
        (ψᵀ S ψ / ‖ψ·axes‖²)^{1/2}, gives it back without a longer code.
        """
        wide = psi.double()
        return wide @ self.mean, stretched(wide @ self.axes, self.variance(wide))

    def variance(self, psi: Float[Tensor, "R F"]) -> Float[Tensor, "R"]:
        """ψᵀ S ψ at each row."""
        spread = torch.linalg.solve_triangular(self.cholesky, psi.double().T, upper=False)
        return spread.square().sum(0)


def condition(
    psi_obs: Float[Tensor, "N F"],
    y_obs: Float[Tensor, "N o"],
    psi_pool: Float[Tensor, "R F"],
    noise_std: float,
    n_axes: int,
) -> FeaturePosterior:
    """Condition on the labels, then rotate so that the first axes hold most pool variance."""
    psi, targets, pool = psi_obs.double(), y_obs.double(), psi_pool.double()
    precision = psi.T @ psi / noise_std**2
    precision.diagonal().add_(1.0)
    factor, share = jittered_cholesky(precision, PRECISION)
    if share > 0:
        warn_of_jitter(PRECISION, share)
    mean = torch.cholesky_solve(psi.T @ targets / noise_std**2, factor)
    spread = torch.linalg.solve_triangular(factor, pool.T, upper=False)
    values, vectors = torch.linalg.eigh(spread @ spread.T)
    leading = vectors.flip(1)[:, :n_axes]
    axes = torch.linalg.solve_triangular(factor.T, leading, upper=True)
    kept = values.flip(0)[:n_axes].sum() / values.sum()
    return FeaturePosterior(mean, axes, factor, float(kept), share)


class DistillationObjective(Objective):
    """Mean over labels and pool rows of E_z ‖g(x, z) − ψ(x)·(m + axes z)‖²: sums over columns.

    The tables hold the labels' rows first, then the stored pool rows.
    """

    table_mean: Tensor
    table_axes: Tensor

    def __init__(
        self,
        generator: AffineGenerator,
        n_labels: int,
        mean: Float[Tensor, "R o"],
        axes: Float[Tensor, "R q"],
    ) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.generator: AffineGenerator = generator
        self.register_buffer("table_mean", mean, persistent=False)
        self.register_buffer("table_axes", axes, persistent=False)

    @property
    def graph_safe(self) -> bool:
        return True

    def terms(self, batch: Batch, rng: torch.Generator) -> Terms:
        assert batch.pool_rows is not None
        columns = self.generator.columns(batch.x)
        rows = torch.cat([batch.rows, self.n_labels + batch.pool_rows])
        mean, axes = self.table_mean[rows], self.table_axes[rows]
        slopes = axes.T[:, :, None].expand(-1, -1, mean.shape[1])
        return {"anchor": squared_error(columns, torch.cat([mean[None], slopes])).sum()}
