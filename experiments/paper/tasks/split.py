"""One split of a data set: a task to fit, rows to choose hyperparameters on, rows to test."""

import copy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gpn import Task
from gpn.core.pools.base import TensorPool


@dataclass(frozen=True)
class Rows:
    """In-distribution rows with labels, and out-of-distribution rows (with labels if known)."""

    x_id: Tensor
    y_id: Tensor
    x_ood: Tensor
    y_ood: Tensor | None = None

    def sample(self, share: float, rng: torch.Generator) -> "Rows":
        known, ood = _sample(self.x_id, share, rng), _sample(self.x_ood, share, rng)
        y_ood = None if self.y_ood is None else self.y_ood[ood]
        return Rows(self.x_id[known], self.y_id[known], self.x_ood[ood], y_ood)


@dataclass(frozen=True)
class Split:
    """One split of a data set.

    pool_ood
        The out-of-distribution rows that the task's pool holds.
    unseen
        OOD sets that never enter a pool, by name.
    balanced
        Whether the pool is the labeled rows and as many OOD rows, whatever rows join them.
    """

    task: Task
    valid: Rows
    test: Rows
    pool_ood: Tensor
    unseen: dict[str, Tensor] = field(default_factory=dict)
    balanced: bool = False

    def merged(self) -> "Split":
        """Validation rows join the training rows, once the hyperparameters are chosen."""
        assert isinstance(self.task.pool, TensorPool)
        valid, task = self.valid, copy.copy(self.task)
        task.x_obs = torch.cat([task.x_obs, valid.x_id])
        task.y_obs = torch.cat([task.y_obs, valid.y_id])
        pool_ood = torch.cat([self.pool_ood, valid.x_ood])
        if self.balanced:
            task.pool = TensorPool(balanced_pool(task.x_obs, pool_ood))
        else:
            task.pool = TensorPool(torch.cat([self.task.pool.rows, valid.x_id, valid.x_ood]))
        return replace(self, task=task, pool_ood=pool_ood)

    def contaminated(self, share: float, seed: int) -> "Split":
        """The same split with a pool of labeled rows of which OOD rows are `share`."""
        rng = torch.Generator().manual_seed(seed)
        labeled, task = self.task.x_obs, copy.copy(self.task)
        count = round(share / (1 - share) * len(labeled))
        order = torch.randperm(len(self.pool_ood), generator=rng)
        pool_ood = self.pool_ood[order.repeat(-(-count // len(order)))[:count]]
        task.pool = TensorPool(torch.cat([labeled, pool_ood]))
        return replace(self, task=task, pool_ood=pool_ood, balanced=False)

    def sample(self, share: float, seed: int) -> "Split":
        """A random share of all rows, for a quick run."""
        rng = torch.Generator().manual_seed(seed)
        task = self.task.subset(_sample(self.task.x_obs, share, rng))
        assert isinstance(self.task.pool, TensorPool)
        rows = self.task.pool.rows
        task.pool = TensorPool(rows[_sample(rows, share, rng)])
        smaller = replace(
            self,
            task=task,
            valid=self.valid.sample(share, rng),
            test=self.test.sample(share, rng),
            pool_ood=self.pool_ood[_sample(self.pool_ood, share, rng)],
            unseen={name: x[_sample(x, share, rng)] for name, x in self.unseen.items()},
        )
        if smaller.balanced:
            task.pool = TensorPool(balanced_pool(task.x_obs, smaller.pool_ood))
        return smaller


def balanced_pool(labeled: Tensor, ood: Tensor) -> Tensor:
    """A pool of the labeled rows and as many OOD rows, repeated or cut to that number."""
    times = -(-len(labeled) // len(ood))
    return torch.cat([labeled, ood.repeat(times, *[1] * (ood.ndim - 1))[: len(labeled)]])


def _sample(rows: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """Indices of a random share of the rows, at least ten."""
    return torch.randperm(len(rows), generator=rng)[: max(10, round(share * len(rows)))]
