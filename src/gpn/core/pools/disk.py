"""Pools in files: rows of a `.npy` array or of a Parquet table, read by index."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from gpn.core.checks import is_count
from gpn.core.pools.prefetch import Indices
from gpn.core.pools.readers import Source, open_rows
from gpn.core.pools.rows import PREFETCH_WINDOWS, RowPool

GROUPS_PER_WINDOW = 8
DRAWS_PER_WINDOW = 64  # of Parquet files


class DiskPool(RowPool):
    """A pool in a file of any size: a `.npy` array, a Parquet table or a memory-mapped array.

        pool = gpn.DiskPool("pool.npy")
        pool = gpn.DiskPool("pool.parquet", columns=["mass", "charge"])

    Memory holds a few draws, and the bounded sample that a fit takes: at most 100,000 rows for
    steps that need the same rows again (spectral axes, mixture weights, column scales); where
    nothing does (learnt codes, ensembles), every step gets fresh rows from disk.

    columns
        Of a Parquet table, in the order of the features; None: all of them. They must be numbers.
    block
        How many neighbouring rows of an array are read together. 1: independent random rows; more
        need fewer reads, for slow disks and files without order. Parquet files are read by row
        groups: a window of 64 draws mixes rows of eight random groups, which should have some
        10,000 rows each (`row_group_size` of the writer).
    prefetch
        A thread reads so many windows before the steps need them (0: no thread). The rows do not
        depend on it, and a checkpoint resumes them.
    """

    def __init__(
        self,
        source: Source,
        *,
        columns: list[str] | None = None,
        block: int = 1,
        prefetch: int = PREFETCH_WINDOWS,
        ahead: int | None = None,
    ) -> None:
        super().__init__(prefetch, ahead)
        self.rows = open_rows(source, columns)
        if len(self.rows) == 0:
            raise ValueError(f"the pool must hold at least one row, {source!s:.200} has none.")
        if not is_count(block):
            raise ValueError(f"block must be a whole number of rows, 1 or more, got {block!r}.")
        if self.rows.group_ends is not None and block > 1:
            raise ValueError(
                f"block is for arrays, Parquet files are read by row groups, got {block=}."
            )
        self.block = block
        self.draws_per_window = 1 if self.rows.group_ends is None else DRAWS_PER_WINDOW

    def __len__(self) -> int:
        return len(self.rows)

    def random_indices(self, count: int, rng: torch.Generator) -> Indices:
        if self.rows.group_ends is not None:
            return _from_groups(self.rows.group_ends, count, rng)
        if self.block == 1:
            return super().random_indices(count, rng)
        first = super().random_indices(-(-count // self.block), rng)
        return ((first[:, None] + torch.arange(self.block)) % len(self)).flatten()[:count]

    def read(self, indices: Indices) -> Tensor:
        order = np.argsort(indices.numpy())  # torch's threads would slow the training step down
        rows = self.rows.read(indices.numpy()[order])
        return torch.from_numpy(rows[np.argsort(order)])

    def _raw_chunks(self, max_rows: int) -> Iterator[Tensor]:
        yield from map(torch.from_numpy, self.rows.chunks(max_rows))


def _from_groups(ends: Int[Tensor, "g"], count: int, rng: torch.Generator) -> Indices:
    """Random rows of a few random groups in turn; a group's probability is its share of rows."""
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    rows = torch.randint(int(ends[-1]), (GROUPS_PER_WINDOW,), generator=rng, device=rng.device)
    groups = torch.searchsorted(ends, rows.cpu(), right=True)
    turn = groups[torch.arange(count) % GROUPS_PER_WINDOW]
    position = torch.rand(count, generator=rng, device=rng.device, dtype=torch.float64).cpu()
    return starts[turn] + (position * (ends - starts)[turn]).long()
