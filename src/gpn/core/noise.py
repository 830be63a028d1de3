"""The noise of labels, σ_ε, learnt where it is not given."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


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
