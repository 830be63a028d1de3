"""Small files in official formats cannot have official checksums, so tests switch these off."""

import dataclasses
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from gpn.data import Source, image_set


def without_md5s(source: Source) -> Source:
    return dataclasses.replace(source, files=dict.fromkeys(source.files, ()))


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The official image sets with any content."""
    for name, (source, reader) in image_set.OFFICIAL.items():
        monkeypatch.setitem(image_set.OFFICIAL, name, (without_md5s(source), reader))


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
