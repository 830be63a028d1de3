"""Where a step's rows come from."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gpn.core.batch import Batch
from gpn.core.pool import Pool, TensorPool
from gpn.core.strangers import made_up
from gpn.core.task import Task
from gpn.core.train import LabelBatches, Stream
from gpn.core.types import Inputs, as_generator, laid_out
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.setting import Setting

MOST_STORED_ROWS = 200_000


def kept_rows(config: GPNConfig, task: Task, pool: Pool, rng: torch.Generator) -> Inputs:
    """Pool rows kept for the whole fit: all of a tensor's, or a sample of an endless pool's."""
    few = config.anchor != "independent"
    most = config.reference_rows if few else MOST_STORED_ROWS
    if isinstance(pool, TensorPool):
        order = torch.randperm(len(pool), generator=rng, device=rng.device)
        kept = pool.rows[order[:most]]
    else:
        kept = pool.draw(most if few else 4 * config.reference_rows, rng)
    if not config.made_up:
        return kept
    count = round(config.made_up / (1 - config.made_up) * len(kept))
    return torch.cat([kept, made_up(task.x_obs, count, rng)])


@dataclass(frozen=True)
class Batches:
    """A function that gives the next batch, and all that moves on when it does."""

    next: Callable[[torch.Generator], Batch]
    streams: list[Stream]


def fresh_batches(setting: Setting) -> Batches:
    """Labels in turn, and pool rows drawn anew."""
    task, rows_of = setting.task, _labels(setting)
    drawn = setting.pool.draws(setting.train.pool_batch, setting.seeds)

    def next_batch(rng: torch.Generator) -> Batch:
        rows = rows_of.next()
        return _batch(task, rows, drawn.next(rng), None, rng)

    return Batches(next_batch, [*rows_of.streams, *drawn.streams])


def stored_batches(setting: Setting, stored: Inputs) -> Batches:
    """Labels in turn, and rows of `stored` with their numbers, for look-ups.

    What is looked up belongs to the stored row, whatever augmentation makes of it.
    """
    task, rows_of = setting.task, _labels(setting)

    def next_batch(rng: torch.Generator) -> Batch:
        rows = rows_of.next()
        size = (setting.train.pool_batch,)
        picked = torch.randint(len(stored), size, generator=rng, device=rng.device)
        return _batch(task, rows, stored[picked], picked, rng)

    return Batches(next_batch, rows_of.streams)


def _batch(
    task: Task, rows: Tensor, x_pool: Inputs, pool_rows: Tensor | None, rng: torch.Generator
) -> Batch:
    x = laid_out(task.varied(torch.cat([task.x_obs[rows], x_pool]), rng))
    x_obs, x_pool = x.split([len(rows), len(x_pool)])
    return Batch(x_obs, task.y_obs[rows], rows, x_pool, pool_rows)


def _labels(setting: Setting) -> LabelBatches:
    """Batches of labels; joint anchors need all of them every time."""
    n_labels = len(setting.task.x_obs)
    joint = setting.config.anchor == "joint"
    size = n_labels if joint else setting.train.label_batch
    return LabelBatches(n_labels, size, as_generator(setting.seeds, setting.device))
