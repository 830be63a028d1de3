"""Torch's global state (random generators, matmul precision, threads), changed and restored.

Fits in several threads take turns, so that each computes what it would compute alone.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from threadpoolctl import (  # type: ignore[import-untyped]
    ThreadpoolController,
    threadpool_limits,
)

A = TypeVar("A")
B = TypeVar("B")

_lock = threading.RLock()
_blas_lock = threading.Lock()
_blas_limits: list[Any] = []  # one for each computation that runs in threads


def _renew_lock() -> None:
    global _lock, _blas_lock
    _lock, _blas_lock = threading.RLock(), threading.Lock()


if hasattr(os, "register_at_fork"):  # the thread that held the lock does not exist in the child
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def exclusive_torch_state() -> Iterator[None]:
    """No other thread's fit runs meanwhile; the same thread may enter again."""
    with _lock:
        yield


@contextmanager
def seeded_global_rng(rng: torch.Generator) -> Iterator[list[torch.Generator]]:
    """Torch's global generators, seeded by `rng` and restored at the end.

    For modules that can draw from nothing else: nn.Dropout, GPyTorch. A GPU that was not used
    before is left alone.
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
    """Float32 products in TF32 and the fastest convolutions, unless `precision` is "float32".

    A choice that the user made through torch's newer settings, which exclude these, stands.
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
        benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
        torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
            torch.backends.cudnn.benchmark = benchmark


@contextmanager
def one_thread() -> Iterator[None]:
    """Small problems gain nothing from threads, and threads that wait for a busy core spin.

    Those of numpy and scipy too, whatever thread calls these meanwhile.
    """
    with exclusive_torch_state(), threadpool_limits(1, user_api="blas"):
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def side_by_side(first: Callable[[], Any], *others: Callable[[], Any]) -> list[Any]:
    """The results of computations that do not depend on each other.

    Each has one of torch's threads, and together they have as many as torch would use. `first` runs
    in this thread, and may train; then this thread takes from the others what none has begun.
    """
    workers = torch.get_num_threads() - 1
    with one_thread():
        if workers < 1 or not others:
            return [first(), *(other() for other in others)]
        with ThreadPoolExecutor(workers) as executor:
            submitted = [executor.submit(other) for other in others]
            found = [first()]
            mine = {
                number: others[number]()
                for number in reversed(range(len(others)))  # the last ones are begun last
                if submitted[number].cancel()
            }
            rest = enumerate(submitted)
            return [*found, *(mine[i] if i in mine else one.result() for i, one in rest)]


def in_threads(compute: Callable[[A], B], chunks: Sequence[A]) -> list[B]:
    """`compute` of each chunk, in as many threads as torch has, each of which computes alone.

    Fits and predictions of other threads go on meanwhile: what this changes, it restores.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(chunks) < 2:
        return [compute(chunk) for chunk in chunks]
    with _one_blas_thread():
        try:
            with ThreadPoolExecutor(threads, initializer=lambda: torch.set_num_threads(1)) as pool:
                return list(pool.map(compute, chunks))
        finally:
            torch.set_num_threads(threads)  # what threads that start later are told


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """One thread for each product of numpy and scipy, until the last of all who ask for it ends."""
    with _blas_lock:
        limit = None if _blas_limits else _controller().limit(limits=1, user_api="blas")
        _blas_limits.append(limit)
    try:
        yield
    finally:
        with _blas_lock:
            if len(_blas_limits) == 1:
                _blas_limits[0].restore_original_limits()
                _blas_limits.clear()
            else:
                _blas_limits.pop()


@cache
def _controller() -> Any:
    """The libraries that compute in threads; finding them takes milliseconds."""
    return ThreadpoolController()
