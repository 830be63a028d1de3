"""SVHN, cropped digits, in the official MATLAB files: X (32, 32, 3, n), y with 10 for digit 0."""

import hashlib
import math
from pathlib import Path
from typing import Any, BinaryIO

import torch

from gpn.data.bounded import LIMIT, opened
from gpn.data.image_part import ImagePart, PartName
from gpn.data.store import Source, check_md5, locate

SVHN = Source(
    "svhn",
    "http://ufldl.stanford.edu/housenumbers/",
    "non-commercial use only",
    "svhn",
    {
        "train_32x32.mat": ("e26dedcc434d2e4c54c9b2d4a06d8373",),
        "test_32x32.mat": ("eb5a983be6a315427106f1b164d9cef3",),
    },
)
IMAGE_SHAPE = (32, 32, 3)
KINDS = {"X": ("uint8",), "y": ("uint8", "double")}
DEFLATE_RATIO = 1032  # the most that deflate can shrink bytes, and so a bound on honest claims


def read_part(source: Source, part: PartName, folder: Path) -> ImagePart:
    """One part of SVHN. The checksum comes first, so that only official files are parsed."""
    file = f"{part}_32x32.mat"
    path = locate(source, file, folder)
    with opened(path, source) as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))
        check_md5(source, file, path, digest.hexdigest())
        _check_claims(stream, path.stat().st_size)
        arrays = _arrays(stream)
        x = torch.from_numpy(arrays["X"].transpose(3, 2, 0, 1).copy())
        y = torch.from_numpy(arrays["y"].reshape(-1).astype("int64"))
        return ImagePart(x, _digits(y))


def _check_claims(stream: BinaryIO, file_bytes: int) -> None:
    """That X and y are there, and no larger than the file can make true."""
    from scipy.io import whosmat

    stream.seek(0)
    claims = {name: (shape, kind) for name, shape, kind in whosmat(stream)}
    for name, kinds in KINDS.items():
        shape, kind = claims.get(name, ((), "nothing"))
        if kind not in kinds:
            raise ValueError(f"{name} must be {' or '.join(kinds)}, got {kind}")
        if math.prod(shape) > min(LIMIT, DEFLATE_RATIO * file_bytes):
            raise ValueError(f"{name} must fit in a file of {file_bytes} bytes, got {shape}")
    if claims["X"][0][:-1] != IMAGE_SHAPE:
        raise ValueError(f"X must have shape (32, 32, 3, n), got {claims['X'][0]}")


def _arrays(stream: BinaryIO) -> dict[str, Any]:
    from scipy.io import loadmat

    stream.seek(0)
    return loadmat(stream, variable_names=["X", "y"])


def _digits(labels: torch.Tensor) -> torch.Tensor:
    """The digit of each label: 10 stands for 0."""
    if not bool(((labels >= 1) & (labels <= 10)).all()):
        raise ValueError("labels must be 1 to 10, got others")
    return labels % 10
