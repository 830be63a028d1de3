"""Which rows a step sees: labels in turn, and pool rows drawn anew or by their weights."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpn.core.task import Task
from gpn.core.types import Inputs, as_generator, laid_out
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.model.batch import Batch
from gpn.training.batches import LabelBatches
from gpn.training.state import Stream

PickRows = Callable[[torch.Generator], Int[Tensor, "m"]]


@dataclass(frozen=True)
class Batches:
    """A function that draws the next batch, and all streams that it advances."""

    next: Callable[[torch.Generator], Batch]
    streams: list[Stream]


def fresh_batches(context: FitContext) -> Batches:
    """Labels in turn, and pool rows drawn anew."""
    task, labels = context.task, _label_batches(context)
    pool = task.required_pool("a GPN")
    drawn = pool.draws(context.config.train.pool_batch, context.seeds)

    def next_batch(rng: torch.Generator) -> Batch:
        rows = labels.next()
        return _batch(task, rows, drawn.next(rng), None, rng)

    return Batches(next_batch, [*labels.streams, *drawn.streams])


def stored_batches(
    context: FitContext, stored: Inputs, weights: Float[Tensor, "R"] | None = None
) -> Batches:
    """Labels in turn, and rows of `stored` in proportion to their weights, with their numbers.

    A row's number looks up its anchors, whatever augmentation makes of the row.
    """
    task, labels = context.task, _label_batches(context)
    size = context.config.train.pool_batch
    pick = uniform_rows(len(stored), size) if weights is None else weighted_rows(weights, size)

    def next_batch(rng: torch.Generator) -> Batch:
        rows, picked = labels.next(), pick(rng)
        return _batch(task, rows, stored[picked], picked, rng)

    return Batches(next_batch, labels.streams)


def uniform_rows(n: int, m: int) -> PickRows:
    """`m` of `n` row numbers, all equally likely."""
    return lambda rng: torch.randint(n, (m,), generator=rng, device=rng.device)


def weighted_rows(weights: Float[Tensor, "R"], m: int) -> PickRows:
    """`m` row numbers in proportion to the weights: stratified, one from each m-th of their sum.

    A mean over such rows, times w̄, has the expectation of (1/R) Σ_i w_i ℓ_i, and spends no row on
    what hardly counts.
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
    x = laid_out(task.augmented(torch.cat([task.x_obs[rows], x_pool]), rng))
    x_obs, x_pool = x.split([len(rows), len(x_pool)])
    return Batch(x_obs, task.y_obs[rows], rows, x_pool, pool_rows)


def _label_batches(context: FitContext) -> LabelBatches:
    """Batches of labels; joint anchors need all of them every time."""
    n_labels = len(context.task.x_obs)
    joint = context.config.anchor == "joint"
    size = n_labels if joint else context.config.train.label_batch
    return LabelBatches(n_labels, size, as_generator(context.seeds, context.device))
