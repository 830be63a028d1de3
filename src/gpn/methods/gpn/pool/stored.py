"""A bounded sample in place of a pool that is not in memory."""

import torch

from gpn.core.pools.base import Pool, TensorPool, max_sampled_rows
from gpn.core.pools.rows import RowPool
from gpn.core.task import Task
from gpn.core.types import Inputs, as_generator
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.pool.synthetic import made_up


def sampled(config: GPNConfig, task: Task, seeds: torch.Generator) -> Task:
    """The task with a bounded sample of a pool that is not in memory, where a fit keeps rows.

    Spectral axes and mixture weights are tables of stored rows: a sample without replacement is
    taken once, and all trainings of the fit draw from it. It is of 100,000 rows, or of as many as
    hold 50 million numbers, but of four times `reference_rows` at least. Learnt codes need no
    table, and their steps read fresh rows.
    """
    keeps = config.codes != "learnt" or config.is_frozen
    if not isinstance(task.pool, RowPool) or not keeps:
        return task
    most = config.reference_rows
    if config.anchor == "independent":
        most = max(4 * config.reference_rows, max_sampled_rows(task.x_obs[0].numel()))
    rows = task.pool.sample(most, as_generator(seeds, task.x_obs.device))
    return task.with_inputs(task.x_obs, TensorPool(rows))


MAX_STORED_ROWS = 200_000


class StoredPool(TensorPool):
    """Pool rows for the whole fit: the first `n_real` are the pool's own, the others made up."""

    def __init__(self, rows: Inputs, n_real: int) -> None:
        super().__init__(rows)
        self.n_real = n_real


def store_pool(config: GPNConfig, task: Task, pool: Pool, rng: torch.Generator) -> StoredPool:
    """At most `MAX_STORED_ROWS` of a tensor's, or a sample of an endless pool's; few rows where
    anchors are joint."""
    if isinstance(pool, StoredPool):
        return pool
    few = config.anchor != "independent"
    most = config.reference_rows if few else MAX_STORED_ROWS
    if isinstance(pool, TensorPool):
        order = torch.randperm(len(pool), generator=rng, device=rng.device)
        kept = pool.rows[order[:most]]
    else:
        kept = pool.draw(most if few else 4 * config.reference_rows, rng)
    if not config.made_up:
        return StoredPool(kept, len(kept))
    count = round(config.made_up / (1 - config.made_up) * len(kept))
    return StoredPool(torch.cat([kept, made_up(task.x_obs, count, rng)]), len(kept))
