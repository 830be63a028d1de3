"""Ensembles of networks: plain, anchored in their parameters, or anchored in their outputs.

Member j minimises data(f_j(x_obs), y_obs), plus what `regularise` names:

    "parameters"  (β/N) ‖Γ^½ (θ_j − θ_anc,j)‖²,  θ_anc,j ~ N(0, Σ_prior)     (Pearce et al. 2020)
                  Γ = σ_ε² Σ_prior⁻¹ for regression, ½ Σ_prior⁻¹ for classes
    "outputs"     β ‖f_j(x') − f(x'; θ_j)‖² on pool points x', θ_j ~ N(0, Σ_prior)
                  (Roderick et al. 2022, its equation for the output-regularised ensemble)
    "none"        nothing: a deep ensemble (Lakshminarayanan et al. 2017)

All members train at once, as one tensor axis. An ensemble has only as many functions as members:
more draws than members repeat them.

What differs from the originals: members share their minibatches (their starts and anchors are
their own); plain members have no variance output and no adversarial examples; Pearce anchors one
hidden layer, here every layer of the trunk is anchored, with one variance per fan-in for each.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from gpn.core.config import (
    Config,
    require_counts,
    require_one_of,
    require_positive,
    require_positive_if_given,
)
from gpn.core.losses import anchor_gap, data_loss
from gpn.core.networks.trunks import MLPTrunk, ModuleTrunk, Trunk
from gpn.core.pools.prefetch import closing_streams
from gpn.core.posterior.base import FunctionBatch, Posterior
from gpn.core.priors.prior import MLPPrior, ModulePrior, Prior, PriorSpec
from gpn.core.task import Signature, Task
from gpn.core.types import Rng, as_generator
from gpn.methods.ensemble.members import Members
from gpn.methods.ensemble.weight_prior import ParameterPrior, Variances
from gpn.training.batches import LabelBatches
from gpn.training.checkpoint import CheckpointLike, checkpoint_session
from gpn.training.config import TrainConfig
from gpn.training.cuda_graphs import TrainStep
from gpn.training.loop import train
from gpn.training.progress import progress_bar
from gpn.training.state import History, Stream, Terms

Step = tuple[TrainStep, list[Stream]]

DEFAULT_BETA = {"parameters": 1.0, "outputs": 0.1, "none": 0.0}


@dataclass(frozen=True, kw_only=True)
class EnsembleConfig(Config):
    """Settings of an ensemble.

    beta
        Weight of the anchors. None is 1 for parameters (Pearce's formula as it stands) and 0.1
        for outputs.
    noise_std, prior_variance, bias_variance
        For "parameters": σ_ε of the labels, and Σ_prior: weights ~ N(0, prior_variance / fan-in),
        biases ~ N(0, bias_variance); one number for all layers, or one per layer.
    prior
        For "outputs": the law of the prior functions.
    """

    regularise: str = "parameters"
    n_members: int = 10
    beta: float | None = None
    noise_std: float = 0.1
    prior_variance: Variances = 2.0
    bias_variance: Variances = 1.0
    prior: PriorSpec = field(default_factory=MLPPrior)
    trunk: Trunk = field(default_factory=lambda: MLPTrunk(widths=(128, 128), activation="relu"))
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        require_one_of(self, "regularise", tuple(DEFAULT_BETA))
        require_counts(self, "n_members")
        require_positive(self, "noise_std")
        require_positive_if_given(self, "beta")

    @classmethod
    def of_prior(cls, prior: MLPPrior, **changes: Any) -> "EnsembleConfig":
        """Members that are the prior's own network, anchored in its parameters: Pearce's setting.

        Their target is then the posterior that `methods.get("gp", prior=prior)` has exactly.
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
        """β, as given or by default."""
        return DEFAULT_BETA[self.regularise] if self.beta is None else self.beta


class Ensemble:
    """The method: `Ensemble(config).fit(task, rng=0)` gives a posterior."""

    def __init__(self, config: EnsembleConfig | None = None) -> None:
        self.config = EnsembleConfig() if config is None else config

    def fit(
        self,
        task: Task,
        rng: Rng = None,
        *,
        progress: bool | None = None,
        checkpoint: CheckpointLike = None,
    ) -> "EnsemblePosterior":
        """Train all members at once; only `regularise="outputs"` uses the pool."""
        config, seeds = self.config, as_generator(rng)
        device, dtype = config.train.pick_device(), config.train.pick_dtype(task.x_obs)
        members, terms, streams = ensemble_step(config, task.to(device, dtype), seeds)
        keep = checkpoint_session(checkpoint, config, task, rng, device)
        with (
            keep as file,
            progress_bar("ensemble", show=progress) as on_progress,
            closing_streams(streams),
        ):
            history = train(
                members, terms, config.train, on_progress, streams=streams, session=file
            )
        return EnsemblePosterior(members, task.signature, config, history)


class EnsemblePosterior(Posterior):
    """The uniform law on the members: a draw is a member."""

    def __init__(
        self,
        networks: Members,
        signature: Signature,
        config: EnsembleConfig,
        history: History | None = None,
    ) -> None:
        super().__init__(signature, networks.example.device, networks.example.dtype)
        self.networks = networks.eval().requires_grad_(False)  # noqa: FBT003
        self.config = config
        self.history = history

    @property
    def members(self) -> int:
        """How many functions there are."""
        return len(self.networks)

    def first(self, m: int) -> "EnsemblePosterior":
        """The first `m` members: an ensemble of its own, since members never see each other."""
        if not 1 <= m <= self.members:
            raise ValueError(f"m must lie between 1 and the {self.members} members, got {m=}.")
        networks = self.networks.pick(torch.arange(m, device=self.device))
        return EnsemblePosterior(
            networks, self.signature, self.config.replace(n_members=m), self.history
        )

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        """Members in random order, without repeats up to their number, then as evenly as can be."""
        which = self._order(n, rng)
        if n <= self.members:
            return self.networks.pick(which)
        return lambda x: self.networks(x)[which]

    def _order(self, n: int, rng: torch.Generator) -> Int[Tensor, "n"]:
        rounds = -(-n // self.members)
        keys = torch.rand(rounds, self.members, generator=rng, device=rng.device)
        return keys.argsort(1).flatten()[:n].to(self.device)

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.networks.state_dict())

    @classmethod
    def restore(
        cls, config: EnsembleConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "EnsemblePosterior":
        """The posterior whose `tensors` these are."""
        networks = Members(config.trunk, signature, config.n_members, as_generator(0))
        example = tensors["layers.0.weight"]
        networks.to(example.device, example.dtype).load_state_dict(tensors)
        return cls(networks, signature, config)


def ensemble_step(
    config: EnsembleConfig, task: Task, seeds: torch.Generator
) -> tuple[Members, TrainStep, list[Stream]]:
    """The members beside a task on its device, one step of their training, what it draws from."""
    members = Members(config.trunk, task.signature, config.n_members, seeds).to(task.x_obs)
    make = {"parameters": _parameter_terms, "outputs": _output_terms, "none": _plain_terms}
    return members, *make[config.regularise](config, members, task, seeds)


# Each member's loss is summed, not averaged: its gradient is its own, whatever their number.


def _plain_terms(
    config: EnsembleConfig, members: Members, task: Task, seeds: torch.Generator
) -> Step:
    rng = as_generator(seeds, task.x_obs.device)
    labels = _labels(config, task, rng)

    def terms(x: Tensor, y: Tensor) -> Terms:
        return {"data": data_loss(members(x), y).sum()}

    return _feed(config, _labeled(task, labels, rng), terms), labels.streams


def _parameter_terms(
    config: EnsembleConfig, members: Members, task: Task, seeds: torch.Generator
) -> Step:
    """data + (β/N) ‖Γ^½ (θ_j − θ_anc,j)‖², started from the prior but not at the anchors."""
    prior = ParameterPrior(members, config.prior_variance, config.bias_variance)
    prior.start(seeds)
    anchors = prior.sample(seeds)
    scale = 0.5 if task.is_classification else config.noise_std**2
    weight = config.anchor_weight * scale / len(task.x_obs)
    rng = as_generator(seeds, task.x_obs.device)
    labels = _labels(config, task, rng)

    def terms(x: Tensor, y: Tensor) -> Terms:
        return {
            "data": data_loss(members(x), y).sum(),
            "anchor": weight * prior.distance(anchors),
        }

    return _feed(config, _labeled(task, labels, rng), terms), labels.streams


def _output_terms(
    config: EnsembleConfig, members: Members, task: Task, seeds: torch.Generator
) -> Step:
    """data + β ‖f_j(x') − f(x'; θ_j)‖², with labels and pool in one forward pass."""
    pool, prior = task.required_pool("an output-regularised ensemble"), _prior(config, task, seeds)
    rng = as_generator(seeds, task.x_obs.device)
    labels, drawn = _labels(config, task, rng), pool.draws(config.train.pool_batch, seeds)

    def rows() -> tuple[Tensor, ...]:
        picked, x_pool = labels.next(), drawn.next(rng)
        x = task.augmented(torch.cat([task.x_obs[picked], x_pool]), rng)
        return x, task.y_obs[picked], x_pool

    def terms(x: Tensor, y: Tensor, x_pool: Tensor) -> Terms:
        fitted, generated = members(x).split([len(y), len(x_pool)], dim=1)
        return {
            "data": data_loss(fitted, y).sum(),
            "anchor": config.anchor_weight * anchor_gap(generated, prior(x_pool)).sum(),
        }

    return _feed(config, rows, terms), [*labels.streams, *drawn.streams]


def _labeled(
    task: Task, labels: LabelBatches, rng: torch.Generator
) -> Callable[[], tuple[Tensor, Tensor]]:
    def rows() -> tuple[Tensor, Tensor]:
        picked = labels.next()
        return task.augmented(task.x_obs[picked], rng), task.y_obs[picked]

    return rows


def _feed(
    config: EnsembleConfig, rows: Callable[[], tuple[Tensor, ...]], terms: Callable[..., Terms]
) -> TrainStep:
    """A step; a user's own module may do what no GPU can repeat."""
    own = isinstance(config.trunk, ModuleTrunk) or isinstance(config.prior, ModulePrior)
    return TrainStep(rows, terms, graph_safe=not own)


def _labels(config: EnsembleConfig, task: Task, rng: torch.Generator) -> LabelBatches:
    return LabelBatches(len(task.x_obs), config.train.label_batch, rng)


def _prior(config: EnsembleConfig, task: Task, seeds: torch.Generator) -> Prior:
    prior = config.prior.sample(task.input_shape, task.n_outputs, config.n_members, seeds)
    return prior.to(task.x_obs.device, task.x_obs.dtype)
