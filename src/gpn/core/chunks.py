"""Work on many rows in chunks that fit in memory."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from gpn.core.types import Inputs

CHUNK_NUMBERS = 4_000_000  # on a CPU: they stay in its caches
GPU_CHUNK_NUMBERS = 2**27
CONV_CHANNELS = 64  # numbers that a usual convolution holds per pixel
BYTES_PER_NUMBER = 32  # double precision, with temporary copies
T = TypeVar("T")


def chunk_size(numbers_per_row: int, device: torch.device, n_rows: int, n_pixels: int = 1) -> int:
    """The number of rows to start with, if each row makes `numbers_per_row` numbers.

    On a CPU the layers of an image count, too (`n_pixels`). A GPU takes as much as fits in its free
    memory; asking for that is slow, so that work for one chunk starts without it.
    """
    if device.type == "cuda":
        if n_rows * numbers_per_row <= GPU_CHUNK_NUMBERS:
            return max(1, n_rows)
        numbers = min(GPU_CHUNK_NUMBERS, free_bytes(device) // BYTES_PER_NUMBER)
        return max(1, numbers // numbers_per_row)
    return max(1, CHUNK_NUMBERS // max(numbers_per_row, CONV_CHANNELS * n_pixels))


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU, including what torch has reserved and does not use."""
    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + unused


def map_chunks(compute: Callable[[Inputs], T], rows: Inputs, size: int) -> list[T]:
    """`compute` on chunks of `size` rows; where memory runs out, the size halves from there on.

    No rows at all are one empty chunk.
    """
    results: list[T] = []
    start = 0
    while start < len(rows) or not results:
        try:
            chunk = rows if size >= len(rows) else rows[start : start + size]
            results.append(compute(chunk))
            start += size
        except RuntimeError as error:
            if size == 1 or not _is_out_of_memory(error):
                raise
            size = min(size, len(rows)) // 2 or 1
    return results


def _is_out_of_memory(error: RuntimeError) -> bool:
    """On a CPU, torch has no error class for it."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def join_chunks(chunks: list[Tensor], dim: int = 0) -> Tensor:
    """All chunks as one tensor; a single chunk is not copied."""
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim)
