"""The check that rows are finite, at little cost to a GPU."""

from collections.abc import Callable
from functools import partial
from math import isfinite

import torch
from torch import Tensor

from gpn.core.checks import require_finite
from gpn.core.types import Inputs

MIN_NUMBERS_FOR_STREAM = 2**20  # fewer are checked sooner than a second stream starts


def check_rows(x: Inputs) -> None:
    """Raise where a row is not finite. One sum shows it: it is finite if all numbers are."""
    if not isfinite(_in_memory_order(x.detach()).sum()):
        require_finite(x, "x")


def deferred_check(x: Inputs) -> Callable[[], None]:
    """`check_rows` as a call for later; a GPU runs it in parallel to work queued before that call.

    The event is recorded now: the check waits for the rows, and not for that work.
    """
    if x.device.type != "cuda" or x.numel() < MIN_NUMBERS_FOR_STREAM:
        return partial(check_rows, x)
    event = torch.cuda.current_stream(x.device).record_event()

    def check() -> None:
        stream = torch.cuda.Stream(x.device)
        stream.wait_event(event)
        with torch.cuda.stream(stream):
            check_rows(x)

    return check


def _in_memory_order(x: Inputs) -> Tensor:
    """The same numbers with axes in the order of memory, which a GPU sums many times faster."""
    if x.is_contiguous():
        return x
    return x.permute(sorted(range(x.ndim), key=x.stride, reverse=True))
