"""What torch has one of in a process, and a fit borrows for a while.

Fits in several threads take turns at it, so that each gives what it would alone.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_turns = threading.RLock()


def _new_turns() -> None:
    global _turns
    _turns = threading.RLock()


if hasattr(os, "register_at_fork"):  # whoever had its turn in the parent is not in the child
    os.register_at_fork(after_in_child=_new_turns)


@contextmanager
def exclusive_torch_state() -> Iterator[None]:
    """No other thread's fit goes on meanwhile; one's own may be inside of another."""
    with _turns:
        yield


@contextmanager
def seeded_global_rng(rng: torch.Generator) -> Iterator[list[torch.Generator]]:
    """Torch's global generators, seeded by `rng` for a while and then put back as they were.

    For parts that can draw from nothing else: nn.Dropout, GPyTorch. A GPU that nobody has used
    yet is left alone.
    """
    seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
    on_gpus = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    generators = [torch.default_generator, *on_gpus]
    with exclusive_torch_state():
        before = [generator.get_state() for generator in generators]
        try:
            for generator in generators:
                generator.manual_seed(seed)
            yield generators
        finally:
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Float32 products with factors rounded to TF32, unless `precision` is "float32".

    Where a user has chosen by torch's newer names, which do not mix with these, that stands.
    """
    with exclusive_torch_state():
        if precision == "float32":
            yield
            return
        try:
            before = torch.get_float32_matmul_precision()
        except RuntimeError:
            yield
            return
        torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
