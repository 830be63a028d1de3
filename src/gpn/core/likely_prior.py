"""Which prior network made these labels: its weights and the labels' noise, by marginal likelihood.

For labels y of unit variance and inputs of unit variance per column, one number matters most: the
variance w of the first layer's weights. Small w makes smooth functions, large w wild ones.

    log p(y | w, σ_ε) = log N(y; 0, K_w + σ_ε² I),      mean of diag K_w = PRIOR_OVER_LABELS

A few labels can always be explained as noise, so log σ_ε² has a prior, N(−4, 1), the one that
BoTorch gives its Gaussian processes.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.prior import MLPPrior
from gpn.core.types import Inputs, Outputs

WEIGHT_VARIANCES = (0.3, 1.0, 3.0, 10.0, 40.0, 100.0)
NOISE_STDS = tuple(10 ** (-2.5 + i / 6) for i in range(16))
PRIOR_OVER_LABELS = 2.0
LOG_NOISE_MEAN = -4.0


def likely_prior(x: Inputs, y: Outputs) -> tuple[MLPPrior, float]:
    """The most likely prior for labels of unit variance, and their noise_std."""
    tried = [(*_best_noise(prior, x, y), prior) for prior in _priors(x)]
    _, noise_std, prior = max(tried, key=lambda one: one[0])
    return prior, noise_std


def _priors(x: Inputs) -> list[MLPPrior]:
    """One prior per weight variance, with outputs of equal size at the labels."""
    made = []
    for variance in WEIGHT_VARIANCES:
        unit = MLPPrior(prior_variance=(variance, 1.0), bias_variance=(variance, 0.0))
        height = PRIOR_OVER_LABELS / float(unit.variance(x.double()).mean())
        made.append(unit.replace(prior_variance=(variance, height)))
    return made


def _best_noise(prior: MLPPrior, x: Inputs, y: Outputs) -> tuple[float, float]:
    """The log posterior density of the best noise_std, and that noise_std."""
    noise_stds = torch.tensor(NOISE_STDS, dtype=torch.float64)
    scores = log_evidence(prior, x, y, noise_stds)
    scores = scores - (noise_stds.square().log() - LOG_NOISE_MEAN).square() / 2
    best = int(scores.argmax())
    return float(scores[best]), NOISE_STDS[best]


def log_evidence(
    prior: MLPPrior, x: Inputs, y: Outputs, noise_stds: Float[Tensor, "g"]
) -> Float[Tensor, "g"]:
    """Σ_o log N(y_o; 0, K + σ_ε² I) for each noise, by the eigenvalues of K."""
    values, vectors = torch.linalg.eigh(prior.kernel(x.double(), x.double()))
    variances = values.clamp_min(0.0) + noise_stds.square().to(values)[:, None]
    fit = (vectors.T @ y.double()).square().sum(1) / variances
    volume = y.shape[1] * (variances.log() + math.log(2 * math.pi))
    return -(fit + volume).sum(1).cpu() / 2
