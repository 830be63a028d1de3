"""Markov chains over the prior network's weights: slow, but asymptotically exact.

Whitened weights θ = √Σ_prior · v turn the posterior into

    p(v | y) ∝ exp(−U(v)) N(v; 0, I),    U = Σ_i ‖y_i − f(x_i; θ)‖² / (2 σ_ε²)  or  −Σ_i log p_iy

There are two samplers:

    mh   v' = √(1 − ρ²) v + ρ ξ, ξ ~ N(0, I), accepted with min(1, exp(U − U')): pCN (Cotter et
         al. 2013), a Metropolis-Hastings proposal whose acceptance does not fall with the number
         of weights, because it leaves the prior invariant.
    hmc  a path of H = U + ½‖v‖² + ½‖momentum‖² (Neal 2011), of random length, by a leapfrog that
         follows the Gaussian part exactly (Shahbaba et al. 2014) and kicks by −∇U alone.

Split R̂ and effective sample size of function values at probe points (labels and pool rows) say
whether the chains have converged. The paper takes Metropolis-Hastings as its ground truth and
names neither proposal nor diagnostics.
"""

import warnings
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.config import Config, require_counts, require_one_of, require_positive
from gpn.core.posterior.base import FunctionBatch, Posterior
from gpn.core.priors.prior import MLPPrior, Prior, PriorSpec
from gpn.core.task import Signature, Task
from gpn.core.types import Functions, Inputs, Rng, as_generator, normal
from gpn.methods.mcmc.convergence import effective_sample_size, split_rhat
from gpn.methods.mcmc.samplers import CrankNicolson, Hamiltonian, PerChain, Sampler, States
from gpn.training.config import DTYPES, as_device
from gpn.training.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class MCMCConfig(Config):
    """Settings of the chains.

    sampler
        "mh" (many cheap steps) or "hmc" (a path of gradients per step).
    n_chains, warmup, draws, thin
        Parallel chains; steps before the first draw; draws per chain, one every `thin` steps.
    path_length, max_leapfrog
        For "hmc": the longest path, in units of the prior's standard deviation (π/2 is a quarter
        of the prior's period), and the largest number of gradients in it.
    noise_std
        σ_ε of a regression.
    n_probes, max_rhat
        Labels, and pool rows, at which R̂ is computed; a larger R̂ than `max_rhat` is a warning.
    """

    sampler: str = "hmc"
    n_chains: int = 32
    warmup: int = 500
    draws: int = 100
    thin: int = 5
    path_length: float = 1.6
    max_leapfrog: int = 100
    noise_std: float = 0.1
    n_probes: int = 50
    max_rhat: float = 1.05
    prior: PriorSpec = field(default_factory=MLPPrior)
    device: str = "cpu"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require_counts(self, "n_chains", "warmup", "draws", "thin", "max_leapfrog", "n_probes")
        require_positive(self, "path_length", "noise_std")
        require_one_of(self, "sampler", ("mh", "hmc"))
        require_one_of(self, "dtype", tuple(DTYPES))
        if self.draws < 4:
            raise ValueError(f"draws must be at least 4 for split R-hat, got {self.draws}.")


class MCMC:
    """The method: `MCMC(config).fit(task, rng=0)` returns a posterior with `rhat` and `ess`."""

    def __init__(self, config: MCMCConfig | None = None) -> None:
        self.config = MCMCConfig() if config is None else config

    def fit(self, task: Task, rng: Rng = None, *, progress: bool | None = None) -> "MCMCPosterior":
        """Run the chains from draws of the prior; warn if they have not converged."""
        config, device = self.config, as_device(self.config.device)
        generator, moved = as_generator(rng, device), task.to(device, DTYPES[config.dtype])
        network = WhitenedNetwork(config.prior, task.signature)
        potential = partial(network.potential, task=moved, noise_std=config.noise_std)
        sampler: Sampler = CrankNicolson(potential, generator)
        if config.sampler == "hmc":
            sampler = Hamiltonian(potential, generator, config.path_length, config.max_leapfrog)
        start = normal((config.n_chains, sum(network.sizes)), generator, moved.x_obs)
        with progress_bar(f"MCMC ({config.sampler})", show=progress) as on_progress:
            lengths = {"warmup": config.warmup, "draws": config.draws, "thin": config.thin}
            states, acceptance = sampler.run(start, **lengths, on_progress=on_progress)
        probes = moved.x_obs[: config.n_probes]
        if moved.pool is not None:
            probes = torch.cat([probes, moved.pool.draw(config.n_probes, generator)])
        posterior = MCMCPosterior(states, acceptance, probes, task.signature, config)
        worst, ess = float(posterior.rhat.max()), float(posterior.ess.min())
        if not worst <= config.max_rhat:
            warnings.warn(
                f"the chains should have converged, R-hat <= {config.max_rhat}, got {worst:.3f} "
                f"(smallest effective sample size {ess:.0f}); "
                f"try warmup={4 * config.warmup} and thin={4 * config.thin}.",
                stacklevel=2,
            )
        return posterior


