"""Reading files that may be damaged or hostile.

Memory grows with the bytes that are there, never with the sizes that a header claims.
"""

import hashlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from gpn.data.store import DataError, Source, check_md5

CHUNK_BYTES = 1 << 20
MAX_ARRAY_BYTES = 4 << 30  # more than any array of the known data sets
MAX_DECOMPRESSED_BYTES, MAX_DECOMPRESSION_RATIO = 256 << 20, 100  # the larger of the two


class Readable(Protocol):
    """A stream of bytes: a file, or a member of an archive."""

    def read(self, size: int, /) -> bytes: ...


@contextmanager
def parsing(path: Path, source: Source) -> Iterator[None]:
    """Turn whatever a parser raises over `path` into a DataError that names the file."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # parsers of damaged files raise anything at all
        raise DataError(
            f"{path} must be a complete file of its kind, got one that is damaged or of another "
            f"kind ({type(error).__name__}: {error!s:.300}); get it again from {source}."
        ) from error


@contextmanager
def opened(path: Path, source: Source) -> Iterator[BufferedReader]:
    """`path` open for reading, and for `parsing`."""
    with path.open("rb") as file, parsing(path, source):
        yield file


def check_file(source: Source, path: Path, stream: BufferedReader) -> None:
    """Raise unless the open file at `path` has an official checksum; go back to its start."""
    digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))
    check_md5(source, path.name, path, digest.hexdigest())
    stream.seek(0)


def read_exactly(stream: Readable, size: int) -> bytearray:
    """The next `size` bytes, in chunks, so that a false `size` allocates nothing."""
    if size > MAX_ARRAY_BYTES:
        raise ValueError(f"there must be at most {MAX_ARRAY_BYTES} bytes, got a claim of {size}")
    content = bytearray()
    while len(content) < size:
        chunk = stream.read(min(CHUNK_BYTES, size - len(content)))
        if not chunk:
            raise EOFError(f"{size} bytes must follow, got {len(content)}")
        content += chunk
    return content


def read_rest(stream: Readable, size: int) -> bytearray:
    """The next `size` bytes, which must be the rest of the stream."""
    content = read_exactly(stream, size)
    if stream.read(1):
        raise ValueError(f"{size} bytes must be the rest of the file, got more")
    return content


def max_decompressed_bytes(path: Path) -> int:
    """The size that a compressed file may decompress to before it counts as a bomb."""
    return max(MAX_DECOMPRESSED_BYTES, MAX_DECOMPRESSION_RATIO * path.stat().st_size)


def check_decompressed_size(path: Path, size: int) -> None:
    """Raise if `size` bytes from this compressed file would be a decompression bomb."""
    if size > max_decompressed_bytes(path):
        raise ValueError(
            f"a file of this size must decompress to at most {max_decompressed_bytes(path)} bytes, "
            f"got a claim of {size}"
        )


def check_member(path: Path, member: zipfile.ZipInfo) -> None:
    """Raise if a zip's member would be a bomb; bzip2 and lzma make gigabytes of a kilobyte."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename} must be stored or deflated")
    check_decompressed_size(path, member.file_size)
