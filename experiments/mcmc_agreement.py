"""Two MCMC samplers against each other, and both against the exact Gaussian process.

    python -m experiments.mcmc_agreement

Six points, noise 0.1, prior networks of 1,024 hidden units. Metropolis-Hastings and HMC agree if
the split R-hat of all their chains on a grid is near 1. The W2 distance to the Gaussian process is
compared with its Monte-Carlo error (bootstrap over whole chains), and with the W2 of as many exact
draws as the effective sample size. Takes about ten minutes; writes `results/mcmc_agreement.json`.
"""

import json
from typing import Any

import torch
from torch import Tensor

from experiments import harness
from gpn.core.priors.prior import MLPPrior
from gpn.data import SIX_POINTS_NOISE_STD, six_points
from gpn.methods.gp import GP, GPConfig, GPPosterior
from gpn.methods.mcmc import MCMC, MCMCConfig, MCMCPosterior
from gpn.methods.mcmc.convergence import effective_sample_size, split_rhat
from gpn.metrics import draws_w2

GRID = torch.linspace(-2, 2, 81)[:, None]
WIDTH = 1024
REPLICATES = 200
SHARED: dict[str, Any] = {
    "draws": 100,
    "noise_std": SIX_POINTS_NOISE_STD,
    "prior": MLPPrior(widths=(WIDTH,)),
}
SAMPLERS = {
    "hmc": MCMCConfig(sampler="hmc", n_chains=32, warmup=200, thin=1, **SHARED),
    "mh": MCMCConfig(sampler="mh", n_chains=32, warmup=40_000, thin=2500, **SHARED),
}


def main() -> None:
    task = six_points()
    truth = GP(GPConfig(noise_std=SIX_POINTS_NOISE_STD)).fit(task)
    posteriors, seconds = {}, {}
    for name, config in SAMPLERS.items():
        posteriors[name], seconds[name] = harness.timed_fit(MCMC(config), task, 0)
    chains = [posterior.chain_values(GRID)[..., 0] for posterior in posteriors.values()]
    report = {
        "problem": "six-points",
        "width": WIDTH,
        "rhat_of_both": float(split_rhat(torch.cat(chains)).max()),
        "samplers": {
            name: {"seconds": seconds[name], **compare(posterior, truth)}
            for name, posterior in posteriors.items()
        },
        "device": harness.hardware(posteriors["hmc"].device),
        "versions": harness.versions(),
    }
    harness.save(harness.RESULTS / "mcmc_agreement.json", report)
    print(json.dumps(report, indent=2))


def compare(posterior: MCMCPosterior, truth: GPPosterior) -> dict[str, float]:
    """Convergence on the grid, and the W2 to the truth with that of exact draws.

    There are as many exact draws as the harmonic mean of the ESS, whose inverse squared errors
    are proportional to.
    """
    values = posterior.chain_values(GRID)
    ess = effective_sample_size(values[..., 0])
    mean, std = truth.mean(GRID), truth.std(GRID)
    count = int(1 / (1 / ess).mean())
    exact = [draws_w2(truth.sample(GRID, count, rng=i), mean, std) for i in range(REPLICATES)]
    return {
        "rhat": float(split_rhat(values[..., 0]).max()),
        "ess_min": float(ess.min()),
        "ess": count,
        "acceptance": posterior.acceptance,
        "w2": float(draws_w2(values.flatten(0, 1).double(), mean, std)),
        "monte_carlo_error_95": monte_carlo_error(values.double()),
        "w2_of_exact_draws": float(torch.stack(exact).mean()),
        "w2_of_exact_draws_95": float(torch.stack(exact).quantile(0.95)),
    }


def monte_carlo_error(values: Tensor) -> float:
    """The 95 % quantile of the W2 between the moments of resampled chains and of all chains."""
    draws, rng = values.flatten(0, 1), torch.Generator().manual_seed(0)
    mean, std = draws.mean(0), draws.std(0)
    errors = []
    for _ in range(REPLICATES):
        chains = torch.randint(len(values), (len(values),), generator=rng)
        errors.append(draws_w2(values[chains].flatten(0, 1), mean, std))
    return float(torch.stack(errors).quantile(0.95))


if __name__ == "__main__":
    main()
