"""Image sets in one numpy file: `<name>.npz` with x_train and x_test (bytes), y_train and y_test.

Each array's header must agree with the size of its member before anything is allocated, and no
array of Python objects (a pickle) is ever loaded.
"""

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from gpn.data.image_part import ImagePart, PartName
from gpn.data.safe_read import check_member, opened, read_rest
from gpn.data.store import MissingData, Source, locate

CHANNELS = (1, 3)
NAMES = ("x_train", "y_train", "x_test", "y_test")


def read_part(source: Source, part: PartName, folder: Path) -> ImagePart:
    """One part of `<name>.npz`, without labels if the file has none."""
    path = locate(source, f"{source.name}.npz", folder)
    with opened(path, source) as raw, zipfile.ZipFile(raw) as archive:
        there = [name for name in NAMES if f"{name}.npy" in archive.namelist()]
        if f"x_{part}" not in there:
            raise _missing_array(path, "x", part, there)
        for name in (f"{name}_{part}" for name in "xy" if f"{name}_{part}" in there):
            check_member(path, archive.getinfo(f"{name}.npy"))
        x = channels_first(_array(archive, f"x_{part}"))
        if f"y_{part}" not in there:
            return ImagePart(x, None, _missing_array(path, "y", part, there))
        return ImagePart(x, _labels(_array(archive, f"y_{part}")))


def _missing_array(path: Path, name: str, part: PartName, there: list[str]) -> MissingData:
    return MissingData(
        f"{path} must hold {name}_{part} for its {part} part, got "
        f"{', '.join(there) or f'none of {NAMES}'}; ask for another part or file."
    )


def channels_first(images: "np.ndarray[Any, Any]") -> Tensor:
    """Images as (n, c, h, w), from (n, h, w), (n, h, w, c) or (n, c, h, w) with c = 1 or 3."""
    shape = images.shape
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise ValueError(f"images must be uint8 in 3 or 4 axes, got {images.dtype} {shape}")
    pixels = torch.from_numpy(images)
    if images.ndim == 3:
        return pixels[:, None]
    if shape[3] in CHANNELS:
        return pixels.permute(0, 3, 1, 2).contiguous()
    if shape[1] in CHANNELS:
        return pixels
    raise ValueError(f"images must have 1 or 3 channels, first or last, got shape {shape}")


def _labels(labels: "np.ndarray[Any, Any]") -> Tensor:
    if labels.dtype.kind not in "iu" or not np.can_cast(labels.dtype, np.int64):
        raise ValueError(f"labels must be integers that fit in int64, got {labels.dtype}")
    if labels.size and labels.min() < 0:
        raise ValueError(f"labels must be 0 or more, got {labels.min()}")
    return torch.from_numpy(labels.astype(np.int64))


def _array(archive: zipfile.ZipFile, name: str) -> "np.ndarray[Any, Any]":
    """One array, if its header agrees with the size of its member."""
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as stream:
        shape, fortran, dtype = _header(stream)
        size = math.prod(shape) * dtype.itemsize
        if stream.tell() + size != member.file_size:
            raise ValueError(
                f"{name} must have the {size} bytes that its shape {shape} asks for, got "
                f"{member.file_size - stream.tell()}"
            )
        flat = np.frombuffer(read_rest(stream, size), dtype)
    return np.ascontiguousarray(flat.reshape(shape, order="F" if fortran else "C"))


def _header(stream: Any) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    """Shape, order and dtype; later versions of npy are for named columns."""
    if npy.read_magic(stream) != (1, 0):
        raise ValueError("arrays must be in version 1.0 of the npy format")
    shape, fortran, dtype = npy.read_array_header_1_0(stream)
    if dtype.hasobject:
        raise ValueError("arrays must be of numbers, got Python objects, which are never loaded")
    return shape, fortran, dtype
