"""CIFAR-10 in its binary version: rows of one label byte and 3 × 32 × 32 pixels.

Read from the unpacked folder, or from the archive without extracting it.
"""

import gzip
import hashlib
import io
import itertools
import tarfile
from pathlib import Path

import torch
from torch import Tensor

from gpn.data.image_part import ImagePart, PartName
from gpn.data.safe_read import (
    CHUNK_BYTES,
    MAX_ARRAY_BYTES,
    check_decompressed_size,
    opened,
    read_rest,
)
from gpn.data.store import Source, check_md5, find, is_file, missing

CIFAR10 = Source(
    "cifar10",
    "https://www.cs.toronto.edu/~kriz/cifar.html",
    "for research, cite Krizhevsky 2009",
    "cifar-10-batches-bin",
    {
        "data_batch_1.bin": ("5dd7e06a14cb22eb9f671a540d1b7c25",),
        "data_batch_2.bin": ("5ea93a67294ea407fff1d09f752e9692",),
        "data_batch_3.bin": ("942cd6a4bcdd0dd3c604fbe906cb4421",),
        "data_batch_4.bin": ("ae636b3ba5c66a11e91e8cb52e771fcb",),
        "data_batch_5.bin": ("53f37980c15c3d472c316c40844f3f0d",),
        "test_batch.bin": ("803d5f7f4d78ea53de84dbe85f74fb6d",),
    },
    archive="cifar-10-binary.tar.gz",
)
PARTS: dict[PartName, tuple[str, ...]] = {
    "train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    "test": ("test_batch.bin",),
}
IMAGE_SHAPE, ROW_BYTES, N_CLASSES = (3, 32, 32), 1 + 3 * 32 * 32, 10
MAX_MEMBERS = 1000  # the official archive has nine


def read_part(source: Source, part: PartName, folder: Path) -> ImagePart:
    """One part of CIFAR-10, from the unpacked folder if it is complete, else from the archive."""
    found = {file: find(source, file, folder) for file in PARTS[part]}
    absent = [file for file, path in found.items() if path is None]
    archive = folder / source.archive
    if not absent:
        batches = {file: _unpacked(source, path) for file, path in found.items() if path}
    elif is_file(archive):
        batches = _archived(source, set(found), archive)
    else:
        raise missing(source, absent[0], folder)
    rows = torch.cat([batches[file] for file in PARTS[part]])
    return ImagePart(rows[:, 1:].reshape(-1, *IMAGE_SHAPE).contiguous(), rows[:, 0].long())


def _unpacked(source: Source, path: Path) -> Tensor:
    with opened(path, source) as stream:
        content = read_rest(stream, path.stat().st_size)
        return _rows(source, path.name, path, content)


def _archived(source: Source, files: set[str], archive: Path) -> dict[str, Tensor]:
    """The rows of `files`, in one pass over the archive."""
    batches: dict[str, Tensor] = {}
    with (
        opened(archive, source) as raw,
        tarfile.open(fileobj=_SmallReads(fileobj=raw), mode="r:") as tar,
    ):
        for member in itertools.islice(tar, MAX_MEMBERS):
            file = member.name.removeprefix(f"{source.subfolder}/")
            if file in files and file != member.name:
                check_decompressed_size(archive, member.size)
                batches[file] = _rows(source, file, archive, _member(tar, member))
            if len(batches) == len(files):
                return batches
        raise EOFError(f"{sorted(files - set(batches))} must be in {source.subfolder}/, got none")


class _SmallReads(gzip.GzipFile):
    """A gzip stream that reads one chunk at most: no tar header can ask for gigabytes."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= CHUNK_BYTES:
            raise ValueError(f"a tar header must fit in {CHUNK_BYTES} bytes, got {size}")
        return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if not 0 <= offset <= MAX_ARRAY_BYTES:
            raise ValueError(
                f"an archive must have at most {MAX_ARRAY_BYTES} bytes, got a claim of {offset}"
            )
        return super().seek(offset, whence)


def _member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytearray:
    """The content of a plain file; links and files with holes are not followed."""
    stream = tar.extractfile(member) if member.isfile() and not member.issparse() else None
    if stream is None:
        raise ValueError(f"{member.name} must be a plain file, got tar type {member.type!r}")
    return read_rest(stream, member.size)


def _rows(source: Source, file: str, path: Path, content: bytearray) -> Tensor:
    """The rows of one batch, labels first."""
    if not content or len(content) % ROW_BYTES:
        raise EOFError(f"{file} must be whole rows of {ROW_BYTES} bytes, got {len(content)} bytes")
    check_md5(source, file, path, hashlib.md5(content, usedforsecurity=False).hexdigest())
    rows = torch.frombuffer(content, dtype=torch.uint8).reshape(-1, ROW_BYTES)
    if int(rows[:, 0].max()) >= N_CLASSES:
        raise ValueError(f"labels must be below {N_CLASSES}, got {int(rows[:, 0].max())}")
    return rows
