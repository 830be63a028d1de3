"""Answers for rows that are too many for memory, piece by piece."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from torch.utils.data import Dataset

from gpn.core.pools.rows import RowPool
from gpn.core.task import lazy_pool
from gpn.training.progress import progress_bar

CHUNK_ROWS = 20_000

M = TypeVar("M", bound=Callable[..., Any])


def in_chunks(method: M) -> M:
    """A method of rows that takes them from disk, too, and then some at once.

    From disk come a memory-mapped array, a torch Dataset and a `gpn.DiskPool`; the answers of all
    pieces, one array or several, are put together.
    """

    @functools.wraps(method)
    def answers(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(X, np.memmap | Dataset | RowPool):
            return method(self, X, *args, **options)
        rows = lazy_pool(X)
        assert isinstance(rows, RowPool)
        found: list[Any] = []
        with progress_bar("rows", show=True if self.verbose else None) as report:
            for piece in rows.chunks(CHUNK_ROWS):
                found.append(method(self, piece.numpy(), *args, **options))
                report(min(len(found) * CHUNK_ROWS, len(rows)), len(rows), {})
        return _joined(found)

    return answers  # type: ignore[return-value]


def _joined(found: list[Any]) -> Any:
    if isinstance(found[0], tuple):
        return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))
    return np.concatenate(found)
