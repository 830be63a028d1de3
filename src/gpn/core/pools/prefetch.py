"""A step's pool rows: drawn when they are asked for, or read by a thread before that."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch
from jaxtyping import Int
from torch import Tensor

from gpn.core.types import Inputs

Numbers = Int[Tensor, "m"]

Pick = Callable[[int, torch.Generator], Numbers]

Read = Callable[[Numbers], Inputs]


class RowStream(ABC):
    """Draws of equally many pool rows, one after the other."""

    @abstractmethod
    def next(self, rng: torch.Generator) -> Inputs:
        """The rows of the next step, on the device of `rng`, which is the step's own."""

    @property
    def streams(self) -> Sequence["PrefetchedRows"]:
        """What moves on with each draw, beside the step's own `rng`."""
        return ()

    def close(self) -> None:
        """End what runs in the background."""
        return


class DirectRows(RowStream):
    """Rows drawn in the step that asks for them, by its own randomness."""

    def __init__(self, draw: Callable[[torch.Generator], Inputs]) -> None:
        self.draw = draw

    def next(self, rng: torch.Generator) -> Inputs:
        return self.draw(rng)


class PrefetchedRows(RowStream):
    """Windows of a few draws each, whose row numbers `pick` draws from a generator of their own.

    Only `read` runs in the thread, and what it raises is raised by the step that wants the rows.
    Which rows come therefore hangs on the generator alone, not on how far ahead they are read;
    with `ahead` 0 there is no thread. The state is the generator before the current window, and
    how many of its draws are used up.
    """

    def __init__(
        self, pick: Pick, read: Read, m: int, per_window: int, rng: torch.Generator, ahead: int
    ) -> None:
        self.pick, self.read, self.m, self.per_window = pick, read, m, per_window
        self.rng, self.ahead = rng, ahead
        self.reader: ThreadPoolExecutor | None = None
        self.waiting: deque[tuple[Tensor, Future[Inputs]]] = deque()
        self.before, self.window, self.used = rng.get_state(), torch.empty(0), 0

    def next(self, rng: torch.Generator) -> Inputs:
        if self.used in (0, self.per_window):
            self._next_window()
        self.used += 1
        return self.window[(self.used - 1) * self.m : self.used * self.m].to(rng.device)

    def _next_window(self) -> None:
        while len(self.waiting) <= self.ahead:
            self.waiting.append((self.rng.get_state(), self._reading()))
        self.before, future = self.waiting.popleft()
        self.window, self.used = future.result(), 0

    def _reading(self) -> "Future[Inputs]":
        numbers = self.pick(self.per_window * self.m, self.rng)
        if self.ahead == 0:
            done: Future[Inputs] = Future()
            done.set_result(self.read(numbers))
            return done
        if self.reader is None:
            self.reader = ThreadPoolExecutor(1, "gpn-pool")
        return self.reader.submit(self.read, numbers)

    @property
    def streams(self) -> Sequence["PrefetchedRows"]:
        return (self,)

    def get_state(self) -> Tensor:
        return torch.cat([torch.tensor([self.used], dtype=torch.uint8), self.before])

    def set_state(self, state: Tensor) -> None:
        """Read the window again that the state was taken in."""
        self.close()
        used, self.before = int(state[0]), state[1:].clone()
        self.rng.set_state(self.before)
        if used > 0:
            self._next_window()
        self.used = used

    def close(self) -> None:
        self.waiting.clear()
        if self.reader is not None:
            self.reader.shutdown(wait=True, cancel_futures=True)
            self.reader = None


@contextmanager
def ended(streams: Iterable[object]) -> Iterator[None]:
    """No draws among `streams` run in the background after this."""
    try:
        yield
    finally:
        for stream in streams:
            if isinstance(stream, RowStream):
                stream.close()
