"""What the methods that train networks share: their `fit`, around one function each."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import torch

from gpn.core.config import Config
from gpn.core.posterior.base import Posterior
from gpn.core.task import Task
from gpn.core.types import Rng, as_generator
from gpn.training.checkpoint import CheckpointLike, checkpoint_session
from gpn.training.config import TrainConfig
from gpn.training.loop import train
from gpn.training.progress import progress_bar
from gpn.training.state import History

Train = Callable[..., History]


class NetworkConfig(Config):
    """The configuration of a method that trains networks."""

    train: TrainConfig


C = TypeVar("C", bound=NetworkConfig)
P = TypeVar("P", bound=Posterior)


class NetworkMethod(ABC, Generic[C, P]):
    """A method that trains networks: `fit` moves the task and opens checkpoint and progress bar."""

    config_class: type[C]

    def __init__(self, config: C | None = None) -> None:
        self.config = self.config_class() if config is None else config

    def fit(
        self,
        task: Task,
        rng: Rng = None,
        *,
        progress: bool | None = None,
        checkpoint: CheckpointLike = None,
    ) -> P:
        """Train on the task; `progress` None shows a bar on a terminal.

        With `checkpoint`, a path or a `gpn.Checkpoint`, the fit is saved to that file while it
        runs; killed and called again, it resumes and reaches the same weights.
        """
        config, seeds = self.config.train, as_generator(rng)
        device, dtype = config.pick_device(), config.pick_dtype(task.x_obs)
        with (
            checkpoint_session(checkpoint, self.config, task, rng, device) as session,
            progress_bar(type(self).__name__, show=progress) as on_progress,
        ):
            run = partial(train, config=config, on_progress=on_progress, session=session)
            return self._fit(task.to(device, dtype), seeds, run)

    @abstractmethod
    def _fit(self, task: Task, seeds: torch.Generator, train: Train) -> P:
        """The posterior of a task on its device; `train(module, step, streams=...)` is the loop."""
