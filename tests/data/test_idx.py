"""MNIST and its descendants: round trips, and files that are not what they claim."""

import gzip
import hashlib
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gpn.data import DataError, MissingData, idx, images

IMAGES = np.arange(4 * 5 * 6, dtype=np.uint8).reshape(4, 5, 6)
LABELS = np.array([7, 2, 1, 0], dtype=np.uint8)


def idx_bytes(array: np.ndarray, shape: tuple[int, ...] | None = None) -> bytes:
    dims = array.shape if shape is None else shape
    return struct.pack(f">{1 + len(dims)}I", 0x0800 + len(dims), *dims) + array.tobytes()


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "kmnist"])
def test_round_trip(tmp_path: Path, name: str, suffix: str) -> None:
    write(tmp_path, f"{name}/train-images-idx3-ubyte{suffix}", idx_bytes(IMAGES))
    write(tmp_path, f"{name}/train-labels-idx1-ubyte{suffix}", idx_bytes(LABELS))
    part = images(name, tmp_path).train
    assert torch.equal(part.x, torch.from_numpy(IMAGES)[:, None])
    assert part.y is not None
    assert part.y.dtype == torch.int64
    assert part.y.tolist() == [7, 2, 1, 0]
    assert part.labels is part.y


@pytest.mark.usefixtures("unchecked")
def test_one_file_is_enough_for_its_part(tmp_path: Path) -> None:
    write(tmp_path, "kmnist/t10k-images-idx3-ubyte", idx_bytes(IMAGES))
    kmnist = images("kmnist", tmp_path)
    assert kmnist.test.x.shape == (4, 1, 5, 6)
    assert kmnist.test.y is None
    with pytest.raises(MissingData, match=r"t10k-labels-idx1-ubyte of kmnist.*codh.*CC BY-SA"):
        _ = kmnist.test.labels
    with pytest.raises(MissingData, match=r"train-images-idx3-ubyte.*codh.*CC BY-SA"):
        _ = kmnist.train


def test_official_checksums_are_checked(tmp_path: Path) -> None:
    content = idx_bytes(IMAGES)
    path = write(tmp_path, "mnist/t10k-images-idx3-ubyte.gz", content)
    found = hashlib.md5(content).hexdigest()
    with pytest.raises(DataError, match=f"2646ac647ad5339dbf082846283269ea, got {found}"):
        _ = images("mnist", tmp_path).test
    known = replace(idx.MNIST, files={"t10k-images-idx3-ubyte": (found,)})
    assert idx.read_idx(known, "t10k-images-idx3-ubyte", path, n_dims=3).shape == (4, 5, 6)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_truncated_file_is_a_data_error_wherever_it_ends(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, f"mnist/t10k-images-idx3-ubyte{suffix}", idx_bytes(IMAGES))
    whole = path.read_bytes()
    for end in [*range(40), *range(40, len(whole), 7)]:
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"t10k-images.*get it again from http://yann"):
            _ = images("mnist", tmp_path).test


@pytest.mark.usefixtures("unchecked")
def test_mutated_gzip_never_raises_anything_else(tmp_path: Path) -> None:
    path = write(tmp_path, "mnist/t10k-images-idx3-ubyte.gz", idx_bytes(IMAGES))
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            read = images("mnist", tmp_path).test.x
            assert torch.equal(read, torch.from_numpy(IMAGES)[:, None])
        except DataError:
            refused += 1
    assert refused > 0.45 * len(whole) - 5  # but for the gzip header's date and system


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx_bytes(LABELS), "magic number|bytes must follow"),
        (b"\x00\x00\x0d\x03" + idx_bytes(IMAGES)[4:], "must be 0x00000803, got 0x00000d03"),
        (b"\x89PNG\r\n\x1a\n" * 40, "magic number"),
        (idx_bytes(IMAGES) + b"\x00", "got more"),
        (idx_bytes(IMAGES, (5, 5, 6)), "150 bytes must follow, got 120"),
        (idx_bytes(IMAGES[:0]), "t10k-images"),
    ],
    ids=["labels", "floats", "png", "longer", "shorter", "empty"],
)
def test_another_content_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    write(tmp_path, "mnist/t10k-images-idx3-ubyte", content)
    with pytest.raises(DataError, match=message):
        _ = images("mnist", tmp_path).test


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("shape", [(2**32 - 1, 2**32 - 1, 2**32 - 1), (1_000_000, 40, 100)])
def test_a_giant_claim_allocates_nothing(
    tmp_path: Path,
    little_memory: Callable[[], AbstractContextManager[None]],
    suffix: str,
    shape: tuple[int, ...],
) -> None:
    write(tmp_path, f"mnist/t10k-images-idx3-ubyte{suffix}", idx_bytes(IMAGES, shape))
    with little_memory(), pytest.raises(DataError, match=r"claim of|must follow, got 120"):
        _ = images("mnist", tmp_path).test


@pytest.mark.usefixtures("unchecked")
def test_a_gzip_bomb_is_read_no_further_than_its_header_claims(
    tmp_path: Path, little_memory: Callable[[], AbstractContextManager[None]]
) -> None:
    bomb = idx_bytes(IMAGES) + bytes(64 << 20)
    write(tmp_path, "mnist/t10k-images-idx3-ubyte.gz", bomb)
    del bomb
    with little_memory(), pytest.raises(DataError, match="got more"):
        _ = images("mnist", tmp_path).test


@pytest.mark.usefixtures("unchecked")
def test_images_and_labels_must_be_as_many(tmp_path: Path) -> None:
    write(tmp_path, "mnist/t10k-images-idx3-ubyte", idx_bytes(IMAGES))
    write(tmp_path, "mnist/t10k-labels-idx1-ubyte", idx_bytes(LABELS[:3]))
    with pytest.raises(DataError, match="one per image"):
        _ = images("mnist", tmp_path).test
