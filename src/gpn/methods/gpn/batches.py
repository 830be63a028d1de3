"""Where a step's rows come from."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gpn.core.batch import Batch
from gpn.core.task import Task
from gpn.core.train import LabelBatches
from gpn.core.types import Inputs, as_generator
from gpn.methods.gpn.setting import Setting


@dataclass(frozen=True)
class Batches:
    """A function that gives the next batch, and the labels that it goes through."""

    next: Callable[[torch.Generator], Batch]
    labels: LabelBatches


def fresh_batches(setting: Setting) -> Batches:
    """Labels in turn, and pool rows drawn anew."""
    task, rows_of = setting.task, _labels(setting)

    def next_batch(rng: torch.Generator) -> Batch:
        rows = rows_of.next()
        x_pool = setting.pool.draw(setting.train.pool_batch, rng)
        return _batch(task, rows, x_pool, None, rng)

    return Batches(next_batch, rows_of)


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

    return Batches(next_batch, rows_of)


def _batch(
    task: Task, rows: Tensor, x_pool: Inputs, pool_rows: Tensor | None, rng: torch.Generator
) -> Batch:
    x = task.varied(torch.cat([task.x_obs[rows], x_pool]), rng)
    x_obs, x_pool = x.split([len(rows), len(x_pool)])
    return Batch(x_obs, task.y_obs[rows], rows, x_pool, pool_rows)


def _labels(setting: Setting) -> LabelBatches:
    """Batches of labels; joint anchors need all of them every time."""
    n_labels = len(setting.task.x_obs)
    joint = setting.config.anchor == "joint"
    size = n_labels if joint else setting.train.label_batch
    return LabelBatches(n_labels, size, as_generator(setting.seeds, setting.device))
