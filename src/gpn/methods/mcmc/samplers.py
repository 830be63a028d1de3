"""Two samplers of exp(−U(v)) N(v; 0, I): many chains along one tensor axis, with one step size."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.types import normal
from gpn.training.progress import OnProgress

States = Float[Tensor, "c p"]
PerChain = Float[Tensor, "c"]
Potential = Callable[[States], PerChain]
Transition = tuple[States, PerChain, Float[Tensor, ""]]


class Sampler(ABC):
    """A Markov kernel whose step size adapts to a target acceptance during the warm-up."""

    target_acceptance: float
    step_size: float
    max_step_size: float

    def __init__(self, potential: Potential, rng: torch.Generator) -> None:
        self.potential, self.rng = potential, rng

    @abstractmethod
    def transition(self, state: States, energy: PerChain) -> Transition:
        """The next states, their potential energies, and the mean acceptance probability."""

    def run(
        self, state: States, *, warmup: int, draws: int, thin: int, on_progress: OnProgress
    ) -> tuple[Float[Tensor, "c t p"], float]:
        """Every `thin`-th state after the warm-up, and the mean acceptance probability."""
        energy, accepted, states = self.potential(state), state.new_zeros(()), []
        total = warmup + draws * thin
        for step in range(1, total + 1):
            state, energy, acceptance = self.transition(state, energy)
            if step <= warmup:  # Robbins-Monro on the log step size
                change = (float(acceptance) - self.target_acceptance) * 2 / step**0.6
                self.step_size = min(self.step_size * math.exp(change), self.max_step_size)
                continue
            accepted += acceptance / (draws * thin)
            if (step - warmup) % thin == 0:
                states.append(state)
                on_progress(step, total, {"step size": self.step_size})
        return torch.stack(states, dim=1), float(accepted)

    def _metropolis(
        self, state: States, energy: PerChain, proposal: States, change: PerChain | float = 0.0
    ) -> Transition:
        """Accept each chain's proposal with probability min(1, exp(U − U' + change)).

        A proposal whose energy is not finite is rejected.
        """
        proposed = self.potential(proposal)
        log_ratio = energy - proposed + change
        log_ratio = log_ratio.nan_to_num(nan=-math.inf, posinf=0.0, neginf=-math.inf)
        probability = log_ratio.clamp_max(0.0).exp()
        uniform = torch.rand(len(state), generator=self.rng, device=self.rng.device)
        accept = uniform.to(probability) < probability
        state = torch.where(accept[:, None], proposal, state)
        return state, torch.where(accept, proposed, energy), probability.mean()


class CrankNicolson(Sampler):
    """Metropolis-Hastings with a proposal that leaves the prior invariant (pCN)."""

    target_acceptance, step_size, max_step_size = 0.25, 0.1, 1.0

    def transition(self, state: States, energy: PerChain) -> Transition:
        noise = normal(tuple(state.shape), self.rng, state)
        proposal = math.sqrt(1 - self.step_size**2) * state + self.step_size * noise
        return self._metropolis(state, energy, proposal)


class Hamiltonian(Sampler):
    """Hamiltonian Monte Carlo with paths of random length; the prior's flow is exact."""

    target_acceptance, step_size = 0.8, 0.01

    def __init__(
        self, potential: Potential, rng: torch.Generator, path_length: float, max_leapfrog: int
    ) -> None:
        super().__init__(potential, rng)
        self.path_length = self.max_step_size = path_length
        self.max_leapfrog = max_leapfrog

    def transition(self, state: States, energy: PerChain) -> Transition:
        jitter = torch.rand(2, generator=self.rng, device=self.rng.device).tolist()
        size = self.step_size * (0.9 + 0.2 * jitter[0])
        length = (0.2 + 0.8 * jitter[1]) * self.path_length
        n_steps = min(max(1, round(length / size)), self.max_leapfrog)
        momentum = normal(tuple(state.shape), self.rng, state)
        proposal, end_momentum = self._leapfrog(state, momentum, size, n_steps)
        change = _quadratic_energy(momentum, state) - _quadratic_energy(end_momentum, proposal)
        return self._metropolis(state, energy, proposal, change)

    def _leapfrog(
        self, state: States, momentum: States, size: float, n_steps: int
    ) -> tuple[States, States]:
        """Kicks by −∇U, and between them the prior's exact flow: a rotation of (v, momentum)."""
        cosine, sine = math.cos(size), math.sin(size)
        kick = 0.5 * size * self._gradient(state)
        for _ in range(n_steps):
            momentum = momentum - kick
            rotated = cosine * state + sine * momentum
            momentum = cosine * momentum - sine * state
            state = rotated
            kick = 0.5 * size * self._gradient(state)
            momentum = momentum - kick
        return state, momentum

    @torch.enable_grad()
    def _gradient(self, state: States) -> States:
        """∇U of every chain."""
        leaf = state.detach().requires_grad_()
        return torch.autograd.grad(self.potential(leaf).sum(), leaf)[0]


def _quadratic_energy(momentum: States, state: States) -> PerChain:
    """½‖momentum‖² + ½‖v‖²: the energy without U."""
    return 0.5 * (momentum.square() + state.square()).sum(1)
