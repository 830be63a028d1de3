"""The exact posterior: a Gaussian process for targets, long Hamiltonian chains for classes."""

from collections.abc import Callable

import torch
from torch import Tensor

from experiments.fidelity.problems import Problem
from gpn import MLPPrior
from gpn.methods.gp import GP, GPConfig, GPPosterior
from gpn.methods.mcmc.convergence import split_rhat


def exact_posterior(problem: Problem) -> GPPosterior:
    """The posterior of the prior's infinite-width kernel."""
    assert problem.noise_std is not None
    return GP(GPConfig(noise_std=problem.noise_std)).fit(problem.task)


def class_logits(
    problem: Problem, chains: int = 64, steps: int = 1500, warm_up: int = 500, seed: int = 0
) -> tuple[Tensor, dict[str, float]]:
    """Posterior logits ``(s, n, o)`` on the grid, and the convergence of the chains.

    Latent values at the labels are f = L v with K = L Lᵀ, v ~ N(0, I): Hamiltonian Monte Carlo
    over v, all chains as one tensor; then f on the grid given f at the labels, exactly.
    """
    rng = torch.Generator().manual_seed(seed)
    x, y, grid = problem.task.x_obs.double(), problem.task.y_obs, problem.grid.double()
    kernel = MLPPrior().kernel
    eye = torch.eye(len(x), dtype=torch.float64)
    factor = torch.linalg.cholesky(kernel(x, x) + 1e-8 * eye)
    v = _hamiltonian(factor, y, problem.task.n_outputs, chains, steps, warm_up, rng)
    half = torch.linalg.solve_triangular(factor, kernel(x, grid), upper=False)
    rest = kernel(grid, grid) - half.T @ half
    spread = torch.linalg.cholesky(rest + 1e-6 * torch.eye(len(grid), dtype=torch.float64))
    states = v[:, ::10].flatten(0, 1)
    noise = torch.randn(len(states), len(grid), states.shape[-1], generator=rng).double()
    rhat = float(split_rhat((factor @ v).flatten(2)).max())
    return half.T @ states + spread @ noise, {"rhat": rhat, "chains": chains, "steps": steps}


def _hamiltonian(
    factor: Tensor,
    y: Tensor,
    outputs: int,
    chains: int,
    steps: int,
    warm_up: int,
    rng: torch.Generator,
) -> Tensor:
    """States v after warm-up, ``(chains, steps, n, o)``."""
    rows = torch.arange(len(y))
    onehot = torch.nn.functional.one_hot(y, outputs).double()

    def energy(v: Tensor) -> Tensor:
        log_p = (factor @ v).log_softmax(-1)[:, rows, y].sum(-1)
        return 0.5 * v.square().sum((-1, -2)) - log_p

    def gradient(v: Tensor) -> Tensor:
        return v + factor.T @ ((factor @ v).softmax(-1) - onehot)

    v = torch.randn(chains, len(y), outputs, generator=rng).double()
    step, states = 0.1, []
    for index in range(warm_up + steps):
        momentum = torch.randn(v.shape, generator=rng).double()
        length = step * (0.6 + 0.8 * float(torch.rand((), generator=rng)))
        end, end_momentum = _leapfrog(v, momentum, gradient, length)
        gain = energy(v) + 0.5 * momentum.square().sum((-1, -2))
        gain = gain - energy(end) - 0.5 * end_momentum.square().sum((-1, -2))
        accepted = torch.rand(chains, generator=rng).log() < gain
        v = torch.where(accepted[:, None, None], end, v)
        if index < warm_up:
            step *= 1.02 if float(accepted.double().mean()) > 0.8 else 0.98
        else:
            states.append(v)
    return torch.stack(states, dim=1)


def _leapfrog(
    v: Tensor, p: Tensor, gradient: Callable[[Tensor], Tensor], step: float, count: int = 12
) -> tuple[Tensor, Tensor]:
    p = p - 0.5 * step * gradient(v)
    for index in range(count):
        v = v + step * p
        p = p - (step if index < count - 1 else 0.5 * step) * gradient(v)
    return v, p
