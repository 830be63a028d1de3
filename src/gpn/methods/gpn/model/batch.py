"""The rows of one step: labels in turn, and pool rows drawn anew or by their weights."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpn.core.task import Task
from gpn.core.types import Inputs, as_generator, channels_last
from gpn.training.batches import LabelBatches
from gpn.training.state import Stream

PickRows = Callable[[torch.Generator], Int[Tensor, "m"]]


@dataclass(frozen=True)
class Batch:
    """Labeled rows (numbers `rows` of the task) and pool rows (numbers `pool_rows`, if stored)."""

    x_obs: Inputs
    y_obs: Tensor
    rows: Int[Tensor, "n"]
    x_pool: Float[Tensor, "m *d"]
    pool_rows: Int[Tensor, "m"] | None = None

    @property
    def x(self) -> Tensor:
        """Labeled rows, then pool rows: they share one forward pass (and batch statistics)."""
        return torch.cat([self.x_obs, self.x_pool])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All of it: `Batch(*batch.tensors)` is the batch again."""
        known = (self.x_obs, self.y_obs, self.rows, self.x_pool)
        return known if self.pool_rows is None else (*known, self.pool_rows)

    @property
    def n_labels(self) -> int:
        return len(self.x_obs)


@dataclass(frozen=True)
class Batches:
    """A function that draws the next batch, and all streams that it advances."""

    next: Callable[[torch.Generator], Batch]
    streams: list[Stream]


def fresh_batches(task: Task, seeds: torch.Generator, *, n_labels: int, n_pool: int) -> Batches:
    """`n_labels` labels in turn, and `n_pool` pool rows drawn anew."""
    labels = _label_batches(task, n_labels, seeds)
    drawn = task.required_pool("a GPN").draws(n_pool, seeds)

    def next_batch(rng: torch.Generator) -> Batch:
        rows = labels.next()
        return _batch(task, rows, drawn.next(rng), None, rng)

    return Batches(next_batch, [*labels.streams, *drawn.streams])


def stored_batches(
    task: Task,
    seeds: torch.Generator,
    *,
    n_labels: int,
    n_pool: int,
    stored: Inputs,
    weights: Float[Tensor, "R"] | None = None,
) -> Batches:
    """Labels in turn, and rows of `stored` in proportion to their weights, with their numbers.

    A row's number looks up its anchors, whatever augmentation makes of the row.
    """
    labels = _label_batches(task, n_labels, seeds)
    pick = uniform_rows(len(stored), n_pool) if weights is None else weighted_rows(weights, n_pool)

    def next_batch(rng: torch.Generator) -> Batch:
        rows, picked = labels.next(), pick(rng)
        return _batch(task, rows, stored[picked], picked, rng)

    return Batches(next_batch, labels.streams)


def uniform_rows(n: int, m: int) -> PickRows:
    """`m` of `n` row numbers, all equally likely."""
    return lambda rng: torch.randint(n, (m,), generator=rng, device=rng.device)


def weighted_rows(weights: Float[Tensor, "R"], m: int) -> PickRows:
    """`m` row numbers in proportion to the weights: stratified, one from each m-th of their sum.

    A mean over such rows, times w̄, has the expectation (1/R) Σ_i w_i ℓ_i, and less variance than
    a weighted mean over uniform rows.
    """
    cumulated = weights.double().cpu().cumsum(0)  # on a GPU sums may round differently each time
    cumulated = (cumulated / cumulated[-1]).to(weights.device)

    def pick(rng: torch.Generator) -> Int[Tensor, "m"]:
        unit = torch.rand(m, generator=rng, device=rng.device, dtype=cumulated.dtype)
        strata = (unit + torch.arange(m, device=rng.device)) / m
        return torch.searchsorted(cumulated, strata, right=True).clamp_max(len(cumulated) - 1)

    return pick


def _batch(
    task: Task, rows: Tensor, x_pool: Inputs, pool_rows: Tensor | None, rng: torch.Generator
) -> Batch:
    x = channels_last(task.augmented(torch.cat([task.x_obs[rows], x_pool]), rng))
    x_obs, x_pool = x.split([len(rows), len(x_pool)])
    return Batch(x_obs, task.y_obs[rows], rows, x_pool, pool_rows)


def _label_batches(task: Task, size: int, seeds: torch.Generator) -> LabelBatches:
    return LabelBatches(len(task.x_obs), size, as_generator(seeds, task.x_obs.device))
