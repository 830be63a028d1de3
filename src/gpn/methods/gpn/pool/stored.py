"""Pool rows that a fit stores, so that axes, weights and anchors there are computed once."""

import torch

from gpn.core.pools.base import Pool, TensorPool, max_sampled_rows
from gpn.core.pools.rows import RowPool
from gpn.core.task import Task
from gpn.core.types import Inputs, as_generator
from gpn.methods.gpn.config import ResolvedConfig
from gpn.methods.gpn.pool.synthetic import synthetic_outliers

MAX_STORED_ROWS = 200_000


class StoredPool(TensorPool):
    """Pool rows for the whole fit: the first `n_real` are the pool's own, the others synthetic."""

    def __init__(self, rows: Inputs, n_real: int) -> None:
        super().__init__(rows)
        self.n_real = n_real


def store_pool(config: ResolvedConfig, task: Task, rng: torch.Generator) -> StoredPool:
    """At most 200,000 rows of a tensor, or a sample of an endless pool; with synthetic outliers
    where the configuration asks for them. Joint and conditioned anchors need `reference_rows`."""
    pool: Pool = task.required_pool("a GPN")
    if isinstance(pool, StoredPool):
        return pool
    few = config.anchor != "independent"
    most = config.reference_rows if few else MAX_STORED_ROWS
    if isinstance(pool, TensorPool):
        order = torch.randperm(len(pool), generator=rng, device=rng.device)
        rows = pool.rows[order[:most]]
    else:
        rows = pool.draw(most if few else 4 * config.reference_rows, rng)
    if not config.synthetic_ood:
        return StoredPool(rows, len(rows))
    count = round(config.synthetic_ood / (1 - config.synthetic_ood) * len(rows))
    return StoredPool(torch.cat([rows, synthetic_outliers(task.x_obs, count, rng)]), len(rows))


def with_pool_in_memory(config: ResolvedConfig, task: Task, seeds: torch.Generator) -> Task:
    """The task with a sample of a pool that is not in memory, where the fit stores pool rows.

    The sample has no duplicates and is taken once, for all training runs of the fit: 100,000 rows,
    or as many as hold 50 million numbers, but at least four times `reference_rows`. Learnt codes
    store nothing: their steps read fresh rows.
    """
    stores = config.codes != "learnt" or config.is_frozen
    if not isinstance(task.pool, RowPool) or not stores:
        return task
    most = config.reference_rows
    if config.anchor == "independent":
        most = max(4 * config.reference_rows, max_sampled_rows(task.x_obs[0].numel()))
    rows = task.pool.sample(most, as_generator(seeds, task.x_obs.device))
    return task.with_inputs(task.x_obs, TensorPool(rows))
