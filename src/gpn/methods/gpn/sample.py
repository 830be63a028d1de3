"""A bounded sample in place of a pool that is not in memory."""

import torch

from gpn.core.pool import RowPool, TensorPool, bounded_rows
from gpn.core.task import Task
from gpn.core.types import as_generator
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.frozen import is_frozen


def sampled(config: GPNConfig, task: Task, seeds: torch.Generator) -> Task:
    """The task with a bounded sample of a pool that is not in memory, where a fit keeps rows.

    Spectral axes and mixture weights are tables of stored rows: a sample without replacement is
    taken once, and all trainings of the fit draw from it. It is of 100,000 rows, or of as many as
    hold 50 million numbers, but of four times `reference_rows` at least. Learnt codes need no
    table, and their steps read fresh rows.
    """
    keeps = config.codes != "learnt" or is_frozen(config)
    if not isinstance(task.pool, RowPool) or not keeps:
        return task
    most = config.reference_rows
    if config.anchor == "independent":
        most = max(4 * config.reference_rows, bounded_rows(task.x_obs[0].numel()))
    rows = task.pool.sample(most, as_generator(seeds, task.x_obs.device))
    return task.on(task.x_obs, TensorPool(rows))
