"""Two classes under a Gaussian prior: expectation propagation (Minka 2001).

The function g is the difference of two logits, g(x) = φ(x)·w + r(x) with w ~ N(0, I) and a rest r
that is independent from row to row, and a label y = ±1 has the probability σ(y g). Each label is
replaced by a Gaussian site exp(ν g − τ g²/2). Sites are right if the posterior with a site, and the
one with the label itself in its place (the cavity N(μ, v) times σ(y g)), have the same moments.

The logistic function is a mixture of normal distribution functions, σ(x) = Σ_i w_i Φ(x / (2 t_i)),
by the nodes that give tanh (`kernel.py`), so that moments are in closed form, however steep σ is:

    Z = Σ_i w_i Φ(y μ / s_i),    s_i² = 4 t_i² + v

Where labels are almost a function of x this is far better than Laplace's Gaussian about the most
probable function, which lies close to the walls that labels are.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.priors.cholesky import cholesky
from gpn.core.priors.kernel import KOLMOGOROV_NODES, KOLMOGOROV_WEIGHTS

MAX_SWEEPS = 60
TOLERANCE = 5e-3  # of the posterior's mean and standard deviation, in units of the latter
DAMPING, MIN_DAMPING = 0.5, 0.05  # sites that are moved all at once may overshoot
PROGRESS, SHORTER = 0.95, 0.7  # a sweep that changes about as much as the last shortens later ones
MIN_SITE_PRECISION = 1e-12

Vector = Float[Tensor, "n"]


@dataclass(frozen=True)
class LabelFeatures:
    """φ of each label as columns, and the variance of each label's rest r."""

    features: Float[Tensor, "m n"]
    rest: Vector

    def posterior(self, sites: "Sites") -> tuple[Vector, Vector]:
        """Mean and variance at each label: those by the weights, and what a site tells of r.

        With c = 1 / (1 + τ r) a site of precision τ is one of precision c τ for the weights.
        """
        share = 1 / (1 + self.rest * sites.precision)
        factor = self.precision_factor(sites)
        shared = self.features.T @ self.mean_weights(sites, factor)
        left = torch.linalg.solve_triangular(factor, self.features, upper=False).square().sum(0)
        mean = share * (shared + self.rest * sites.pull)
        return mean, share * self.rest + share.square() * left

    def precision_factor(self, sites: "Sites") -> Float[Tensor, "m m"]:
        """The Cholesky factor of S = I + Φ diag(c τ) Φᵀ, the precision of the weights."""
        effective = sites.precision / (1 + self.rest * sites.precision)
        matrix = (self.features * effective) @ self.features.T
        matrix.diagonal().add_(1.0)
        return cholesky(matrix, "the precision of the features")

    def mean_weights(self, sites: "Sites", factor: Float[Tensor, "m m"]) -> Float[Tensor, "m"]:
        """E[w] = S⁻¹ Φ (c ν)."""
        pull = sites.pull / (1 + self.rest * sites.precision)
        return torch.cholesky_solve(self.features @ pull[:, None], factor)[:, 0]


@dataclass(frozen=True)
class Sites:
    """Precision τ and pull ν of each label's site; `change` is what the last sweep changed."""

    precision: Vector
    pull: Vector
    change: float = math.inf

    @property
    def has_converged(self) -> bool:
        return self.change < TOLERANCE


def find_sites(labels: LabelFeatures, y: Vector, max_sweeps: int = MAX_SWEEPS) -> Sites:
    """All sites at once, damped, until the posterior no longer changes; `y` is ±1."""
    sites, damping = Sites(torch.zeros_like(y), torch.zeros_like(y)), DAMPING
    mean, variance = labels.posterior(sites)
    for _ in range(max_sweeps):
        aim = matched_sites(y, mean, variance, sites)
        precision = torch.lerp(sites.precision, aim.precision, damping)
        pull = torch.lerp(sites.pull, aim.pull, damping)
        new_mean, new_variance = labels.posterior(Sites(precision, pull))
        std = new_variance.sqrt()
        moved = torch.maximum((new_mean - mean).abs(), (std - variance.sqrt()).abs()) / std
        last, sites = sites.change, Sites(precision, pull, float(moved.max()))
        mean, variance = new_mean, new_variance
        if sites.has_converged:
            break
        if sites.change > PROGRESS * last:
            damping = max(SHORTER * damping, MIN_DAMPING)
    return sites


def matched_sites(y: Vector, mean: Vector, variance: Vector, sites: Sites) -> Sites:
    """Sites with which the posterior has the moments of cavity times label."""
    cavity_variance = 1 / (1 / variance - sites.precision).clamp_min(1e-10)
    cavity_mean = cavity_variance * (mean / variance - sites.pull)
    slope, curvature = log_likelihood_slopes(y, cavity_mean, cavity_variance)
    room = (1 - curvature * cavity_variance).clamp_min(1e-6)
    precision = (curvature / room).clamp_min(MIN_SITE_PRECISION)
    return Sites(precision, (slope + cavity_mean * curvature) / room)


def log_likelihood_slopes(y: Vector, mean: Vector, variance: Vector) -> tuple[Vector, Vector]:
    """∂/∂μ and −∂²/∂μ² of log Z = log ∫ σ(y g) N(g; μ, v) dg."""
    nodes = mean.new_tensor(KOLMOGOROV_NODES)[:, None]
    log_weights = mean.new_tensor(KOLMOGOROV_WEIGHTS).log()[:, None]
    scales = (4 * nodes.square() + variance).sqrt()
    z = y * mean / scales
    log_z = (log_weights + torch.special.log_ndtr(z)).logsumexp(0)
    share = (log_weights - 0.5 * z.square() - 0.5 * math.log(2 * math.pi) - log_z).exp()
    slope = (share / scales).sum(0)
    curvature = slope.square() + (share * z / scales.square()).sum(0)
    return y * slope, curvature
