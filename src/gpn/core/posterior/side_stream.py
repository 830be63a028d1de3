"""A look at something while a GPU is at work on something else."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch

from gpn.core.types import Inputs

WORTH_A_STREAM = 2**20


def beside(rows: Inputs) -> Callable[[], AbstractContextManager[None]]:
    """A look at these rows that a GPU takes beside what it is asked from now on.

    Few rows are seen sooner than a second stream has begun.
    """
    if rows.device.type != "cuda" or rows.numel() < WORTH_A_STREAM:
        return nullcontext
    return partial(_after, torch.cuda.current_stream(rows.device).record_event(), rows.device)


@contextmanager
def _after(event: torch.cuda.Event, device: torch.device) -> Iterator[None]:
    stream = torch.cuda.Stream(device)
    stream.wait_event(event)
    with torch.cuda.stream(stream):
        yield
