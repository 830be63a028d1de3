"""Linear functions by marginal likelihood: ridge regression whose penalty is in closed form.

The intercept is free: columns and targets are centred. Then, with the singular values of x, whose
squares are λ, and targets u in their coordinates,

    −2 log N(y; 0, s x xᵀ + σ² I) = Σ_i [u_i² / (s λ_i + σ²) + log(s λ_i + σ²)] + (the rest) ,

so that a step of the search for s and σ² costs as much as there are columns.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from gpn.core.priors.ard import ARDPrior
from gpn.core.priors.ard_evidence import (
    JITTER,
    LOG_LINEAR,
    LOG_NOISE,
    LOG_RANGES,
    MAX_LABELS,
    NAMES,
    LearntPrior,
    Parameters,
    usual_log_scale,
)
from gpn.core.types import Inputs, Outputs, as_generator

RANGES = LOG_RANGES[NAMES.index("linear")], LOG_RANGES[NAMES.index("noise")]
FLAT = math.exp(7.0)  # times the usual scale, the network is a constant: the intercept
INTERCEPT_VARIANCE = 4.0  # in units of the labels' variance
GRID = 12  # points along each parameter, of which the best begins the search


def learn_linear_prior(
    x: Inputs, y: Outputs, weights: Float[Tensor, "n"] | None = None
) -> LearntPrior:
    """The prior over linear functions of the largest evidence; `y` has about unit variance.

    A label of weight c, whose noise is σ²/c, is a row and a label times √c, of noise σ².
    """
    order = torch.randperm(len(x), generator=as_generator(0))[:MAX_LABELS].to(x.device)
    x, y = x.flatten(1)[order].double(), y[order].double()
    weight = x.new_ones(len(x), 1) if weights is None else weights[order, None].to(x)
    x, y = (each - (weight * each).sum(0) / weight.sum() for each in (x, y))
    x, y = x * weight.sqrt(), y * weight.sqrt()
    scale = math.exp(usual_log_scale(x.shape[1]))
    left, values, _ = torch.linalg.svd(x / scale, full_matrices=False)
    found = _Evidence(left.T @ y, values.square() / x.shape[1], y)
    grid = np.stack(np.meshgrid(*(np.linspace(*ends, GRID) for ends in RANGES)), -1).reshape(-1, 2)
    start = min(grid, key=lambda point: found.loss(point)[0])
    point = minimize(found.loss, start, jac=True, method="L-BFGS-B", bounds=RANGES).x
    prior = ARDPrior(
        column_scales=(scale * FLAT,) * x.shape[1],
        height=INTERCEPT_VARIANCE / (2 / math.pi * math.asin(2 / 3)),  # of E[erf²] at bias 1
        linear=math.exp(point[0]) * FLAT**2,
    )
    at_edge = ("noise",) if np.isclose(point[1], RANGES[1][1]) else ()
    evidence = -found.of_labels(point)[0] / len(y)
    return LearntPrior(prior, math.exp(point[1] / 2), evidence, at_edge)


class _Evidence:
    """−log p(y, log s, log σ²) and its gradient."""

    def __init__(
        self, rotated: Float[Tensor, "r o"], squares: Float[Tensor, "r"], y: Outputs
    ) -> None:
        self.rotated = rotated.square().sum(1).cpu().numpy()
        self.squares = squares.cpu().numpy()
        self.n, self.n_outputs = y.shape
        self.rest = max(float(y.square().sum()) - float(self.rotated.sum()), 0.0)

    def loss(self, point: Parameters) -> tuple[float, Parameters]:
        """With the wide prior of both parameters; per label."""
        value, gradient = self.of_labels(point)
        means, stds = np.array([LOG_LINEAR, LOG_NOISE]).T
        away = (point - means) / stds
        return (value + 0.5 * away @ away) / self.n, (gradient + away / stds) / self.n

    def of_labels(self, point: Parameters) -> tuple[float, Parameters]:
        linear, noise = np.exp(point)
        signal, floor = linear * self.squares, noise + JITTER
        total = signal + floor
        n_rest = self.n - len(total)
        constant = self.n_outputs * (n_rest * math.log(floor) + self.n * math.log(2 * math.pi))
        value = np.sum(self.rotated / total + self.n_outputs * np.log(total))
        value = 0.5 * (value + self.rest / floor + constant)
        by_total = 0.5 * (self.n_outputs / total - self.rotated / total**2)
        by_floor = 0.5 * (self.n_outputs * n_rest / floor - self.rest / floor**2)
        by_noise = noise * (by_total.sum() + by_floor)
        return float(value), np.array([by_total @ signal, by_noise])
