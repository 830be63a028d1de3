"""Markov chains over the prior network's weights: slow, and the truth.

Whitened weights θ = √Σ_prior · v turn the posterior into

    p(v | y) ∝ exp(−U(v)) N(v; 0, I),    U = Σ_i ‖y_i − f(x_i; θ)‖² / (2 σ_ε²)  or  −Σ_i log p_iy

and two samplers walk in it, every chain at once along one tensor axis:

    mh   v' = √(1 − ρ²) v + ρ ξ, ξ ~ N(0, I), accepted with min(1, exp(U − U')): the
         Metropolis-Hastings rule with a proposal that leaves the prior as it is (pCN, Cotter et
         al. 2013), so that its acceptance does not fall with the number of weights.
    hmc  a path of H = U + ½‖v‖² + ½‖momentum‖² (Neal 2011), of random length, by a leapfrog that
         follows the Gaussian part exactly (Shahbaba et al. 2014) and kicks by −∇U alone.

The step, one number for all chains, is adapted to a target acceptance during the warm-up and then
stands still. Split R̂ and effective sample size of function values at probe points (pool rows and
labels) say whether the chains can be believed. The paper uses Metropolis-Hastings as its ground
truth and names neither proposal nor diagnostics.
"""

import warnings
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.config import Config, require_counts, require_one_of, require_positive
from gpn.core.posterior.base import FunctionBatch, Posterior
from gpn.core.priors.prior import MLPPrior, PriorSpec
from gpn.core.task import Signature, Task
from gpn.core.types import Draws, Inputs, Rng, as_generator, normal
from gpn.methods.mcmc.chains import Chains, Walk, WhiteNetwork
from gpn.methods.mcmc.convergence import effective_sample_size, split_rhat
from gpn.training.config import DTYPES, as_device
from gpn.training.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class MCMCConfig(Config):
    """Settings of the chains.

    sampler
        "mh" (cheap steps, many of them) or "hmc" (a path of gradients per step).
    n_chains, warmup, draws, thin
        Chains side by side; steps that are thrown away; draws that each chain keeps, one every
        `thin` steps.
    path_length
        For "hmc": the longest path, in units of the prior's standard deviation; a quarter of the
        prior's period is π/2.
    max_leapfrog
        For "hmc": the most gradients in one path.
    noise_std
        σ_ε of a regression.
    max_rhat
        A warning is raised above it.
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

    @property
    def walk(self) -> Walk:
        """What the chains need to know of this."""
        return Walk(
            self.sampler, self.warmup, self.draws, self.thin, self.path_length, self.max_leapfrog
        )

    def __post_init__(self) -> None:
        counts = ("n_chains", "warmup", "draws", "thin", "max_leapfrog", "n_probes")
        require_counts(self, *counts)
        require_positive(self, "path_length", "noise_std")
        require_one_of(self, "sampler", ("mh", "hmc"))
        require_one_of(self, "dtype", tuple(DTYPES))
        if self.draws < 4:
            raise ValueError(f"draws must be at least 4 for split R-hat, got {self.draws}.")


class MCMC:
    """The method: `MCMC(config).fit(task, rng=0)` gives a posterior with `rhat` and `ess`."""

    def __init__(self, config: MCMCConfig | None = None) -> None:
        self.config = MCMCConfig() if config is None else config

    def fit(self, task: Task, rng: Rng = None, *, progress: bool | None = None) -> "MCMCPosterior":
        """Run the chains from draws of the prior; warn if they have not come together."""
        config = self.config
        device = as_device(config.device)
        generator = as_generator(rng, device)
        moved = task.to(device, DTYPES[config.dtype])
        network = WhiteNetwork(config.prior, task.signature)
        chains = Chains(network.potential(moved, config.noise_std), config.walk, generator)
        start = normal((config.n_chains, network.n_weights), generator, moved.x_obs)
        with progress_bar(f"MCMC ({config.sampler})", show=progress) as on_progress:
            kept = torch.stack(list(chains.run(start, on_progress)), dim=1)
        probes = _probes(moved, config, generator)
        posterior = MCMCPosterior(kept, chains.acceptance, probes, task.signature, config)
        posterior.check()
        return posterior


def _probes(task: Task, config: MCMCConfig, rng: torch.Generator) -> Inputs:
    """Rows at which convergence is judged: labels, and rows of the pool if there is one."""
    labels = task.x_obs[: config.n_probes]
    return (
        labels if task.pool is None else torch.cat([labels, task.pool.draw(config.n_probes, rng)])
    )


class MCMCPosterior(Posterior):
    """The kept states of all chains; a draw picks one of them.

    rhat, ess
        Split R̂ and effective sample size of each function value at `probes`, shape ``(n, o)``.
    acceptance
        The mean acceptance probability after the warm-up.
    """

    def __init__(
        self,
        kept: Float[Tensor, "c t p"],
        acceptance: float,
        probes: Inputs,
        signature: Signature,
        config: MCMCConfig,
    ) -> None:
        noise_std = None if signature.is_classification else config.noise_std
        super().__init__(signature, kept.device, kept.dtype, noise_std)
        self.network = WhiteNetwork(config.prior, signature)
        self.kept, self.acceptance, self.probes = kept, acceptance, probes
        self.config = config
        values = self.chain_values(probes)
        shape = (len(probes), signature.n_outputs)
        self.rhat = split_rhat(values.flatten(2)).reshape(shape)
        self.ess = effective_sample_size(values.flatten(2)).reshape(shape)

    @torch.no_grad()
    def chain_values(self, x: Inputs) -> Float[Tensor, "c t n o"]:
        """Function values at `x`, chain by chain and draw by draw."""
        return torch.stack([self.network(chain, x) for chain in self.kept])

    def check(self) -> None:
        """Warn if R̂ is above the configured limit anywhere."""
        worst = float(self.rhat.max())
        if not worst <= self.config.max_rhat:
            warnings.warn(
                f"the chains should have come together, R-hat <= {self.config.max_rhat}, got "
                f"{worst:.3f} (smallest effective sample size {float(self.ess.min()):.0f}); "
                f"try warmup={4 * self.config.warmup} and thin={4 * self.config.thin}.",
                stacklevel=3,
            )

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        """`n` kept states: all different as long as there are enough."""
        flat = self.kept.flatten(0, 1)
        if n <= len(flat):
            picked = torch.randperm(len(flat), generator=rng, device=rng.device)[:n]
        else:
            picked = torch.randint(len(flat), (n,), generator=rng, device=rng.device)
        weights = flat[picked.to(flat.device)]

        def batch(x: Inputs) -> Draws:
            return self.network(weights, x)

        return batch

    def tensors(self) -> dict[str, Tensor]:
        """Everything that the posterior is made of, by name."""
        acceptance = torch.tensor(self.acceptance, dtype=torch.float64)
        return {"kept": self.kept, "probes": self.probes, "acceptance": acceptance}

    @classmethod
    def restore(
        cls, config: MCMCConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "MCMCPosterior":
        """The posterior whose `tensors()` these are."""
        acceptance = float(tensors["acceptance"])
        return cls(tensors["kept"], acceptance, tensors["probes"], signature, config)
