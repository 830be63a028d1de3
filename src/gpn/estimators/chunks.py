"""Predictions for rows that are too many for memory, chunk by chunk."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset

from gpn.core.pools.rows import RowPool
from gpn.core.task import lazy_pool
from gpn.training.progress import progress_bar
from gpn.training.torch_state import in_threads

CHUNK_ROWS = 20_000
BLOCK_ROWS = 4096  # of a thread: what it computes of them stays in its core's cache

M = TypeVar("M", bound=Callable[..., Any])


def in_chunks(method: M) -> M:
    """Let a method of rows take them from disk as well, `CHUNK_ROWS` at a time.

    Rows on disk are a memory-mapped array, a torch Dataset or a `gpn.DiskPool`. The results of all
    chunks are concatenated: arrays, or tuples of arrays.
    """

    @functools.wraps(method)
    def chunked(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(X, np.memmap | Dataset | RowPool):
            return method(self, X, *args, **options)
        rows = lazy_pool(X)
        assert isinstance(rows, RowPool)
        results: list[Any] = []
        with progress_bar("rows", show=True if self.verbose else None) as on_progress:
            for chunk in rows.chunks(CHUNK_ROWS):
                results.append(method(self, chunk.numpy(), *args, **options))
                on_progress(min(len(results) * CHUNK_ROWS, len(rows)), len(rows), {})
        return _joined(results)

    return chunked  # type: ignore[return-value]


def in_blocks(compute: Callable[[Any], Any], rows: Any) -> Any:
    """`compute` of blocks of rows in threads; results are concatenated as by `in_chunks`."""
    if len(rows) <= BLOCK_ROWS:
        return compute(rows)
    threads = torch.get_num_threads()
    count = threads * -(-len(rows) // (threads * BLOCK_ROWS))  # as many for each thread
    size = -(-len(rows) // count)
    blocks = [rows[start : start + size] for start in range(0, len(rows), size)]
    return _joined(in_threads(compute, blocks))


def _joined(results: list[Any]) -> Any:
    """Arrays end to end; tuples, with names or without, and None field by field."""
    first = results[0]
    if first is None:
        return None
    if not isinstance(first, tuple):
        return np.concatenate(results)
    fields = [_joined(list(parts)) for parts in zip(*results, strict=True)]
    return tuple(fields) if type(first) is tuple else type(first)(*fields)