class WhitenedNetwork:
    """The prior's network as a function of flat whitened weights v: θ = √Σ_prior · v."""

    def __init__(self, prior: PriorSpec, signature: Signature) -> None:
        self.network = prior.network(signature.input_shape, signature.n_outputs)
        self.variances = prior.variances(self.network)
        self.shapes = {name: p.shape for name, p in self.network.named_parameters()}
        self.sizes = [shape.numel() for shape in self.shapes.values()]

    def __call__(self, weights: States, x: Inputs) -> Functions:
        """f(x; √Σ_prior v) for every row v of `weights`."""
        flat = zip(self.shapes.items(), weights.split(self.sizes, dim=1), strict=True)
        named = {
            name: (part * self.variances[name] ** 0.5).reshape(len(weights), *shape)
            for (name, shape), part in flat
        }
        return Prior(self.network, named).to(x.device, x.dtype)(x)

    def potential(self, weights: States, task: Task, noise_std: float) -> PerChain:
        """U(v) = −log p(y | v), up to a constant."""
        fitted = self(weights, task.x_obs)
        if not task.is_classification:
            return (fitted - task.y_obs).square().sum((1, 2)) / (2 * noise_std**2)
        labels = task.y_obs[None, :, None].expand(len(weights), -1, 1)
        return -fitted.log_softmax(-1).gather(-1, labels).sum((1, 2))


class MCMCPosterior(Posterior):
    """The states of all chains; a draw is one of them.

    rhat, ess
        Split R̂ and effective sample size of each function value at `probes`, shape ``(n, o)``.
    acceptance
        The mean acceptance probability after the warm-up.
    """

    def __init__(
        self,
        states: Float[Tensor, "c t p"],
        acceptance: float,
        probes: Inputs,
        signature: Signature,
        config: MCMCConfig,
    ) -> None:
        noise_std = None if signature.is_classification else config.noise_std
        super().__init__(signature, states.device, states.dtype, noise_std)
        self.network, self.config = WhitenedNetwork(config.prior, signature), config
        self.states, self.acceptance, self.probes = states, acceptance, probes
        values, shape = self.chain_values(probes).flatten(2), (len(probes), signature.n_outputs)
        self.rhat = split_rhat(values).reshape(shape)
        self.ess = effective_sample_size(values).reshape(shape)

    @torch.no_grad()
    def chain_values(self, x: Inputs) -> Float[Tensor, "c t n o"]:
        """Function values at `x`, for every draw of every chain."""
        return torch.stack([self.network(chain, x) for chain in self.states])

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        """`n` states, all different if there are enough of them."""
        states = self.states.flatten(0, 1)
        if n <= len(states):
            picked = torch.randperm(len(states), generator=rng, device=rng.device)[:n]
        else:
            picked = torch.randint(len(states), (n,), generator=rng, device=rng.device)
        weights = states[picked.to(states.device)]
        return lambda x: self.network(weights, x)

    def tensors(self) -> dict[str, Tensor]:
        acceptance = torch.tensor(self.acceptance, dtype=torch.float64)
        return {"kept": self.states, "probes": self.probes, "acceptance": acceptance}

    @classmethod
    def restore(
        cls, config: MCMCConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "MCMCPosterior":
        acceptance = float(tensors["acceptance"])
        return cls(tensors["kept"], acceptance, tensors["probes"], signature, config)
