"""Streams of pool rows, one batch per training step: drawn on demand, or prefetched by a thread."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch
from jaxtyping import Int
from torch import Tensor

from gpn.core.types import Inputs

Indices = Int[Tensor, "m"]


class RowStream(ABC):
    """Batches of equally many pool rows, one after the other."""

    @abstractmethod
    def next(self, rng: torch.Generator) -> Inputs:
        """The rows of the next step, on the device of `rng`, the step's generator."""

    @property
    def streams(self) -> Sequence["PrefetchedRows"]:
        """The state of the stream beyond the step's generator, for checkpoints."""
        return ()

    def close(self) -> None:
        """End all background work."""
        return


class DirectRows(RowStream):
    """Rows that the step draws itself, with its own generator."""

    def __init__(self, draw: Callable[[torch.Generator], Inputs]) -> None:
        self.draw = draw

    def next(self, rng: torch.Generator) -> Inputs:
        return self.draw(rng)


class PrefetchedRows(RowStream):
    """Rows that a thread reads `prefetch` windows in advance, each of `draws_per_window` batches.

    `random_indices` draws indices from `rng` in the training thread, and only `read` runs in the
    background (without a thread if `prefetch` is 0). So the rows depend on the generator alone, and
    not on how far in advance they are read. An error of `read` is raised by the step that needs
    the rows. The state is the generator before the current window, and the number of its batches
    that are used up.
    """

    def __init__(
        self,
        random_indices: Callable[[int, torch.Generator], Indices],
        read: Callable[[Indices], Inputs],
        m: int,
        *,
        draws_per_window: int,
        rng: torch.Generator,
        prefetch: int,
    ) -> None:
        self.random_indices, self.read, self.m = random_indices, read, m
        self.draws_per_window, self.rng, self.prefetch = draws_per_window, rng, prefetch
        self.thread: ThreadPoolExecutor | None = None
        self.queue: deque[tuple[Tensor, Future[Inputs]]] = deque()
        self.before, self.window, self.used = rng.get_state(), torch.empty(0), 0

    def next(self, rng: torch.Generator) -> Inputs:
        if self.used in (0, self.draws_per_window):
            self._next_window()
        self.used += 1
        return self.window[(self.used - 1) * self.m : self.used * self.m].to(rng.device)

    def _next_window(self) -> None:
        while len(self.queue) <= self.prefetch:
            self.queue.append((self.rng.get_state(), self._start_reading()))
        self.before, future = self.queue.popleft()
        self.window, self.used = future.result(), 0

    def _start_reading(self) -> "Future[Inputs]":
        indices = self.random_indices(self.draws_per_window * self.m, self.rng)
        if self.prefetch == 0:
            done: Future[Inputs] = Future()
            done.set_result(self.read(indices))
            return done
        if self.thread is None:
            self.thread = ThreadPoolExecutor(1, "gpn-pool")
        return self.thread.submit(self.read, indices)

    @property
    def streams(self) -> Sequence["PrefetchedRows"]:
        return (self,)

    def get_state(self) -> Tensor:
        return torch.cat([torch.tensor([self.used], dtype=torch.uint8), self.before])

    def set_state(self, state: Tensor) -> None:
        """Continue from `state`: the window that it was taken in is read again."""
        self.close()
        used, self.before = int(state[0]), state[1:].clone()
        self.rng.set_state(self.before)
        if used > 0:
            self._next_window()
        self.used = used

    def close(self) -> None:
        self.queue.clear()
        if self.thread is not None:
            self.thread.shutdown(wait=True, cancel_futures=True)
            self.thread = None


@contextmanager
def closing_streams(streams: Iterable[object]) -> Iterator[None]:
    """Close every `RowStream` among `streams` at the end."""
    try:
        yield
    finally:
        for stream in streams:
            if isinstance(stream, RowStream):
                stream.close()
