"""The idx format of MNIST and its descendants, plain or gzipped.

A file is the magic number 0x0000080k for bytes in k dimensions, the k dimensions as big-endian
32-bit numbers, and the bytes.
"""

import gzip
import hashlib
import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from gpn.data.image_part import ImagePart, PartName
from gpn.data.safe_read import check_decompressed_size, opened, read_exactly, read_rest
from gpn.data.store import DataError, Source, check_md5, find, locate, missing

BYTES_MAGIC = 0x0800
PREFIX: dict[PartName, str] = {"train": "train", "test": "t10k"}


def _source(name: str, address: str, licence: str, md5s: dict[str, tuple[str, ...]]) -> Source:
    return Source(name, address, licence, name, md5s, suffixes=("", ".gz"))


MNIST = _source(
    "mnist",
    "http://yann.lecun.com/exdb/mnist/",
    "free to use, cite LeCun et al. 1998",
    {
        "train-images-idx3-ubyte": ("6bbc9ace898e44ae57da46a324031adb",),
        "train-labels-idx1-ubyte": ("a25bea736e30d166cdddb491f175f624",),
        "t10k-images-idx3-ubyte": ("2646ac647ad5339dbf082846283269ea",),
        "t10k-labels-idx1-ubyte": ("27ae3e4e09519cfbb04c329615203637",),
    },
)
FASHION_MNIST = _source(
    "fashion-mnist",
    "https://github.com/zalandoresearch/fashion-mnist",
    "MIT",
    {
        "train-images-idx3-ubyte": ("f4a8712d7a061bf5bd6d2ca38dc4d50a",),
        "train-labels-idx1-ubyte": ("9018921c3c673c538a1fc5bad174d6f9",),
        "t10k-images-idx3-ubyte": ("8181f5470baa50b63fa0f6fddb340f0a",),
        "t10k-labels-idx1-ubyte": ("15d484375f8d13e6eb1aabb0c3f46965",),
    },
)
KMNIST = _source(
    "kmnist",
    "http://codh.rois.ac.jp/kmnist/",
    "CC BY-SA 4.0",
    {  # for the others, only the checksums of the gzipped files are published
        "train-images-idx3-ubyte": (),
        "train-labels-idx1-ubyte": (),
        "t10k-images-idx3-ubyte": ("bf305b8cd328700fbc17f5acbc2856d2",),
        "t10k-labels-idx1-ubyte": (),
    },
)


def read_part(source: Source, part: PartName, folder: Path) -> ImagePart:
    """One part of an MNIST-like set, without labels if their file is missing."""
    images_file = f"{PREFIX[part]}-images-idx3-ubyte"
    labels_file = f"{PREFIX[part]}-labels-idx1-ubyte"
    path = locate(source, images_file, folder)
    x = read_idx(source, images_file, path, n_dims=3)[:, None]
    labels = find(source, labels_file, folder)
    if labels is None:
        return ImagePart(x, None, missing(source, labels_file, folder))
    y = read_idx(source, labels_file, labels, n_dims=1).long()
    try:
        return ImagePart(x, y)
    except ValueError as error:
        raise DataError(f"{path} and its labels must belong together, got: {error}.") from error


def read_idx(source: Source, file: str, path: Path, n_dims: int) -> Tensor:
    """The bytes of one idx file, in its shape."""
    with opened(path, source) as raw:
        stream = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        header = read_exactly(stream, 4 + 4 * n_dims)
        shape = _shape(header, n_dims)
        if path.suffix == ".gz":
            check_decompressed_size(path, math.prod(shape))
        content = read_rest(stream, math.prod(shape))
        values = torch.frombuffer(content, dtype=torch.uint8).reshape(shape)
    digest = hashlib.md5(header, usedforsecurity=False)
    digest.update(content)
    check_md5(source, file, path, digest.hexdigest())
    return values


def _shape(header: bytearray, n_dims: int) -> tuple[int, ...]:
    magic, *shape = struct.unpack(f">{1 + n_dims}I", header)
    if magic != BYTES_MAGIC + n_dims:
        raise ValueError(
            f"the magic number must be {BYTES_MAGIC + n_dims:#010x}, got {magic:#010x}"
        )
    return tuple(shape)
