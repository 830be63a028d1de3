"""Conditioned anchors: the joint objective for many labels.

In the space of the prior's F leading features, f(x) = ψ(x)·w with w ~ N(0, I), the posterior given
*all* N labels costs N F² instead of N³:

    w | y ~ N(m, S),     S = (Ψᵀ Ψ/σ_ε² + I)⁻¹,     m = S Ψᵀ y/σ_ε²

Its leading axes on the pool become the code's axes, ψ(x)·(m + S^{1/2} V z): every z is a prior
function conditioned on the labels, and the generator is pulled to it on pool and labels alike. As
F grows this is the minimiser of the joint objective, without a Cholesky factor per step.

Under a prior with a scale for each column the posterior is known in closed form everywhere, and
takes the place of features (`KernelPosterior`).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.losses import squared_error
from gpn.core.priors.cholesky import jittered_cholesky, warn_of_jitter
from gpn.core.priors.spectral import stretched
from gpn.core.types import Inputs
from gpn.methods.gpn.model.anchor_terms import IndependentTerm
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.generator import AffineGenerator, Columns
from gpn.methods.gpn.model.kernel_generator import KernelGenerator
from gpn.methods.gpn.model.objectives import Objective

FOLLOWED_CHUNK = 2048  # rows
ENOUGH = 0.99  # of the variance: axes are stretched to all of it
PRECISION = "the precision of the features' weights given the labels"


@dataclass(frozen=True)
class FeaturePosterior:
    """The posterior in feature space: mean weights, code axes, the Cholesky factor of S⁻¹.

    `explained_variance`: the share of the pool's variance that the axes hold. `added_jitter`: what
    the factor needed on its diagonal.
    """

    mean: Float[Tensor, "F o"]
    axes: Float[Tensor, "F q"]
    cholesky: Float[Tensor, "F F"]
    explained_variance: float
    added_jitter: float = 0.0

    def targets(
        self, psi: Float[Tensor, "R F"]
    ) -> tuple[Float[Tensor, "R o"], Float[Tensor, "R q"]]:
        """Mean and axes at each row; the axes are stretched to the full marginal variance.

        The axes leave out most where the posterior is narrow; a factor per row,
        (ψᵀ S ψ / ‖ψ·axes‖²)^{1/2}, restores it without a longer code.
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
    explained = values.flip(0)[:n_axes].sum() / values.sum()
    return FeaturePosterior(mean, axes, factor, float(explained), share)


class KernelPosterior:
    """A posterior in closed form as functions to follow: its mean, and leading axes of its spread,
    at most `n_axes`.

    With its covariance C_LL = U Λ Uᵀ at landmarks L, the axes at x are C_xL U_q Λ_q^{−1/2}.
    """

    def __init__(self, generator: KernelGenerator, landmarks: Inputs, n_axes: int) -> None:
        self.generator, self.landmarks = generator, landmarks.to(generator.landmarks)
        self.half = self._half(self.landmarks)
        values, vectors = torch.linalg.eigh(generator.covariance(self.landmarks))
        values, vectors = values.flip(0).clamp_min(0.0), vectors.flip(1)
        shares = values.cumsum(0) / values.sum().clamp_min(1e-300)
        count = min(n_axes, int((shares < ENOUGH).sum()) + 1, len(values))
        kept = values[:count].clamp_min(1e-12 * float(values[0])).sqrt()
        self.projection = vectors[:, :count] / kept
        self.explained_variance = float(shares[count - 1])

    @torch.no_grad()
    def targets(self, x: Inputs) -> tuple[Float[Tensor, "R o"], Float[Tensor, "R q"]]:
        """Mean and axes at each row; the axes are stretched to the full marginal variance."""
        chunks = [self._targets(rows) for rows in x.to(self.landmarks).split(FOLLOWED_CHUNK)]
        means, axes = zip(*chunks, strict=True)
        return torch.cat(means), torch.cat(axes)

    def _targets(self, x: Inputs) -> tuple[Float[Tensor, "R o"], Float[Tensor, "R q"]]:
        mean, variance = self.generator.moments(x)
        covariance = self.generator.prior.kernel(x, self.landmarks) - self._half(x).T @ self.half
        return mean, stretched(covariance @ self.projection, variance[:, 0])

    def _half(self, x: Inputs) -> Tensor:
        return self.generator.root @ self.generator.prior.kernel(self.generator.landmarks, x)


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
        self.anchor_term = IndependentTerm(1.0)  # the functions to follow are the only term
        self.register_buffer("table_mean", mean, persistent=False)
        self.register_buffer("table_axes", axes, persistent=False)

    def generate(self, batch: Batch, rng: torch.Generator) -> Columns:
        return self.generator.columns(batch.x)

    def data(self, generated: Columns, batch: Batch, rng: torch.Generator) -> None:
        """The labels are in the functions that are followed."""

    def gap(self, generated: Columns, batch: Batch) -> Float[Tensor, "k"]:
        assert batch.pool_rows is not None
        rows = torch.cat([batch.rows, self.n_labels + batch.pool_rows])
        mean, axes = self.table_mean[rows], self.table_axes[rows]
        loadings = axes.T[:, :, None].expand(-1, -1, mean.shape[1])
        return squared_error(generated, torch.cat([mean[None], loadings]))
