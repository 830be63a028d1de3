"""One fit, before it starts: what was chosen, on what, with which randomness."""

from dataclasses import dataclass, field
from typing import Any

import torch

from gpn.core.checkpoint import Kept
from gpn.core.networks import Trunk
from gpn.core.pool import Pool
from gpn.core.prior import PriorSpec
from gpn.core.task import Task
from gpn.core.train import Report, TrainConfig
from gpn.methods.gpn.config import GPNConfig


@dataclass(frozen=True)
class Setting:
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
    file: Kept | None = None

    def note_jitter(self, added: float) -> None:
        """Remember what a Cholesky factor took beyond the jitter asked for, if it did."""
        if added > 0:
            self.story["added_jitter"] = added

    @property
    def device(self) -> torch.device:
        return self.task.x_obs.device
