"""Many Markov chains at once, over the whitened weights of one network: the work under `mcmc`."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import functional_call

from gpn.core.priors.prior import PriorSpec
from gpn.core.task import Signature, Task
from gpn.core.types import Functions, Inputs, normal
from gpn.training.progress import OnProgress

Weights = Float[Tensor, "c p"]

PerChain = Float[Tensor, "c"]

Potential = Callable[[Weights], PerChain]

TARGET = {"mh": 0.25, "hmc": 0.8}

FIRST_STEP = {"mh": 0.1, "hmc": 0.01}


@dataclass(frozen=True)
class Walk:
    """How the chains walk; `MCMCConfig` explains each."""

    sampler: str
    warmup: int
    draws: int
    thin: int
    path_length: float
    max_leapfrog: int


class WhiteNetwork:
    """The prior's network as a function of whitened weights v, flat: θ = √Σ_prior · v."""

    def __init__(self, prior: PriorSpec, signature: Signature) -> None:
        self.network: nn.Module = prior.network(signature.input_shape, signature.n_outputs).eval()
        self.variances = prior.variances(self.network)
        self.shapes = {name: part.shape for name, part in self.network.named_parameters()}

    @property
    def n_weights(self) -> int:
        return sum(shape.numel() for shape in self.shapes.values())

    def __call__(self, weights: Weights, x: Inputs) -> Functions:
        """f(x; √Σ v) for every chain."""
        buffers = {n: _like(b, x) for n, b in self.network.named_buffers()}

        def one(flat: Tensor) -> Tensor:
            return functional_call(self.network, (self._named(flat), buffers), (x,))

        return torch.vmap(one)(weights)

    def _named(self, flat: Float[Tensor, "p"]) -> dict[str, Tensor]:
        parts = flat.split([shape.numel() for shape in self.shapes.values()])
        return {
            name: (part * self.variances[name] ** 0.5).reshape(shape)
            for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)
        }

    def potential(self, task: Task, noise_std: float) -> Potential:
        """U(v) = −log p(y | v), up to a constant."""

        def squared(weights: Weights) -> PerChain:
            gaps = self(weights, task.x_obs) - task.y_obs
            return gaps.square().sum((1, 2)) / (2 * noise_std**2)

        def cross_entropy(weights: Weights) -> PerChain:
            logs = self(weights, task.x_obs).log_softmax(-1)
            picked = task.y_obs[None, :, None].expand(len(weights), -1, 1)
            return -logs.gather(-1, picked).sum((1, 2))

        return cross_entropy if task.is_classification else squared


def _like(buffer: Tensor, x: Tensor) -> Tensor:
    return buffer.to(x.device, x.dtype if buffer.is_floating_point() else buffer.dtype)


class Chains:
    """All chains with one step size; `run` yields the state of each at every kept draw."""

    def __init__(self, potential: Potential, walk: Walk, rng: torch.Generator) -> None:
        self.potential = potential
        self.walk = walk
        self.rng = rng
        self.step = FIRST_STEP[walk.sampler]
        self.acceptance = 0.0

    def run(self, start: Weights, on_progress: OnProgress) -> Iterator[Weights]:
        walk = self.walk
        advance = {"mh": self._metropolis, "hmc": self._hamiltonian}[walk.sampler]
        state, total = start, walk.warmup + walk.draws * walk.thin
        energy, accepted = self.potential(state), state.new_zeros(())
        for step in range(1, total + 1):
            state, energy, rate = advance(state, energy)
            if step <= walk.warmup:
                self._adapt(float(rate), step)
                continue
            accepted += rate / (total - walk.warmup)
            if (step - walk.warmup) % walk.thin == 0:
                on_progress(step, total, {"step": self.step})
                yield state
        self.acceptance = float(accepted)

    def _adapt(self, rate: float, step: int) -> None:
        """Robbins-Monro on the log step, towards the target acceptance; none after the warm-up."""
        change = (rate - TARGET[self.walk.sampler]) * 2 / step**0.6
        largest = 1.0 if self.walk.sampler == "mh" else self.walk.path_length
        self.step = min(self.step * math.exp(change), largest)

    def _metropolis(self, state: Weights, energy: PerChain) -> tuple[Weights, PerChain, Tensor]:
        """pCN: the prior cancels, the likelihood alone decides."""
        noise = normal(tuple(state.shape), self.rng, state)
        proposal = math.sqrt(1 - self.step**2) * state + self.step * noise
        proposed = self.potential(proposal)
        taken, rate = self._accept(energy - proposed)
        return (
            torch.where(taken[:, None], proposal, state),
            torch.where(taken, proposed, energy),
            rate,
        )

    def _hamiltonian(self, state: Weights, energy: PerChain) -> tuple[Weights, PerChain, Tensor]:
        """One path of a random length, then the Metropolis rule on the energy error."""
        jitter = torch.rand(2, generator=self.rng, device=self.rng.device).tolist()
        size = self.step * (0.9 + 0.2 * jitter[0])
        length = (0.2 + 0.8 * jitter[1]) * self.walk.path_length
        n_steps = min(max(1, round(length / size)), self.walk.max_leapfrog)
        momentum = normal(tuple(state.shape), self.rng, state)
        proposal, end_momentum = self._path(state, momentum, size, n_steps)
        proposed = self.potential(proposal)
        change = _kinetic(momentum, state) - _kinetic(end_momentum, proposal)
        taken, rate = self._accept(energy - proposed + change)
        return (
            torch.where(taken[:, None], proposal, state),
            torch.where(taken, proposed, energy),
            rate,
        )

    def _path(
        self, state: Weights, momentum: Weights, size: float, n_steps: int
    ) -> tuple[Weights, Weights]:
        """Kicks by −∇U, and between them the prior's exact flow: a rotation of (v, momentum)."""
        cosine, sine = math.cos(size), math.sin(size)
        kick = 0.5 * size * self._slope(state)
        for _ in range(n_steps):
            momentum = momentum - kick
            state, momentum = (
                cosine * state + sine * momentum,
                cosine * momentum - sine * state,
            )
            kick = 0.5 * size * self._slope(state)
            momentum = momentum - kick
        return state, momentum

    @torch.enable_grad()
    def _slope(self, state: Weights) -> Weights:
        """∇U, every chain at once."""
        leaf = state.detach().requires_grad_()
        return torch.autograd.grad(self.potential(leaf).sum(), leaf)[0]

    def _accept(self, log_ratio: PerChain) -> tuple[Bool[Tensor, "c"], Float[Tensor, ""]]:
        """Each chain's decision, and the mean acceptance probability; divergence is refused."""
        chance = log_ratio.nan_to_num(nan=-math.inf, posinf=0.0, neginf=-math.inf)
        chance = chance.clamp_max(0.0).exp()
        uniform = torch.rand(len(chance), generator=self.rng, device=self.rng.device)
        return uniform.to(chance) < chance, chance.mean()


def _kinetic(momentum: Weights, state: Weights) -> PerChain:
    """½‖momentum‖² + ½‖v‖²: what the energy holds beside U."""
    return 0.5 * (momentum.square() + state.square()).sum(1)
