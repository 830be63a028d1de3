"""Pools in files: rows of a `.npy` array or of a Parquet table, read by number."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from gpn.core.pools.base import AHEAD, RowPool
from gpn.core.pools.prefetch import Numbers
from gpn.core.pools.readers import Source, open_rows

GROUPS_PER_WINDOW = 8

DRAWS_PER_WINDOW = 64


class DiskPool(RowPool):
    """A pool in a file, of any size: a `.npy` array, a Parquet table or a memory-mapped array.

        pool = gpn.DiskPool("pool.npy")
        pool = gpn.DiskPool("pool.parquet", columns=["mass", "charge"])

    No more is held than a few draws, and the bounded sample that a fit takes of it: at most
    100,000 rows for what needs the same rows again and again (spectral axes, mixture weights,
    column scales); fresh rows from disk at each step where nothing does (learnt codes, ensembles).
    A thread reads `ahead` windows before the step (0: the step reads them itself); the rows are the
    same either way, and a checkpoint takes them up where they were.

    columns
        Of a Parquet table, in the order of the features; None: all of them. They must be numbers.
    block
        How many neighbouring rows of an array are read together: 1 is random rows; more are fewer
        reads, for slow disks and rows that are in no order. Of Parquet files whole row groups are
        read: a window of 64 draws mixes rows of eight random ones, which should be of some 10,000
        rows (`row_group_size` where the file is written).
    """

    def __init__(
        self,
        source: Source,
        *,
        columns: list[str] | None = None,
        block: int = 1,
        ahead: int = AHEAD,
    ) -> None:
        super().__init__(ahead)
        self.rows = open_rows(source, columns)
        if len(self.rows) == 0:
            raise ValueError(f"the pool must hold at least one row, {source!s:.200} has none.")
        if isinstance(block, bool) or not isinstance(block, int) or block < 1:
            raise ValueError(f"block must be a whole number of rows, 1 or more, got {block!r}.")
        if self.rows.groups is not None and block > 1:
            raise ValueError(
                f"block is for arrays, of Parquet files row groups are read, got {block=}."
            )
        self.block = block
        self.per_window = 1 if self.rows.groups is None else DRAWS_PER_WINDOW

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, count: int, rng: torch.Generator) -> Numbers:
        if self.rows.groups is not None:
            return _from_groups(self.rows.groups, count, rng)
        if self.block == 1:
            return super().pick(count, rng)
        first = super().pick(-(-count // self.block), rng)
        return ((first[:, None] + torch.arange(self.block)) % len(self)).flatten()[:count]

    def read(self, numbers: Numbers) -> Tensor:
        order = np.argsort(numbers.numpy())  # numpy: torch's threads would disturb the step's
        rows = self.rows.read(numbers.numpy()[order])
        return torch.from_numpy(rows[np.argsort(order)])

    def _in_order(self, most: int) -> Iterator[Tensor]:
        yield from map(torch.from_numpy, self.rows.pieces(most))


def _from_groups(ends: Int[Tensor, "g"], count: int, rng: torch.Generator) -> Numbers:
    """Random rows of a few random groups in turn; a group is as likely as it is long."""
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    rows = torch.randint(int(ends[-1]), (GROUPS_PER_WINDOW,), generator=rng, device=rng.device)
    groups = torch.searchsorted(ends, rows.cpu(), right=True)
    turn = groups[torch.arange(count) % GROUPS_PER_WINDOW]
    share = torch.rand(count, generator=rng, device=rng.device, dtype=torch.float64).cpu()
    return starts[turn] + (share * (ends - starts)[turn]).long()
