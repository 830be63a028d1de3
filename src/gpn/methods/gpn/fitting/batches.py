"""Where a step's rows come from."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpn.core.task import Task
from gpn.core.types import Inputs, as_generator, channels_last
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.model.batch import Batch
from gpn.training.batches import LabelBatches
from gpn.training.state import Stream

Pick = Callable[[torch.Generator], Int[Tensor, "m"]]


@dataclass(frozen=True)
class Batches:
    """A function that gives the next batch, and all that moves on when it does."""

    next: Callable[[torch.Generator], Batch]
    streams: list[Stream]


def fresh_batches(setting: FitContext) -> Batches:
    """Labels in turn, and pool rows drawn anew."""
    task, rows_of = setting.task, _labels(setting)
    drawn = setting.pool.draws(setting.train.pool_batch, setting.seeds)

    def next_batch(rng: torch.Generator) -> Batch:
        rows = rows_of.next()
        return _batch(task, rows, drawn.next(rng), None, rng)

    return Batches(next_batch, [*rows_of.streams, *drawn.streams])


def stored_batches(
    setting: FitContext, stored: Inputs, weights: Float[Tensor, "R"] | None = None
) -> Batches:
    """Labels in turn, and rows of `stored` with their numbers, for look-ups.

    Rows come as often as they weigh. What is looked up belongs to the stored row, whatever
    augmentation makes of it.
    """
    task, rows_of, size = setting.task, _labels(setting), setting.train.pool_batch
    pick = _any_of(len(stored), size) if weights is None else by_weight(weights, size)

    def next_batch(rng: torch.Generator) -> Batch:
        rows, picked = rows_of.next(), pick(rng)
        return _batch(task, rows, stored[picked], picked, rng)

    return Batches(next_batch, rows_of.streams)


def _any_of(n: int, m: int) -> Pick:
    return lambda rng: torch.randint(n, (m,), generator=rng, device=rng.device)


def by_weight(weights: Float[Tensor, "R"], m: int) -> Pick:
    """`m` row numbers in proportion to the weights, one from each m-th part of their sum.

    A mean over such rows, times w̄, has the expectation of (1/R) Σ_i w_i ℓ_i, and spends no row on
    what hardly counts.
    """
    until = weights.double().cpu().cumsum(0)  # on a GPU sums may come out otherwise next time
    until = (until / until[-1]).to(weights.device)

    def pick(rng: torch.Generator) -> Int[Tensor, "m"]:
        where = torch.rand(m, generator=rng, device=rng.device, dtype=until.dtype)
        where = (where + torch.arange(m, device=rng.device)) / m
        return torch.searchsorted(until, where, right=True).clamp_max(len(until) - 1)

    return pick


def _batch(
    task: Task, rows: Tensor, x_pool: Inputs, pool_rows: Tensor | None, rng: torch.Generator
) -> Batch:
    x = channels_last(task.augmented(torch.cat([task.x_obs[rows], x_pool]), rng))
    x_obs, x_pool = x.split([len(rows), len(x_pool)])
    return Batch(x_obs, task.y_obs[rows], rows, x_pool, pool_rows)


def _labels(setting: FitContext) -> LabelBatches:
    """Batches of labels; joint anchors need all of them every time."""
    n_labels = len(setting.task.x_obs)
    joint = setting.config.anchor == "joint"
    size = n_labels if joint else setting.train.label_batch
    return LabelBatches(n_labels, size, as_generator(setting.seeds, setting.device))
