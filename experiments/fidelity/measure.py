"""One fit against the truth."""

import torch
from torch import Tensor

from experiments.fidelity.problems import Problem
from experiments.fidelity.truth import exact_posterior
from experiments.timing import timed_fit
from gpn import GPN, GPNConfig, Posterior
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

DRAWS = 1000
REPEATS = 100


def against_gp(posterior: Posterior, problem: Problem, truth: GPPosterior) -> dict[str, float]:
    """Distances on the grid by moments and by 1,000 draws, and the variance at the data."""
    grid, x_obs = problem.grid, problem.task.x_obs
    mean, std = truth.mean(grid), truth.std(grid)
    ratio = posterior.variance(x_obs).double() / truth.variance(x_obs)
    return {
        **by_moments(posterior, problem, truth),
        "w2_draws": float(_by_draws(posterior, grid, mean, std)),
        "w2_exact_draws": float(_by_draws(truth, grid, mean, std)),
        "data_variance_ratio_min": float(ratio.min()),
        "data_variance_ratio_max": float(ratio.max()),
    }


def by_moments(posterior: Posterior, problem: Problem, truth: GPPosterior) -> dict[str, float]:
    """Distances of mean and covariance on the grid, in closed form where that exists."""
    grid = problem.grid
    mean, covariance = truth.mean(grid), truth.covariance(grid)
    std = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt().T
    own_mean, own_covariance = _moments(posterior, grid)
    own_std = own_covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt().T
    joints = [
        joint_w2(own_mean[:, o], own_covariance[o], mean[:, o], covariance[o])
        for o in range(mean.shape[1])
    ]
    measured = {
        "w2": marginal_w2(own_mean, own_std, mean, std),
        "joint_w2": torch.stack(joints).square().mean().sqrt(),
        "covariance_error": covariance_error(own_covariance, covariance),
        "band_coverage": band_coverage(own_mean, own_std, mean, std),
    }
    return {name: float(value) for name, value in measured.items()}


def _by_draws(posterior: Posterior, grid: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """The distance of 1,000 draws, averaged over a hundred such sets."""
    sets = [posterior.sample(grid, DRAWS, rng=100 + repeat).double() for repeat in range(REPEATS)]
    return torch.stack([draws_w2(draws, mean, std) for draws in sets]).mean()


def against_classes(posterior: Posterior, problem: Problem, truth: Tensor) -> dict[str, float]:
    """Mean total variation between mean class probabilities on the grid."""
    own = posterior.probabilities(problem.grid, n=2 * DRAWS, rng=7).double()
    return {
        "total_variation": float(total_variation(own, truth)),
        "total_variation_worst": float(0.5 * (own - truth).abs().sum(-1).max()),
    }


def _moments(posterior: Posterior, grid: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(posterior, AffinePosterior | GPPosterior):
        return posterior.mean(grid).double(), posterior.covariance(grid).double()
    draws = posterior.sample(grid, DRAWS, rng=7).double()
    centred = (draws - draws.mean(0)).movedim(-1, 0)
    return draws.mean(0), centred.mT @ centred / (DRAWS - 1)


def regression_row(config: GPNConfig, problem: Problem, seed: int) -> dict[str, float]:
    posterior, seconds = timed_fit(GPN(config), problem.task, seed)
    return {**against_gp(posterior, problem, exact_posterior(problem)), "seconds": seconds}


def class_row(config: GPNConfig, problem: Problem, seed: int, truth: Tensor) -> dict[str, float]:
    posterior, seconds = timed_fit(GPN(config), problem.task, seed)
    return {**against_classes(posterior, problem, truth), "seconds": seconds}
