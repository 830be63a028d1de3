"""Image sets in one .npz: every layout, and headers that lie."""

import io
import struct
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpn.data import DataError, MissingData, images

RGB = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)  # n h w c
LABELS = np.array([4, 0, 2, 1, 3])


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def claiming(shape: tuple[int, ...], content: bytes, dtype: str = "|u1") -> bytes:
    """An npy file whose header says `shape`, whatever follows it."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def write_member(
    folder: Path, content: bytes, method: int = zipfile.ZIP_DEFLATED, name: str = "x_test.npy"
) -> Path:
    path = folder / "own.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, content)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (RGB, RGB.transpose(0, 3, 1, 2)),
        (RGB.transpose(0, 3, 1, 2), RGB.transpose(0, 3, 1, 2)),
        (np.asfortranarray(RGB), RGB.transpose(0, 3, 1, 2)),
        (RGB[..., 0], RGB[:, None, :, :, 0]),
        (RGB[..., :1], RGB[:, None, :, :, 0]),
    ],
    ids=["n h w 3", "n 3 h w", "fortran", "n h w", "n h w 1"],
)
def test_every_layout_becomes_channels_first(
    tmp_path: Path, save: Callable[..., None], stored: np.ndarray, wanted: np.ndarray
) -> None:
    save(tmp_path / "own.npz", x_train=stored, y_train=LABELS.astype(np.uint8))
    part = images("own", tmp_path).train
    assert torch.equal(part.x, torch.from_numpy(wanted.copy()))
    assert part.x.is_contiguous()
    assert part.y is not None
    assert part.y.dtype == torch.int64
    assert part.y.tolist() == LABELS.tolist()


def test_labels_are_optional_and_may_be_of_any_byte_order(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x_train=RGB, x_test=RGB[1:], y_train=LABELS.astype(">i2"))
    own = images("own", tmp_path)
    assert own.test.y is None
    with pytest.raises(MissingData, match=r"own\.npz must hold y_test.*, got x_train, y_train"):
        _ = own.test.labels
    assert len(own.test.x) == 4
    assert own.train.y is not None
    assert own.train.y.tolist() == LABELS.tolist()


@pytest.mark.parametrize("name", ["own", "mnist"])
def test_the_ending_may_be_given_and_always_means_the_file(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / f"{name}.npz", x_test=RGB)
    assert images(f"{name}.npz", tmp_path).test.x.shape == (5, 3, 6, 7)
    with pytest.raises(MissingData, match=r"/gone\.npz, got no such file"):
        _ = images("gone.npz", tmp_path).test


def test_a_part_that_is_not_there_says_what_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x_test=RGB)
    with pytest.raises(MissingData, match=r"must hold x_train.*, got x_test"):
        _ = images("own", tmp_path).train
    np.savez(tmp_path / "own.npz", pixels=RGB)
    with pytest.raises(MissingData, match="got none of"):
        _ = images("own", tmp_path).test


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_test": RGB.astype(float)}, "must be uint8"),
        ({"x_test": RGB[0, 0]}, "3 or 4 axes"),
        ({"x_test": RGB[..., :2]}, "1 or 3 channels"),
        ({"x_test": RGB[:0]}, "nothing empty|damaged"),
        ({"x_test": RGB, "y_test": LABELS[:4]}, "one per image"),
        ({"x_test": RGB, "y_test": LABELS.astype(float)}, "labels must be integers"),
        ({"x_test": RGB, "y_test": LABELS.astype(np.uint64)}, "fit in int64"),
        ({"x_test": RGB, "y_test": LABELS[:, None]}, "one per image"),
        ({"x_test": RGB, "y_test": LABELS - 1}, "labels must be 0 or more, got -1"),
        ({"x_test": np.zeros(3, dtype=[("a", "u1")])}, "must be uint8"),
    ],
    ids=[
        *("floats", "2 axes", "2 channels", "empty"),
        *("fewer", "y float", "y wide", "y 2d", "y negative", "named"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(DataError, match=message):
        _ = images("own", tmp_path).test


class Trap:
    """Unpickling this would raise, which a test would see."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('a pickle was loaded')",)


def test_no_pickle_is_ever_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x_test=np.array([Trap()], dtype=object))
    with pytest.raises(DataError, match="never loaded"):
        _ = images("own", tmp_path).test
    write_member(tmp_path, b"\x80\x04N.")
    with pytest.raises(DataError, match=r"own\.npz"):
        _ = images("own", tmp_path).test


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_truncated_file_is_a_data_error_wherever_it_ends(
    tmp_path: Path, save: Callable[..., None]
) -> None:
    path = tmp_path / "own.npz"
    save(path, x_test=RGB)
    whole = path.read_bytes()
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"own\.npz"):
            _ = images("own", tmp_path).test


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_mutations_never_raise_anything_else(tmp_path: Path, save: Callable[..., None]) -> None:
    path = tmp_path / "own.npz"
    save(path, x_test=RGB[:2, :3, :3])
    whole = path.read_bytes()
    right, refused = images("own", tmp_path).test.x, 0
    for place in range(0, len(whole), 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x21]) + whole[place + 1 :])
        try:
            assert torch.equal(images("own", tmp_path).test.x, right)
        except DataError:
            refused += 1
    assert refused > len(whole) // 4


@pytest.mark.parametrize("shape", [(1 << 40, 32, 32), (1 << 20, 32, 32), (-1, 32, 32), (2, 3)])
def test_a_giant_claim_allocates_nothing(
    tmp_path: Path,
    little_memory: Callable[[], AbstractContextManager[None]],
    shape: tuple[int, ...],
) -> None:
    write_member(tmp_path, claiming(shape, bytes(100)))
    with little_memory(), pytest.raises(DataError, match="bytes that its shape"):
        _ = images("own", tmp_path).test


def test_an_archive_that_lies_along_with_the_header_allocates_nothing(
    tmp_path: Path, little_memory: Callable[[], AbstractContextManager[None]]
) -> None:
    """The archive's own directory may claim as much as the array's header does."""
    member = claiming((1 << 20, 32, 32), bytes(100))
    path = write_member(tmp_path, member, zipfile.ZIP_STORED)
    size, lie = struct.pack("<I", len(member)), struct.pack("<I", len(member) - 100 + (1 << 30))
    path.write_bytes(path.read_bytes().replace(size, lie))
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("x_test.npy").file_size > 1 << 30
    with little_memory(), pytest.raises(DataError, match=r"own\.npz"):
        _ = images("own", tmp_path).test


def test_a_member_beyond_the_limit_is_refused_unread(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    little_memory: Callable[[], AbstractContextManager[None]],
) -> None:
    monkeypatch.setattr("gpn.data.safe_read.MAX_ARRAY_BYTES", 16 << 20)
    write_member(tmp_path, claiming((32 << 10, 32, 32), bytes(32 << 20)))
    with little_memory(), pytest.raises(DataError, match="at most 16777216 bytes"):
        _ = images("own", tmp_path).test


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_without_a_bound_are_refused(tmp_path: Path, method: int) -> None:
    write_member(tmp_path, npy(RGB), method)
    with pytest.raises(DataError, match="stored or deflated"):
        _ = images("own", tmp_path).test


def test_other_npy_versions_are_refused(tmp_path: Path) -> None:
    write_member(tmp_path, npy(RGB).replace(b"NUMPY\x01", b"NUMPY\x02"))
    with pytest.raises(DataError, match=r"version 1\.0"):
        _ = images("own", tmp_path).test
