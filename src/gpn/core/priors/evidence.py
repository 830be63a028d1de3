"""Marginal likelihood: the prior and the label noise that explain the labels best.

    log p(y | K, σ_ε) = log N(y; 0, K + σ_ε² I)

One eigendecomposition of K gives it for every σ_ε of a grid.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.priors.prior import MLPPrior
from gpn.core.types import Inputs, Outputs

WEIGHT_VARIANCES = (0.3, 1.0, 3.0, 10.0, 40.0, 100.0)
NOISE_STDS = tuple(10 ** (-2.5 + i / 6) for i in range(16))
PRIOR_OVER_LABELS = 2.0  # prior variance of functions, for labels of unit variance
LOG_NOISE_MEAN = -4.0


@dataclass(frozen=True)
class Spectrum:
    """K = U diag(values) Uᵀ at n labels y, with `projected` = Uᵀy and `outside` = ‖y − UUᵀy‖²."""

    values: Float[Tensor, "F"]
    projected: Float[Tensor, "F o"]
    outside: float
    n_labels: int

    @staticmethod
    def of_gram(gram: Float[Tensor, "N N"], y: Float[Tensor, "N o"]) -> "Spectrum":
        values, vectors = torch.linalg.eigh(gram.double())
        return Spectrum(values.clamp_min(0.0), vectors.T @ y.double(), 0.0, len(y))

    @staticmethod
    def of_features(features: Float[Tensor, "N F"], y: Float[Tensor, "N o"]) -> "Spectrum":
        """Of functions features·w, w ~ N(0, I): K = features featuresᵀ."""
        left, singular, _ = torch.linalg.svd(features.double(), full_matrices=False)
        projected = left.T @ y.double()
        outside = float(y.double().square().sum() - projected.square().sum())
        return Spectrum(singular.square(), projected, max(outside, 0.0), len(y))

    def log_evidence(self, noise_variances: Float[Tensor, "g"]) -> Float[Tensor, "g"]:
        """Σ_o log N(y_o; 0, K + σ_ε² I) for each noise variance σ_ε²."""
        noise = noise_variances.to(self.values)
        variances = self.values + noise[:, None]
        fit = (self.projected.square().sum(1) / variances).sum(1) + self.outside / noise
        n_outside = self.n_labels - len(self.values)
        volume = variances.log().sum(1) + n_outside * noise.log()
        volume += self.n_labels * math.log(2 * math.pi)
        return -(fit + self.projected.shape[1] * volume) / 2

    def noise_std(self) -> float:
        """σ_ε of the largest evidence, on a log grid that starts at 0.1 % of the labels' size.

        Labels count as at least 1 % of the prior's size, so that zeros have a noise, too.
        """
        total = float(self.projected.square().sum()) + self.outside
        mean_square = total / (self.n_labels * self.projected.shape[1])
        least = 1e-4 * float(self.values.sum()) / self.n_labels
        scale = math.sqrt(max(mean_square, least, 1e-30))
        grid = scale * torch.logspace(-3, 0.5, 200, dtype=torch.float64, device=self.values.device)
        return float(grid[self.log_evidence(grid.square()).argmax()])


def gram_noise_std(gram: Float[Tensor, "N N"], y: Float[Tensor, "N o"]) -> float:
    """σ_ε by evidence, for labels y of functions with covariance `gram` at their rows."""
    return Spectrum.of_gram(gram, y).noise_std()


def feature_noise_std(features: Float[Tensor, "N F"], y: Float[Tensor, "N o"]) -> float:
    """σ_ε by evidence, for labels y of functions features·w, w ~ N(0, I)."""
    return Spectrum.of_features(features, y).noise_std()


def held_out_noise_std(squared: Float[Tensor, "n o"], variance: Float[Tensor, "n o"]) -> float:
    """argmax_σ Σ log N(residual; 0, Var[g] + σ²), on labels that the fit has not seen.

    σ² ranges from 1 % to all of the mean square. The mean of squares minus variances would follow
    a few rows with large variances.
    """
    shares = torch.logspace(-2, 0, 50, device=squared.device, dtype=torch.float64)
    noise = shares * squared.double().mean().clamp_min(1e-12)
    total = variance.double()[..., None] + noise
    scores = (squared.double()[..., None] / total + total.log()).mean((0, 1))
    return float(noise[scores.argmin()].sqrt())


def fit_prior_by_evidence(x: Inputs, y: Outputs) -> tuple[MLPPrior, float]:
    """The prior of the largest evidence for labels of unit variance, and their noise_std.

    With inputs of unit variance per column, one number matters most: the variance w of the first
    layer's weights. Small w makes smooth functions, large w rough ones; all candidates have the
    same mean variance at the labels. A few labels can always be explained as noise, so log σ_ε²
    has the prior N(−4, 1), the one that BoTorch gives its Gaussian processes.
    """
    noise_variances = torch.tensor(NOISE_STDS, dtype=torch.float64).square()
    log_prior = -(noise_variances.log() - LOG_NOISE_MEAN).square() / 2
    candidates = [_prior(variance, x) for variance in WEIGHT_VARIANCES]
    scores = torch.stack([log_evidence(prior, x, y, noise_variances) for prior in candidates])
    best, noise = divmod(int((scores + log_prior).argmax()), len(NOISE_STDS))
    return candidates[best], NOISE_STDS[noise]


def _prior(weight_variance: float, x: Inputs) -> MLPPrior:
    unit = MLPPrior(prior_variance=(weight_variance, 1.0), bias_variance=(weight_variance, 0.0))
    height = PRIOR_OVER_LABELS / float(unit.variance(x.double()).mean())
    return unit.replace(prior_variance=(weight_variance, height))


def log_evidence(
    prior: MLPPrior, x: Inputs, y: Outputs, noise_variances: Float[Tensor, "g"]
) -> Float[Tensor, "g"]:
    """log p(y | prior, σ_ε) for each noise variance, summed over outputs."""
    gram = prior.kernel(x.double(), x.double())
    return Spectrum.of_gram(gram, y).log_evidence(noise_variances).cpu()
