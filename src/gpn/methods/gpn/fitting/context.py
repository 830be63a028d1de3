"""One fit before training: its configuration, its task on the device, its randomness."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpn.core.networks.frozen import FrozenFeatures
from gpn.core.networks.trunks import MLPTrunk, ModuleTrunk
from gpn.core.priors.spectral import SpectralAxes
from gpn.core.task import Signature, Task
from gpn.core.types import Rng, as_generator
from gpn.methods.gpn.config import GPNConfig, ResolvedConfig
from gpn.methods.gpn.defaults import resolve
from gpn.methods.gpn.fit_report import Trial
from gpn.methods.gpn.pool.mixture import PoolWeights
from gpn.methods.gpn.pool.stored import StoredPool, store_pool, with_pool_in_memory
from gpn.training.checkpoint import CheckpointLike, CheckpointSession, checkpoint_session
from gpn.training.distributed import ProcessGroup, synchronised
from gpn.training.fingerprint import fingerprint
from gpn.training.progress import OnProgress, no_progress, progress_bar

MAX_VALUE = 1e6


@dataclass(frozen=True)
class FrozenTrunk:
    """A trunk that is not trained: the fit sees its features in place of the rows."""

    features: FrozenFeatures
    signature: Signature
    config: ResolvedConfig


@dataclass(frozen=True)
class PriorBasis:
    """Stored pool rows, the prior's leading axes and their values ψ there.

    `explained_variance`: the share of the prior's variance at pool rows that the axes hold.
    """

    pool: StoredPool
    axes: SpectralAxes
    psi: Float[Tensor, "R r"]
    explained_variance: float


@dataclass
class TrialCache:
    """What training runs on the same rows share: none of it depends on β.

    The basis depends hardly on which rows have labels, the weights do.
    """

    basis: PriorBasis | None = None
    weights: PoolWeights | None = None


@dataclass(frozen=True)
class FitContext:
    """One fit: a resolved configuration, a task on its device, and its randomness.

    frozen
        Where the trunk is frozen, what the posterior needs to be a function of rows again.
    cache
        What several training runs on the same rows share.
    """

    config: ResolvedConfig
    task: Task
    seeds: torch.Generator
    on_progress: OnProgress = no_progress
    session: CheckpointSession | None = None
    group: ProcessGroup | None = None
    frozen: FrozenTrunk | None = None
    beta_search: tuple[Trial, ...] = ()
    cache: TrialCache = field(default_factory=TrialCache)

    @property
    def device(self) -> torch.device:
        return self.task.x_obs.device

    @classmethod
    @contextmanager
    def start(
        cls,
        config: GPNConfig,
        task: Task,
        rng: Rng,
        *,
        progress: bool | None = None,
        checkpoint: CheckpointLike = None,
    ) -> Iterator["FitContext"]:
        """The context of a fit, with its checkpoint, its progress bar and its processes."""
        check_size(task)
        resolved, seeds = resolve(config, task), as_generator(rng)
        group = resolved.train.process_group()
        device = resolved.train.pick_device() if group is None else group.device
        moved = task.to(device, resolved.train.pick_dtype(task.x_obs))
        main = group is None or group.is_main
        kind = device if group is None else torch.device(device.type)
        with (
            synchronised(group, lambda: fingerprint(resolved, task, rng, kind)),
            checkpoint_session(checkpoint, resolved, task, rng, kind, writer=main) as session,
            progress_bar("GPN", show=progress if main else False) as on_progress,
        ):
            moved = with_pool_in_memory(resolved, moved, seeds)
            context = cls(resolved, moved, seeds, on_progress, session, group)
            yield on_features(context) if resolved.is_frozen else context

    def for_trial(self, config: ResolvedConfig, task: Task) -> "FitContext":
        """A training run on other labels of the same rows, for what the fit searches."""
        return replace(self, config=config, task=task)


def on_features(context: FitContext) -> FitContext:
    """The fit of a head on the features of a frozen trunk, which are computed once.

    g(x, z) = head(φ(x), z),   a prior over functions of φ(x), and only the head is trained.
    """
    config, task, seeds = context.config, context.task, context.seeds
    if task.augment is not None:
        raise ValueError(
            "a frozen trunk sees every row once, so that a task must have augment=None, got one "
            "that changes rows at each step; leave it out, or use ModuleTrunk(frozen=False)."
        )
    trunk, rng = config.trunk, as_generator(seeds, task.x_obs.device)
    assert isinstance(trunk, ModuleTrunk)
    features, _ = trunk.features(task.input_shape, seeds)
    assert isinstance(features, FrozenFeatures)
    features.to(task.x_obs)
    pool = store_pool(config, task, rng)
    everything = features.fit(torch.cat([task.x_obs, pool.rows]))
    x_obs, rows = everything.split([len(task.x_obs), len(pool)])
    head = MLPTrunk(widths=trunk.widths, activation=trunk.activation, dropout=trunk.dropout)
    return replace(
        context,
        config=config.replace(trunk=head, synthetic_ood=0.0, fill_ood=False),
        task=task.with_inputs(x_obs, StoredPool(rows, pool.n_real)),
        frozen=FrozenTrunk(features, task.signature, config),
    )


def check_size(task: Task) -> None:
    """Raise where values are far beyond the prior's size: no network would follow them."""
    values = {"x": task.x_obs} if task.is_classification else {"x": task.x_obs, "y": task.y_obs}
    for name, tensor in values.items():
        largest = float(tensor.abs().max())
        if largest > MAX_VALUE:
            raise ValueError(
                f"{name} must be of the prior's size, about 1, got values up to {largest:.3g}; "
                "scale it to mean 0 and deviation 1, as GPNRegressor and GPNClassifier do."
            )


def calibration_rows(n_labels: int, share: float) -> Bool[Tensor, "N"]:
    """The labels at which a network that follows a posterior is not trained."""
    held_out = torch.zeros(n_labels, dtype=torch.bool)
    order = torch.randperm(n_labels, generator=torch.Generator().manual_seed(0))
    held_out[order[: round(share * n_labels)]] = True
    return held_out
