"""What reading may cost."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest


@contextmanager
def _little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.fixture
def little_memory() -> Callable[[], AbstractContextManager[None]]:
    """A block that may allocate 8 MiB at most: two chunks of a reader, and some room."""
    return _little_memory
