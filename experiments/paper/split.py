"""What an experiment is made of: a task to learn from, rows to choose settings on, rows to test."""

import copy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gpn import Task
from gpn.core.pools.base import TensorPool


@dataclass(frozen=True)
class Rows:
    """In-distribution rows with their labels, and out-of-distribution rows (labels if known)."""

    x_id: Tensor
    y_id: Tensor
    x_ood: Tensor
    y_ood: Tensor | None = None

    def part(self, share: float, rng: torch.Generator) -> "Rows":
        inside, outside = _some(self.x_id, share, rng), _some(self.x_ood, share, rng)
        y_ood = None if self.y_ood is None else self.y_ood[outside]
        return Rows(self.x_id[inside], self.y_id[inside], self.x_ood[outside], y_ood)


@dataclass(frozen=True)
class Split:
    """One split of a data set.

    `strangers` are the out-of-distribution rows that the task's pool holds; `unseen` are OOD sets
    that never enter a pool, by name. With `halved` the pool is made of the labeled rows and as
    many strange ones, and stays so whatever joins them.
    """

    task: Task
    valid: Rows
    test: Rows
    strangers: Tensor
    unseen: dict[str, Tensor] = field(default_factory=dict)
    halved: bool = False

    def merged(self) -> "Split":
        """The validation rows go to the training rows, once the settings are chosen."""
        assert isinstance(self.task.pool, TensorPool)
        valid, task = self.valid, copy.copy(self.task)
        task.x_obs = torch.cat([task.x_obs, valid.x_id])
        task.y_obs = torch.cat([task.y_obs, valid.y_id])
        strangers = torch.cat([self.strangers, valid.x_ood])
        if self.halved:
            task.pool = TensorPool(half_and_half(task.x_obs, strangers))
        else:
            task.pool = TensorPool(torch.cat([self.task.pool.rows, valid.x_id, valid.x_ood]))
        return replace(self, task=task, strangers=strangers)

    def contaminated(self, share: float, seed: int) -> "Split":
        """The same with a pool of labeled rows, and strangers that make up `share` of it."""
        rng = torch.Generator().manual_seed(seed)
        known, task = self.task.x_obs, copy.copy(self.task)
        count = round(share / (1 - share) * len(known))
        order = torch.randperm(len(self.strangers), generator=rng)
        picked = order.repeat(-(-count // len(order)))[:count]
        task.pool = TensorPool(torch.cat([known, self.strangers[picked]]))
        return replace(self, task=task, strangers=self.strangers[picked], halved=False)

    def part(self, share: float, seed: int) -> "Split":
        """A random share of everything, for a quick look."""
        rng = torch.Generator().manual_seed(seed)
        some = replace(
            self,
            task=_task_part(self.task, share, rng),
            valid=self.valid.part(share, rng),
            test=self.test.part(share, rng),
            strangers=self.strangers[_some(self.strangers, share, rng)],
            unseen={name: x[_some(x, share, rng)] for name, x in self.unseen.items()},
        )
        if some.halved:
            some.task.pool = TensorPool(half_and_half(some.task.x_obs, some.strangers))
        return some


def half_and_half(known: Tensor, strangers: Tensor) -> Tensor:
    """A pool of the known rows and as many strange ones: repeated, or the first of them."""
    times = -(-len(known) // len(strangers))
    as_many = strangers.repeat(times, *[1] * (strangers.ndim - 1))[: len(known)]
    return torch.cat([known, as_many])


def _task_part(task: Task, share: float, rng: torch.Generator) -> Task:
    labels = task.subset(_some(task.x_obs, share, rng))
    assert isinstance(task.pool, TensorPool)
    labels.pool = TensorPool(task.pool.rows[_some(task.pool.rows, share, rng)])
    return labels


def _some(rows: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """The numbers of a random share of the rows, but ten at least."""
    return torch.randperm(len(rows), generator=rng)[: max(10, round(share * len(rows)))]
