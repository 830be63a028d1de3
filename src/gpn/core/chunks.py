"""Work on many rows in parts that fit the memory at hand."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from gpn.core.types import Inputs

NUMBERS_AT_ONCE = 4_000_000
NUMBERS_AT_ONCE_ON_A_GPU = 2**27
CHANNELS = 64  # of a usual convolution, at every pixel
BYTES_PER_NUMBER = 32  # a number in double precision, and copies of it on its way
T = TypeVar("T")


def chunk_size(numbers_per_row: int, device: torch.device, n_rows: int, n_pixels: int = 1) -> int:
    """How many of the rows to begin with, if each makes that many numbers.

    A few million numbers keep a processor's caches warm, those of an image's layers on the way
    among them; a GPU wants more to do at a time, as much as is free (which takes a while to ask:
    where one piece is enough, it is tried without).
    """
    if device.type == "cuda":
        if n_rows * numbers_per_row <= NUMBERS_AT_ONCE_ON_A_GPU:
            return max(1, n_rows)
        most = min(NUMBERS_AT_ONCE_ON_A_GPU, free_bytes(device) // BYTES_PER_NUMBER)
        return max(1, most // numbers_per_row)
    return max(1, NUMBERS_AT_ONCE // max(numbers_per_row, CHANNELS * n_pixels))


def free_bytes(device: torch.device) -> int:
    """What the GPU has left, and what torch holds of it without using it."""
    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + unused


def map_chunks(compute: Callable[[Inputs], T], rows: Inputs, size: int) -> list[T]:
    """`compute` on rows of `size` at a time; where memory runs out, on half as many from there on.

    Rows of no number are one part.
    """
    done: list[T] = []
    start = 0
    while start < len(rows) or not done:
        try:
            part = rows if size >= len(rows) else rows[start : start + size]
            done.append(compute(part))
            start += size
        except RuntimeError as error:
            if size == 1 or not _out_of_memory(error):
                raise
            size = min(size, len(rows)) // 2 or 1
    return done


def _out_of_memory(error: RuntimeError) -> bool:
    """A processor's memory has no error class of its own."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def joined(parts: list[Tensor], dim: int = 0) -> Tensor:
    """All parts as one tensor; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
