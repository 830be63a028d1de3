"""The forward and backward pass of a step as one CUDA graph: captured once, then replayed.

A step of a small network is hundreds of kernels, each over before the next one is launched; a
replay launches them together. What a graph cannot hold stays outside: the choice of rows,
augmentation, the optimiser with its schedule, checks and checkpoints.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpn.training.state import LossTerms, Terms

Rows = tuple[Tensor, ...]
WARM_UP_STEPS = 3


@dataclass(frozen=True)
class TrainStep:
    """One step in two halves: `rows()` picks what it sees, `terms(*rows)` computes its loss terms.

    A `graph_safe` step can be captured: no shape, branch or number in `terms` depends on values.
    `generators` are those it draws from, in addition to torch's own.
    """

    rows: Callable[[], Rows]
    terms: Callable[..., Terms]
    generators: Sequence[torch.Generator] = ()
    graph_safe: bool = True


class GraphedStep:
    """A step's backward pass: the first few as they are, the later ones replayed from a graph."""

    def __init__(
        self, backward: Callable[[Rows], LossTerms], generators: Sequence[torch.Generator]
    ) -> None:
        self.backward, self.generators = backward, generators
        self.steps = 0

    def __call__(self, rows: Rows) -> LossTerms:
        with torch.cuda.device_of(rows[0]):
            return self._step(rows)

    def _step(self, rows: Rows) -> LossTerms:
        self.steps += 1
        if self.steps <= WARM_UP_STEPS:
            return on_side_stream(lambda: self.backward(rows))
        if self.steps == WARM_UP_STEPS + 1:
            self.rows = tuple(part.clone() for part in rows)
            self.replay, self.terms = capture(lambda: self.backward(self.rows), self.generators)
        for buffer, part in zip(self.rows, rows, strict=True):
            buffer.copy_(part)
        self.replay()
        return LossTerms(self.terms.names, self.terms.values.clone())


def supports_graphs(device_type: str) -> bool:
    """Whether devices of this type can capture graphs."""
    return device_type == "cuda"


def on_side_stream(work: Callable[[], LossTerms]) -> LossTerms:
    """`work` on a stream of its own, as torch asks for before a capture."""
    stream, main = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(main)
    with torch.cuda.stream(stream):
        terms = work()
    main.wait_stream(stream)
    return terms


def capture(
    work: Callable[[], LossTerms], generators: Sequence[torch.Generator]
) -> tuple[Callable[[], None], LossTerms]:
    """A function that repeats `work` on the device, and the tensors that it writes to each time."""
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        terms = work()
    return graph.replay, terms
