"""SVHN's MATLAB files: the axes, the digit 0, and files that are not the official ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from gpn.data import DataError, MissingData, images

X = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
Y = np.array([[1], [10], [9], [2]], dtype=np.uint8)


def write(folder: Path, content: dict[str, Any], *, compressed: bool = True) -> Path:
    path = folder / "svhn" / "test_32x32.mat"
    path.parent.mkdir()
    savemat(path, content, do_compression=compressed)
    return path


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_images_come_first_and_ten_is_zero(tmp_path: Path, compressed: bool, kind: type) -> None:
    write(tmp_path, {"X": X, "y": Y.astype(kind), "extra": 1}, compressed=compressed)
    part = images("svhn", tmp_path).test
    assert part.x.shape == (4, 3, 32, 32)
    assert all(
        int(part.x[i, c, h, w]) == X[h, w, c, i]
        for i, c, h, w in [(0, 0, 0, 0), (1, 2, 3, 4), (3, 1, 31, 7)]
    )
    assert part.x.is_contiguous()
    assert part.y is not None
    assert part.y.dtype == torch.int64
    assert part.y.tolist() == [1, 0, 9, 2]


def test_a_missing_part_says_whence_and_on_which_terms(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"train_32x32\.mat.*housenumbers.*non-commercial"):
        _ = images("svhn", tmp_path).train


def test_only_official_files_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"X": X, "y": Y})
    monkeypatch.setattr("scipy.io.loadmat", lambda *_, **__: pytest.fail("parsed"))
    with pytest.raises(DataError, match="eb5a983be6a315427106f1b164d9cef3, got"):
        _ = images("svhn", tmp_path).test


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"y": Y}, "X must be uint8, got nothing"),
        ({"X": X}, "y must be uint8 or float64, got nothing"),
        ({"X": X.astype(float), "y": Y}, "X must be uint8, got float64"),
        ({"X": X, "y": np.array([[{"a": 1}]], dtype=object)}, "y must be .*, got object"),
        ({"X": X.transpose(3, 0, 1, 2), "y": Y}, r"must have shape \(32, 32, 3, n\)"),
        ({"X": X, "y": Y[:3]}, "one per image"),
        ({"X": X, "y": Y + 1}, "labels must be 1 to 10"),
        ({"X": X, "y": 0 * Y}, "labels must be 1 to 10"),
    ],
    ids=["no X", "no y", "floats", "cells", "axes", "fewer", "eleven", "zero"],
)
def test_other_arrays_are_refused(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    write(tmp_path, content)
    with pytest.raises(DataError, match=message):
        _ = images("svhn", tmp_path).test


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("compressed", [True, False])
def test_a_truncated_file_is_a_data_error_wherever_it_ends(
    tmp_path: Path, compressed: bool
) -> None:
    path = write(tmp_path, {"X": X, "y": Y}, compressed=compressed)
    whole = path.read_bytes()
    for end in [0, 1, 50, 127, 128, 130, 136, 150, 200, *range(1000, len(whole), 997)]:
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"test_32x32\.mat.*housenumbers"):
            _ = images("svhn", tmp_path).test
