"""SVHN, cropped digits, in the official MATLAB files: X (32, 32, 3, n), y with 10 for digit 0."""

import hashlib
import math
from pathlib import Path
from typing import Any, BinaryIO

import torch

from gpn.data.bounded import check_unfolding, opened
from gpn.data.image_part import ImagePart, PartName
from gpn.data.mat import Matrix, matrices
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


def read_part(source: Source, part: PartName, folder: Path) -> ImagePart:
    """One part of SVHN. The checksum comes first, so that only official files are parsed."""
    file = f"{part}_32x32.mat"
    path = locate(source, file, folder)
    with opened(path, source) as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))
        check_md5(source, file, path, digest.hexdigest())
        stream.seek(0)
        arrays = _arrays(stream, path)
        x = torch.from_numpy(arrays["X"].transpose(3, 2, 0, 1).copy())
        y = torch.from_numpy(arrays["y"].reshape(-1).astype("int64"))
        return ImagePart(x, _digits(y))


def _arrays(stream: BinaryIO, path: Path) -> dict[str, Any]:
    """X and y, once their claims are no larger than the file can make true."""
    found: dict[str, Any] = {}
    for matrix in matrices(stream):
        if matrix.name in KINDS and matrix.name not in found:
            _check(matrix)
            check_unfolding(path, math.prod(matrix.shape))
            found[matrix.name] = matrix.values()
    for name, kinds in KINDS.items():
        if name not in found:
            raise ValueError(f"{name} must be {' or '.join(kinds)}, got nothing")
    return found


def _check(matrix: Matrix) -> None:
    name, kinds = matrix.name, KINDS[matrix.name]
    if matrix.kind not in kinds:
        raise ValueError(f"{name} must be {' or '.join(kinds)}, got {matrix.kind}")
    if name == "X" and matrix.shape[:-1] != IMAGE_SHAPE:
        raise ValueError(f"X must have shape (32, 32, 3, n), got {matrix.shape}")


def _digits(labels: torch.Tensor) -> torch.Tensor:
    """The digit of each label: 10 stands for 0."""
    if not bool(((labels >= 1) & (labels <= 10)).all()):
        raise ValueError("labels must be 1 to 10, got others")
    return labels % 10
