"""Ensembles of networks: plain, with prior functions, or anchored in parameters or outputs.

Member j minimises data(f_j(x_obs), y_obs) plus the term that `regularise` names:

    "parameters"  (β/N) ‖Γ^½ (θ_j − θ_anc,j)‖²,  θ_anc,j ~ N(0, Σ_prior)     (Pearce et al. 2020)
                  Γ = σ_ε² Σ_prior⁻¹ for regression, ½ Σ_prior⁻¹ for classes
    "outputs"     β ‖f_j(x') − f(x'; θ_j)‖² on pool points x', θ_j ~ N(0, Σ_prior)
                  (Roderick et al. 2022, its equation for the output-regularised ensemble)
    "prior"       nothing, but f_j = g_j + scale · p_j, with a learnt g_j and a prior function p_j
                  that stays as it was drawn: randomised prior functions (Osband et al. 2018)
    "none"        nothing: a deep ensemble (Lakshminarayanan et al. 2017)

All members train together, along one tensor axis; more draws than members repeat them.

Differences from the originals: members share their minibatches, but not their initial values and
anchors; plain members have no variance output and no adversarial examples; Pearce et al. anchor
one hidden layer, here every layer is anchored, with its own variance per fan-in. Osband et al. add
noise to each member's labels, or resample them; here members with prior functions share labels.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gpn.core.config import (
    require_counts,
    require_one_of,
    require_positive,
    require_positive_if_given,
)
from gpn.core.losses import anchor_gap, data_loss
from gpn.core.networks.trunks import MLPTrunk, ModuleTrunk, Trunk
from gpn.core.pools.prefetch import closing_streams
from gpn.core.posterior.base import FunctionBatch, Posterior
from gpn.core.priors.prior import MLPPrior, ModulePrior, PriorSpec
from gpn.core.task import Signature, Task
from gpn.core.types import Functions, Inputs, as_generator
from gpn.methods.ensemble.members import Members, MembersWithPrior, ParameterPrior, Variances
from gpn.methods.network_method import NetworkConfig, NetworkMethod, Train
from gpn.training.batches import LabelBatches
from gpn.training.config import TrainConfig
from gpn.training.cuda_graphs import TrainStep
from gpn.training.state import History, Stream, Terms

DEFAULT_BETA = {"parameters": 1.0, "outputs": 0.1, "prior": 0.0, "none": 0.0}
AnchorLoss = Callable[[Functions, Inputs], Tensor]


@dataclass(frozen=True, kw_only=True)
class EnsembleConfig(NetworkConfig):
    """Settings of an ensemble.

    beta
        Weight of the anchors. None is 1 for parameters (Pearce's formula) and 0.1 for outputs.
    noise_std, prior_variance, bias_variance
        For "parameters": σ_ε of the labels, and Σ_prior: weights ~ N(0, prior_variance / fan-in),
        biases ~ N(0, bias_variance); one number for all layers, or one per layer.
    prior, prior_scale
        For "outputs" and "prior": the distribution of prior functions; for "prior", their factor.
    """

    regularise: str = "parameters"
    n_members: int = 10
    beta: float | None = None
    noise_std: float = 0.1
    prior_variance: Variances = 2.0
    bias_variance: Variances = 1.0
    prior: PriorSpec = field(default_factory=MLPPrior)
    prior_scale: float = 1.0
    trunk: Trunk = field(default_factory=lambda: MLPTrunk(widths=(128, 128), activation="relu"))
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        require_one_of(self, "regularise", tuple(DEFAULT_BETA))
        require_counts(self, "n_members")
        require_positive(self, "noise_std", "prior_scale")
        require_positive_if_given(self, "beta")

    @classmethod
    def of_prior(cls, prior: MLPPrior, **changes: Any) -> "EnsembleConfig":
        """Members with the prior's network, anchored in its parameters: Pearce's setting.

        They approximate the posterior that `methods.get("gp", prior=prior)` computes exactly.
        """
        settings = {
            "regularise": "parameters",
            "trunk": MLPTrunk(widths=prior.widths, activation=prior.activation),
            "prior_variance": prior.prior_variance,
            "bias_variance": prior.bias_variance,
        }
        return cls(**{**settings, **changes})

    @property
    def anchor_weight(self) -> float:
        """β, or its default."""
        return DEFAULT_BETA[self.regularise] if self.beta is None else self.beta


class Ensemble(NetworkMethod[EnsembleConfig, "EnsemblePosterior"]):
    """The method: `Ensemble(config).fit(task, rng=0)` returns a posterior."""

    config_class = EnsembleConfig

    def _fit(self, task: Task, seeds: torch.Generator, train: Train) -> "EnsemblePosterior":
        """Train all members together; only `regularise="outputs"` uses the pool."""
        members, step, streams = ensemble_step(self.config, task, seeds)
        with closing_streams(streams):
            history = train(members, step, streams=streams)
        return EnsemblePosterior(members, task.signature, self.config, history)


def ensemble_step(
    config: EnsembleConfig, task: Task, seeds: torch.Generator
) -> tuple[Members, TrainStep, list[Stream]]:
    """New members, one step of their training on `task`, and the random streams of that step.

    Labels and pool rows go through one forward pass. The loss is a sum over members, not a mean:
    the gradient of each member is that of its own loss.
    """
    members = new_members(config, task.signature, seeds).to(task.x_obs)
    anchor_loss = _anchor_loss(config, members, task, seeds)
    rng = as_generator(seeds, task.x_obs.device)
    labels = LabelBatches(len(task.x_obs), config.train.label_batch, rng)
    uses_pool = config.regularise == "outputs"
    pool = task.required_pool("an output-regularised ensemble") if uses_pool else None
    pool_rows = None if pool is None else pool.draws(config.train.pool_batch, seeds)

    def rows() -> tuple[Tensor, Tensor, Tensor]:
        picked = labels.next()
        x_pool = task.x_obs[:0] if pool_rows is None else pool_rows.next(rng)
        x = task.augmented(torch.cat([task.x_obs[picked], x_pool]), rng)
        return x, task.y_obs[picked], x_pool

    def loss_terms(x: Tensor, y: Tensor, x_pool: Tensor) -> Terms:
        values = members(x)
        data = {"data": data_loss(values[:, : len(y)], y).sum()}
        if anchor_loss is None:
            return data
        return {**data, "anchor": anchor_loss(values[:, len(y) :], x_pool)}

    # a CUDA graph may not be able to capture a user's module
    has_own_module = isinstance(config.trunk, ModuleTrunk) or isinstance(config.prior, ModulePrior)
    step = TrainStep(rows, loss_terms, graph_safe=not has_own_module)
    return members, step, [*labels.streams, *(() if pool_rows is None else pool_rows.streams)]


def new_members(config: EnsembleConfig, signature: Signature, seeds: torch.Generator) -> Members:
    """Untrained members, each with its prior function where the configuration asks for one."""
    if config.regularise != "prior":
        return Members(config.trunk, signature, config.n_members, seeds)
    return MembersWithPrior(
        config.trunk, signature, config.n_members, seeds, config.prior, config.prior_scale
    )


def _anchor_loss(
    config: EnsembleConfig, members: Members, task: Task, seeds: torch.Generator
) -> AnchorLoss | None:
    """The regulariser as a function of the members' values at the pool rows, and of those rows."""
    if config.regularise == "parameters":
        prior = ParameterPrior(members, config.prior_variance, config.bias_variance)
        prior.initialise(seeds)
        anchors = prior.sample(seeds)
        gamma = 0.5 if task.is_classification else config.noise_std**2
        weight = config.anchor_weight * gamma / len(task.x_obs)
        return lambda generated, x_pool: weight * prior.distance(anchors)
    if config.regularise == "outputs":
        functions = config.prior.sample(task.input_shape, task.n_outputs, config.n_members, seeds)
        functions = functions.to(task.x_obs.device, task.x_obs.dtype)
        beta = config.anchor_weight
        return lambda generated, x_pool: beta * anchor_gap(generated, functions(x_pool)).sum()
    return None


class EnsemblePosterior(Posterior):
    """The uniform distribution over the members: a draw is a member."""

    def __init__(
        self,
        networks: Members,
        signature: Signature,
        config: EnsembleConfig,
        history: History | None = None,
    ) -> None:
        example = next(networks.layers.parameters())
        super().__init__(signature, example.device, example.dtype)
        self.networks = networks.eval().requires_grad_(False)  # noqa: FBT003
        self.config, self.history = config, history

    @property
    def members(self) -> int:
        """The number of functions."""
        return self.config.n_members

    def first(self, m: int) -> "EnsemblePosterior":
        """The ensemble of the first `m` members, which trained independently of the others."""
        if not 1 <= m <= self.members:
            raise ValueError(f"m must lie between 1 and the {self.members} members, got {m=}.")
        networks = self.networks.pick(torch.arange(m, device=self.device))
        config = self.config.replace(n_members=m)
        return EnsemblePosterior(networks, self.signature, config, self.history)

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        """Members in random order; more draws than members repeat them as evenly as possible."""
        rounds = -(-n // self.members)
        keys = torch.rand(rounds, self.members, generator=rng, device=rng.device)
        which = keys.argsort(1).flatten()[:n].to(self.device)
        if n <= self.members:
            return self.networks.pick(which)
        return lambda x: self.networks(x)[which]

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.networks.state_dict())

    @classmethod
    def restore(
        cls, config: EnsembleConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "EnsemblePosterior":
        networks = new_members(config, signature, as_generator(0))
        networks.to(tensors["layers.0.weight"]).load_state_dict(tensors)
        return cls(networks, signature, config)
