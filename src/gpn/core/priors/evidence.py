"""Which prior network made these labels: its weights and the labels' noise, by marginal likelihood.

For labels y of unit variance and inputs of unit variance per column, one number matters most: the
variance w of the first layer's weights. Small w makes smooth functions, large w wild ones.

    log p(y | w, σ_ε) = log N(y; 0, K_w + σ_ε² I),      mean of diag K_w = PRIOR_OVER_LABELS

A few labels can always be explained as noise, so log σ_ε² has a prior, N(−4, 1), the one that
BoTorch gives its Gaussian processes.

The noise of labels, σ_ε, learnt where it is not given.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.priors.prior import MLPPrior
from gpn.core.types import Inputs, Outputs

WEIGHT_VARIANCES = (0.3, 1.0, 3.0, 10.0, 40.0, 100.0)

NOISE_STDS = tuple(10 ** (-2.5 + i / 6) for i in range(16))

PRIOR_OVER_LABELS = 2.0

LOG_NOISE_MEAN = -4.0


def fit_prior_by_evidence(x: Inputs, y: Outputs) -> tuple[MLPPrior, float]:
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


def evidence_noise_std(
    factor_values: Float[Tensor, "F"], rotated: Float[Tensor, "F o"], rest: float, n_labels: int
) -> float:
    """σ_ε that maximises the marginal likelihood log N(y; 0, K + σ_ε² I), on a log grid.

    K = U diag(values) Uᵀ enters through its eigenvalues and Uᵀy (`rotated`); `rest` is the squared
    norm of y outside U's span, per output. The grid ends at a thousandth of the labels' size (of a
    hundredth of the prior's, where labels are smaller still).
    """
    total = float(rotated.square().sum()) + rest * rotated.shape[1]
    least = 1e-4 * float(factor_values.sum()) / n_labels
    scale = math.sqrt(max(total / (n_labels * rotated.shape[1]), least, 1e-30))
    grid = scale * torch.logspace(-3, 0.5, 200, dtype=torch.float64, device=rotated.device)
    variances = factor_values.clamp_min(0.0)[None, :] + grid.square()[:, None]
    fit = (rotated.square().sum(1)[None, :] / variances).sum(1)
    outside = n_labels - len(factor_values)
    fit += rest * rotated.shape[1] / grid.square()
    volume = variances.log().sum(1) + outside * grid.square().log()
    return float(grid[(fit + rotated.shape[1] * volume).argmin()])


def learnt_noise_std(features: Float[Tensor, "N F"], y_obs: Float[Tensor, "N o"]) -> float:
    """σ_ε for labels y under f = features·w, w ~ N(0, I): K = features featuresᵀ."""
    left, spread, _ = torch.linalg.svd(features.double(), full_matrices=False)
    rotated = left.T @ y_obs.double()
    rest = float(y_obs.double().square().sum() - rotated.square().sum()) / y_obs.shape[1]
    return evidence_noise_std(spread.square(), rotated, max(rest, 0.0), len(y_obs))


def held_out_noise_std(squared: Float[Tensor, "n o"], variance: Float[Tensor, "n o"]) -> float:
    """argmax_σ Σ log N(residual; 0, Var[g] + σ²) on labels that a fit has not seen.

    σ² from 1 % to all of the mean square. Not the excess of squares over variances: of those a few
    rows have most.
    """
    shares = torch.logspace(-2, 0, 50, device=squared.device, dtype=torch.float64)
    noise = shares * squared.double().mean().clamp_min(1e-12)
    total = variance.double()[..., None] + noise
    scores = (squared.double()[..., None] / total + total.log()).mean((0, 1))
    return float(noise[scores.argmin()].sqrt())
