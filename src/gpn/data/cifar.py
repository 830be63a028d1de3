"""CIFAR-10 in its binary version: rows of one label byte and 3 × 32 × 32 pixels.

Read from the unpacked folder, or from the archive without extracting it.
"""

import hashlib
import tarfile
from pathlib import Path

import torch
from torch import Tensor

from gpn.data.image_part import ImagePart, PartName
from gpn.data.safe_read import check_file, opened
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
        "cifar-10-binary.tar.gz": ("c32a1d4ab5d03f1284b67883e8d87530",),
    },
    archive="cifar-10-binary.tar.gz",
)
PARTS: dict[PartName, tuple[str, ...]] = {
    "train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    "test": ("test_batch.bin",),
}
IMAGE_SHAPE, ROW_BYTES, N_CLASSES = (3, 32, 32), 1 + 3 * 32 * 32, 10


def read_part(source: Source, part: PartName, folder: Path) -> ImagePart:
    """One part of CIFAR-10, from the unpacked folder if it is complete, else from the archive."""
    files, archive = PARTS[part], folder / source.archive
    paths = [find(source, file, folder) for file in files]
    if None not in paths:
        batches = [_unpacked(source, path) for path in paths if path]
    elif is_file(archive):
        batches = _archived(source, files, archive)
    else:
        raise missing(source, files[paths.index(None)], folder)
    rows = torch.cat(batches)
    return ImagePart(rows[:, 1:].reshape(-1, *IMAGE_SHAPE).contiguous(), rows[:, 0].long())


def _unpacked(source: Source, path: Path) -> Tensor:
    with opened(path, source) as stream:
        return _rows(source, path.name, path, stream.read())


def _archived(source: Source, files: tuple[str, ...], archive: Path) -> list[Tensor]:
    """The rows of `files`. The checksum comes first: only the official archive is opened."""
    batches: dict[str, Tensor] = {}
    with opened(archive, source) as raw:
        check_file(source, archive, raw)
        with tarfile.open(fileobj=raw, mode="r|gz") as tar:
            for member in tar:
                file = member.name.removeprefix(f"{source.subfolder}/")
                stream = tar.extractfile(member) if file in files else None
                if stream is not None:
                    batches[file] = _rows(source, file, archive, stream.read())
        return [batches[file] for file in files]


def _rows(source: Source, file: str, path: Path, content: bytes) -> Tensor:
    """The rows of one batch, labels first."""
    if not content or len(content) % ROW_BYTES:
        raise EOFError(f"{file} must be whole rows of {ROW_BYTES} bytes, got {len(content)} bytes")
    check_md5(source, file, path, hashlib.md5(content, usedforsecurity=False).hexdigest())
    rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(-1, ROW_BYTES)
    if int(rows[:, 0].max()) >= N_CLASSES:
        raise ValueError(f"labels must be below {N_CLASSES}, got {int(rows[:, 0].max())}")
    return rows
