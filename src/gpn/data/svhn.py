"""SVHN, cropped digits, in the official MATLAB files: X (32, 32, 3, n), y with 10 for digit 0."""

from pathlib import Path
from typing import Any

import torch

from gpn.data.image_part import ImagePart, PartName
from gpn.data.safe_read import check_file, opened
from gpn.data.store import Source, locate

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
DTYPES = {"X": ("uint8",), "y": ("uint8", "float64")}


def read_part(source: Source, part: PartName, folder: Path) -> ImagePart:
    """One part of SVHN. The checksum comes first: scipy parses no file but the official ones."""
    from scipy.io import loadmat

    path = locate(source, f"{part}_32x32.mat", folder)
    with opened(path, source) as stream:
        check_file(source, path, stream)
        arrays = loadmat(stream, variable_names=tuple(DTYPES))
        _check(arrays)
        x = torch.from_numpy(arrays["X"].transpose(3, 2, 0, 1).copy())
        return ImagePart(x, torch.from_numpy(arrays["y"].reshape(-1).astype("int64")) % 10)


def _check(arrays: dict[str, Any]) -> None:
    for name, dtypes in DTYPES.items():
        found = arrays[name].dtype if name in arrays else "nothing"
        if found not in dtypes:
            raise ValueError(f"{name} must be {' or '.join(dtypes)}, got {found}")
    if arrays["X"].shape[:-1] != (32, 32, 3):
        raise ValueError(f"X must have shape (32, 32, 3, n), got {arrays['X'].shape}")
    if not ((arrays["y"] >= 1) & (arrays["y"] <= 10)).all():
        raise ValueError("labels must be 1 to 10, got others")
