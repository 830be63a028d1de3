"""Where unlabeled rows come from: memory, a sampler, a data set or a file."""

from gpn.core.pools.base import Pool, SamplerPool, TensorPool, box
from gpn.core.pools.disk import DiskPool
from gpn.core.pools.rows import DatasetPool, RowPool

__all__ = ["DatasetPool", "DiskPool", "Pool", "RowPool", "SamplerPool", "TensorPool", "box"]
