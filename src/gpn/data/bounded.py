"""Reading files that may be damaged or hostile: no claim in a file is believed before it is met.

Memory grows with the bytes that are really there, never with what a header promises.
"""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from gpn.data.store import DataError, Source

CHUNK = 1 << 20  # bytes read at a time
LIMIT = 4 << 30  # no array of the known data sets comes near
MAX_BYTES, MAX_TIMES = 256 << 20, 100  # what may come of a packed file: the larger of the two


class Readable(Protocol):
    """A stream of bytes: a file, or a member of an archive."""

    def read(self, size: int, /) -> bytes: ...


@contextmanager
def parsing(path: Path, source: Source) -> Iterator[None]:
    """Whatever a parser raises over the content of `path` leaves as a DataError that names it."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # parsers of damaged files raise anything at all
        raise DataError(
            f"{path} must be a complete file of its kind, got one that is damaged or of another "
            f"kind ({type(error).__name__}: {error}); get it again from {source}."
        ) from error


@contextmanager
def opened(path: Path, source: Source) -> Iterator[BufferedReader]:
    """`path` open for reading, and for `parsing`."""
    with path.open("rb") as file, parsing(path, source):
        yield file


def read_exactly(stream: Readable, size: int) -> bytearray:
    """The next `size` bytes, in chunks, so that a false `size` allocates nothing."""
    if size > LIMIT:
        raise ValueError(f"there must be at most {LIMIT} bytes, got a claim of {size}")
    content = bytearray()
    while len(content) < size:
        chunk = stream.read(min(CHUNK, size - len(content)))
        if not chunk:
            raise EOFError(f"{size} bytes must follow, got {len(content)}")
        content += chunk
    return content


def read_whole(stream: Readable, size: int) -> bytearray:
    """The `size` bytes that must be all there is left."""
    content = read_exactly(stream, size)
    if stream.read(1):
        raise ValueError(f"{size} bytes must be the rest of the file, got more")
    return content


def most_unfolded(path: Path) -> int:
    """How many bytes a packed file may unfold to before it is taken for a bomb."""
    return max(MAX_BYTES, MAX_TIMES * path.stat().st_size)


def check_unfolding(path: Path, size: int) -> None:
    """That `size` bytes can be what is packed in the file, and not a decompression bomb."""
    if size > most_unfolded(path):
        raise ValueError(
            f"a packed file of this size must unfold to at most {most_unfolded(path)} bytes, got a "
            f"claim of {size}"
        )


def check_compression(member: zipfile.ZipInfo) -> None:
    """That `member` grows by a bounded factor: bzip2 and lzma can make gigabytes of a kilobyte."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename} must be stored or deflated")
