"""The truth: an exact Gaussian process for targets, long Hamiltonian chains for classes."""

import torch
from torch import Tensor

from experiments.fidelity.problems import Problem
from gpn import MLPPrior
from gpn.methods.gp import GP, GPConfig, GPPosterior


def exact_posterior(problem: Problem) -> GPPosterior:
    """The posterior of the prior's own infinite-width kernel."""
    assert problem.noise_std is not None
    return GP(GPConfig(noise_std=problem.noise_std)).fit(problem.task)


def class_logits(
    problem: Problem, chains: int = 64, steps: int = 1500, warm_up: int = 500, seed: int = 0
) -> tuple[Tensor, dict[str, float]]:
    """Posterior logits ``(s, n, o)`` on the grid, and how well the chains mixed.

    Latent values at the labels are f = L v with K = L Lᵀ, v ~ N(0, I); Hamiltonian Monte Carlo
    over v, all chains at once; then f on the grid given f at the labels, exactly.
    """
    rng = torch.Generator().manual_seed(seed)
    x, y, grid = problem.task.x_obs.double(), problem.task.y_obs, problem.grid.double()
    kernel = MLPPrior().kernel
    eye = torch.eye(len(x), dtype=torch.float64)
    factor = torch.linalg.cholesky(kernel(x, x) + 1e-8 * eye)
    kept = _hamiltonian(factor, y, problem.task.n_outputs, chains, steps, warm_up, rng)
    half = torch.linalg.solve_triangular(factor, kernel(x, grid), upper=False)
    rest = kernel(grid, grid) - half.T @ half
    spread = torch.linalg.cholesky(rest + 1e-6 * torch.eye(len(grid), dtype=torch.float64))
    states = kept[:, ::10].flatten(0, 1)
    noise = torch.randn(len(states), len(grid), states.shape[-1], generator=rng).double()
    return half.T @ states + spread @ noise, mixing(factor @ kept)


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

    def slope(v: Tensor) -> Tensor:
        return v + factor.T @ ((factor @ v).softmax(-1) - onehot)

    v = torch.randn(chains, len(y), outputs, generator=rng).double()
    step, kept = 0.1, []
    for index in range(warm_up + steps):
        momentum = torch.randn(v.shape, generator=rng).double()
        end, final = _leapfrog(
            v, momentum, slope, step * (0.6 + 0.8 * float(torch.rand((), generator=rng)))
        )
        gain = energy(v) + 0.5 * momentum.square().sum((-1, -2))
        gain = gain - energy(end) - 0.5 * final.square().sum((-1, -2))
        taken = torch.rand(chains, generator=rng).log() < gain
        v = torch.where(taken[:, None, None], end, v)
        if index < warm_up:
            step *= 1.02 if float(taken.double().mean()) > 0.8 else 0.98
        else:
            kept.append(v)
    return torch.stack(kept, dim=1)


def _leapfrog(v: Tensor, p: Tensor, slope, step: float, count: int = 12) -> tuple[Tensor, Tensor]:
    p = p - 0.5 * step * slope(v)
    for index in range(count):
        v = v + step * p
        p = p - (step if index < count - 1 else 0.5 * step) * slope(v)
    return v, p


def mixing(states: Tensor) -> dict[str, float]:
    """The largest split R-hat over all latent values ``(chains, steps, ...)``."""
    half = states.shape[1] // 2
    parts = torch.cat([states[:, :half], states[:, half : 2 * half]])
    between = parts.mean(1).var(0) * half
    within = parts.var(1).mean(0)
    rhat = (((half - 1) / half * within + between / half) / within).sqrt()
    return {"rhat": float(rhat.max()), "chains": states.shape[0], "steps": states.shape[1]}
