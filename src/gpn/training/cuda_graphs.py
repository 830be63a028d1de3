"""The forward and backward pass of a step as one CUDA graph: recorded once, then replayed.

A step of a small network is some hundreds of kernels that are over before the next one is asked
for. Replaying them costs one call. What a graph cannot hold stays outside of it, as ever: the
choice of rows, augmentation, the optimiser with its schedule, checks and checkpoints.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpn.training.state import Terms

Rows = tuple[Tensor, ...]

Result = tuple[list[str], Tensor]

Slopes = Callable[[Callable[[], Terms]], Result]

WARM_UP = 3


@dataclass(frozen=True)
class TrainStep:
    """A step in two parts: `rows()` chooses what it looks at, `terms(*rows)` computes.

    If it is `graph_safe`, the second part leaves the host alone: no shapes, branches or numbers
    that hang on values. `generators` is what it draws from, beside torch's own.
    """

    rows: Callable[[], Rows]
    terms: Callable[..., Terms]
    generators: Sequence[torch.Generator] = ()
    graph_safe: bool = True

    def __call__(self) -> Terms:
        return self.terms(*self.rows())


class GraphedStep:
    """Slopes of a feed's terms: the first steps as they are, the later ones from a recording."""

    def __init__(self, feed: TrainStep, slopes: Slopes) -> None:
        self.feed, self.slopes = feed, slopes
        self.steps = 0

    def __call__(self) -> Result:
        """The names of the terms, and their values once the gradients are known."""
        rows = self.feed.rows()
        with torch.cuda.device_of(rows[0]):
            return self._step(rows)

    def _step(self, rows: Rows) -> Result:
        self.steps += 1
        if self.steps <= WARM_UP:
            return on_side_stream(lambda: self._slopes_at(rows))
        if self.steps == WARM_UP + 1:
            self.rows = tuple(part.clone() for part in rows)
            self.replay, self.result = record(
                lambda: self._slopes_at(self.rows), self.feed.generators
            )
        for place, part in zip(self.rows, rows, strict=True):
            place.copy_(part)
        self.replay()
        names, values = self.result
        return names, values.clone()

    def _slopes_at(self, rows: Rows) -> Result:
        return self.slopes(lambda: self.feed.terms(*rows))


def supports_graphs(kind: str) -> bool:
    """Whether devices of this kind can repeat what they once did."""
    return kind == "cuda"


def on_side_stream(work: Callable[[], Result]) -> Result:
    """`work` on a stream of its own, as torch wants it before a recording."""
    stream, main = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(main)
    with torch.cuda.stream(stream):
        result = work()
    main.wait_stream(stream)
    return result


def record(
    work: Callable[[], Result], generators: Sequence[torch.Generator]
) -> tuple[Callable[[], None], Result]:
    """What repeats `work` on the device, and the place where each time leaves its result."""
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = work()
    return graph.replay, result
