"""One fit, before it starts: what was chosen, on what, with which randomness."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.networks.trunks import Trunk
from gpn.core.pools.base import Pool
from gpn.core.priors.prior import PriorSpec
from gpn.core.priors.spectral import SpectralAxes
from gpn.core.task import Task
from gpn.core.types import Inputs
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.pool.mixture import MixtureWeights
from gpn.training.checkpoint import CheckpointSession
from gpn.training.config import TrainConfig
from gpn.training.distributed import ProcessGroup
from gpn.training.loop import Report


@dataclass(frozen=True)
class PriorBasis:
    """Stored pool rows, the prior's axes with their values there, and the variance they keep.

    The first `n_real` rows are the pool's own, those after them made up.
    """

    reference: Inputs
    axes: SpectralAxes
    psi: Float[Tensor, "R r"]
    kept: float
    n_real: int


@dataclass
class TrialCache:
    """What several fits on the same rows need not find anew."""

    ground: PriorBasis | None = None
    weights: MixtureWeights | None = None

    def for_other_labels(self) -> "TrialCache":
        """Without what hangs on which rows have labels."""
        return TrialCache(self.ground)


@dataclass(frozen=True)
class FitContext:
    """One fit: its resolved configuration, its task on the device, and its randomness."""

    config: GPNConfig
    prior: PriorSpec
    trunk: Trunk
    train: TrainConfig
    task: Task
    pool: Pool
    seeds: torch.Generator
    report: Report
    story: dict[str, Any] = field(default_factory=dict)
    file: CheckpointSession | None = None
    shared: TrialCache = field(default_factory=TrialCache)
    processes: ProcessGroup | None = None

    def note_jitter(self, added: float) -> None:
        """Remember what a Cholesky factor took beyond the jitter asked for, if it did."""
        if added > 0:
            self.story["added_jitter"] = added

    @property
    def device(self) -> torch.device:
        return self.task.x_obs.device
