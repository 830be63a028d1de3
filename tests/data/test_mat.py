"""MATLAB files: what scipy writes is read as scipy reads it."""

import io
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from gpn.data.mat import matrices

RNG = np.random.default_rng(0)
ARRAYS = [
    RNG.integers(0, 256, (32, 32, 3, 5), dtype=np.uint8),
    RNG.normal(size=(7, 1)),
    np.arange(10.0)[:, None],
    np.array([[3]], np.uint8),
    np.array([[1, 2, 3]], np.uint8),
    np.zeros((0, 0)),
]


def saved(content: dict[str, Any], *, compressed: bool) -> io.BytesIO:
    made = io.BytesIO()
    savemat(made, content, do_compression=compressed)
    made.seek(0)
    return made


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_come_back_among_others(array: Any, compressed: bool) -> None:
    others = {"cells": np.array([["a", 1]], object), "word": "text", "s": {"a": 1}}
    file = saved({**others, "X": array, "a_longer_name": array}, compressed=compressed)
    plain = {m.name: m.values() for m in matrices(file) if m.name in ("X", "a_longer_name")}
    file.seek(0)
    for name, values in plain.items():
        np.testing.assert_array_equal(values, loadmat(file)[name])
        assert values.dtype == array.dtype
    assert len(plain) == 2
    file.seek(0)
    assert {m.name: m.kind for m in matrices(file)}["cells"] == "cell"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"IM", b"XX", "MATLAB version 5"),
        (b"\x00\x01IM", b"\x00\x02IM", "MATLAB version 5"),
        (b"\x06\x00\x00\x00\x08\x00\x00\x00", b"\x05\x00\x00\x00\x08\x00\x00\x00", "got type 5"),
        (b"\x20\x00\x00\x00\x20\x00", b"\x20\x00\x00\xff\x20\x00", "must not be negative"),
    ],
)
def test_other_headers_say_what_is_wrong(old: bytes, new: bytes, said: str) -> None:
    content = saved({"X": ARRAYS[0]}, compressed=False).getvalue()
    assert old in content
    with pytest.raises(ValueError, match=said):
        list(matrices(io.BytesIO(content.replace(old, new, 1))))


def test_complex_numbers_and_other_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="must be real, got complex"):
        list(matrices(saved({"X": np.array([1j])}, compressed=True)))
    (single,) = matrices(saved({"X": np.zeros((1, 1), np.float32)}, compressed=True))
    with pytest.raises(ValueError, match="X must be of bytes or doubles, got single"):
        single.values()
