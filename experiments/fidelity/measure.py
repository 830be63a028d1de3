"""Distances between a fit and the exact posterior."""

import torch
from torch import Tensor

from experiments.fidelity.problems import Problem
from gpn import Posterior
from gpn.methods.gp import GPPosterior
from gpn.methods.gpn import AffinePosterior
from gpn.metrics import (
    band_coverage,
    covariance_error,
    draws_w2,
    joint_w2,
    marginal_w2,
    total_variation,
)

N_DRAWS = 1000
REPEATS = 100


def distance_to_gp(posterior: Posterior, problem: Problem, truth: GPPosterior) -> dict[str, float]:
    """Distances on the grid by moments and by 1,000 draws, and variance ratios at the data."""
    grid, x_obs = problem.grid, problem.task.x_obs
    mean, std = truth.mean(grid), truth.std(grid)
    ratio = posterior.variance(x_obs).double() / truth.variance(x_obs)
    return {
        **distance_by_moments(posterior, problem, truth),
        "w2_draws": float(_mean_draws_w2(posterior, grid, mean, std)),
        "w2_exact_draws": float(_mean_draws_w2(truth, grid, mean, std)),
        "data_variance_ratio_min": float(ratio.min()),
        "data_variance_ratio_max": float(ratio.max()),
    }


def distance_by_moments(
    posterior: Posterior, problem: Problem, truth: GPPosterior
) -> dict[str, float]:
    """Distances of mean and covariance on the grid, in closed form where that exists."""
    grid = problem.grid
    true_mean, true_covariance = truth.mean(grid), truth.covariance(grid)
    mean, covariance = _moments(posterior, grid)
    std, true_std = _std(covariance), _std(true_covariance)
    joint = [
        joint_w2(mean[:, o], covariance[o], true_mean[:, o], true_covariance[o])
        for o in range(mean.shape[1])
    ]
    measured = {
        "w2": marginal_w2(mean, std, true_mean, true_std),
        "joint_w2": torch.stack(joint).square().mean().sqrt(),
        "covariance_error": covariance_error(covariance, true_covariance),
        "band_coverage": band_coverage(mean, std, true_mean, true_std),
    }
    return {name: float(value) for name, value in measured.items()}


def distance_to_classes(posterior: Posterior, problem: Problem, truth: Tensor) -> dict[str, float]:
    """Total variation between mean class probabilities on the grid: its mean and its maximum."""
    p = posterior.probabilities(problem.grid, n=2 * N_DRAWS, rng=7).double()
    return {
        "total_variation": float(total_variation(p, truth)),
        "total_variation_worst": float(0.5 * (p - truth).abs().sum(-1).max()),
    }


def _mean_draws_w2(posterior: Posterior, grid: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """The W2 of 1,000 draws, averaged over a hundred such sets."""
    sets = [posterior.sample(grid, N_DRAWS, rng=100 + repeat).double() for repeat in range(REPEATS)]
    return torch.stack([draws_w2(draws, mean, std) for draws in sets]).mean()


def _moments(posterior: Posterior, grid: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(posterior, AffinePosterior | GPPosterior):
        return posterior.mean(grid).double(), posterior.covariance(grid).double()
    draws = posterior.sample(grid, N_DRAWS, rng=7).double()
    centred = (draws - draws.mean(0)).movedim(-1, 0)
    return draws.mean(0), centred.mT @ centred / (N_DRAWS - 1)


def _std(covariance: Tensor) -> Tensor:
    """``(n, o)`` from the diagonals of ``(o, n, n)``."""
    return covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt().T
