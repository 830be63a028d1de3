"""MATLAB 5 files as far as plain arrays go: named arrays of bytes and of doubles, packed or not.

After 128 bytes of header a file is elements, each a tag (kind, bytes) and its content: a matrix,
or a zlib stream that holds one. A matrix is elements again: flags, dimensions, name, numbers. Sizes
are believed as far as bytes follow them; whatever else a file holds is passed over unread.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from gpn.data.bounded import CHUNK, Readable, read_exactly

MATRIX, COMPRESSED = 14, 15
TEXT, SIZES, FLAGS = 1, 5, 6
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
CLASSES = {6: "double", 9: "uint8"}
OTHERS = {1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse", 7: "single", 8: "int8"}
MAX_AXES, LONGEST_NAME = 32, 64


@dataclass(frozen=True)
class Matrix:
    """One variable: its name and class, its shape, and where its numbers come from."""

    name: str
    kind: str
    shape: tuple[int, ...]
    stream: Readable
    order: str

    def values(self) -> "np.ndarray[Any, Any]":
        """The numbers, in the order of their axes; a class may be stored in a smaller type."""
        if self.kind not in CLASSES.values():
            raise ValueError(f"{self.name} must be of bytes or doubles, got {self.kind}")
        stored, content = _element(self.stream, self.order, math.prod(self.shape) * 8)
        if stored not in NUMBERS:
            raise ValueError(f"{self.name} must hold real numbers, got type {stored}")
        flat = np.frombuffer(content, np.dtype(self.order + NUMBERS[stored]))
        wide = flat.astype("u1" if self.kind == "uint8" else "f8")
        return wide.reshape(self.shape, order="F")


def matrices(file: BinaryIO) -> Iterator[Matrix]:
    """The variables of a file one after the other; numbers must be read before the next one."""
    header = read_exactly(file, 128)
    order = {b"IM": "<", b"MI": ">"}.get(bytes(header[126:]), "")
    if not order or struct.unpack(f"{order}H", header[124:126])[0] >> 8 != 1:
        raise ValueError("the file must be of MATLAB version 5, got another header")
    while start := file.read(8):
        kind, size = struct.unpack(f"{order}II", start)
        end = file.tell() + size
        stream: Readable = file
        if kind == COMPRESSED:
            stream = _Inflated(file, size)
            kind, _ = struct.unpack(f"{order}II", read_exactly(stream, 8))
        if kind == MATRIX:
            yield _matrix(stream, order)
        file.seek(end)


def _matrix(stream: Readable, order: str) -> Matrix:
    flags = _expected(stream, order, FLAGS, 8)
    sizes = _expected(stream, order, SIZES, 4 * MAX_AXES)
    name = _expected(stream, order, TEXT, LONGEST_NAME)
    number = struct.unpack(f"{order}I", flags[:4])[0]
    if number & 0x0800:
        raise ValueError("numbers must be real, got complex ones")
    shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    if min(shape, default=-1) < 0:
        raise ValueError(f"sizes must not be negative, got {shape}")
    kind = number & 0xFF
    named = CLASSES.get(kind) or OTHERS.get(kind, f"class {kind}")
    return Matrix(name.decode("ascii"), named, shape, stream, order)


def _expected(stream: Readable, order: str, wanted: int, most: int) -> bytes:
    kind, content = _element(stream, order, most)
    if kind != wanted:
        raise ValueError(f"a matrix must begin with flags, sizes and name, got type {kind}")
    return bytes(content)


def _element(stream: Readable, order: str, most: int) -> tuple[int, bytearray]:
    """The next element, of at most `most` bytes; four bytes or fewer may lie in the tag itself."""
    tag = read_exactly(stream, 8)
    kind, size = struct.unpack(f"{order}II", tag)
    if kind >> 16:
        kind, size = kind & 0xFFFF, kind >> 16
        if size > 4:
            raise ValueError(f"a small element must have at most 4 bytes, got {size}")
        return kind, tag[4 : 4 + size]
    if size > most:
        raise ValueError(f"an element must have at most {most} bytes here, got {size}")
    content = read_exactly(stream, size)
    padding = -size % 8
    while padding and (chunk := stream.read(padding)):  # the last element may go without
        padding -= len(chunk)
    return kind, content


class _Inflated:
    """A zlib stream of `size` bytes in a file, unpacked as far as it is read."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.left = file, size
        self.packed, self.unpack = b"", zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        while not self.unpack.eof:
            if not self.packed:
                self.packed = self.file.read(min(CHUNK, self.left))
                self.left -= len(self.packed)
            out = self.unpack.decompress(self.packed, size) if size else b""
            ended = not self.packed
            self.packed = self.unpack.unconsumed_tail
            if out or ended or not size:
                return out
        return b""
