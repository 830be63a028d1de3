"""Files of every released version open, and give the answers that they gave then."""

import functools
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gpn
from tests.compat.questions import EXPECTED, answer, opened

HERE = Path(__file__).parent
TOLERANCE = 1e-6  # absolute and relative
SINGLE_TOLERANCE = 1e-5  # of a posterior in single precision, which processors round differently
VERSIONS = sorted(path for path in HERE.iterdir() if path.is_dir() and path.name[0].isdigit())
FILES = [path for version in VERSIONS for path in sorted(version.glob("*.gpn"))]


@functools.cache
def expected_in(version: Path) -> dict[str, Any]:
    return json.loads((version / EXPECTED).read_text())


def test_there_are_versions() -> None:
    assert VERSIONS


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_every_file_has_its_answers(version: Path) -> None:
    there = {path.name for path in version.iterdir()} - {EXPECTED}
    assert there == set(expected_in(version)["files"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_gives_the_same_answers(path: Path) -> None:
    expected = expected_in(path.parent)
    entry = expected["files"][path.name]
    saved = opened(path, expected["rows"][entry["rows"]])
    assert entry["answers"]
    tolerance = TOLERANCE if precision_of(saved.model) == torch.float64 else SINGLE_TOLERANCE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gpn.GPNWarning)  # of values that the fit has not seen
        for question, wanted in entry["answers"].items():
            check_same(answer(saved, question), wanted, question, tolerance)


def precision_of(model: Any) -> torch.dtype:
    """The dtype of the posterior inside an estimator or a model of a table."""
    inner = getattr(model, "estimator", model)
    return getattr(inner, "posterior_", inner).dtype


RENAMED = {f"config__{old}": f"config__{new}" for old, new in gpn.GPNConfig.renamed.items()}


def check_same(found: Any, wanted: Any, where: str, tolerance: float = TOLERANCE) -> None:
    """Numbers agree within the tolerance, anything else is equal; new names may have come up."""
    if isinstance(wanted, dict):
        wanted = {RENAMED.get(name, name): item for name, item in wanted.items()}
        assert set(found) >= set(wanted), where
        for name, item in wanted.items():
            check_same(found[name], item, f"{where}, {name}", tolerance)
    elif are_numbers(wanted):
        assert are_numbers(found), f"{where}: {found}"
        a, b = np.array(found, np.float64), np.array(wanted, np.float64)
        assert a.shape == b.shape, where
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=where)
    elif isinstance(wanted, list):
        assert isinstance(found, list), where
        assert len(found) == len(wanted), where
        for i, pair in enumerate(zip(found, wanted, strict=True)):
            check_same(*pair, f"{where}, {i}", tolerance)
    else:
        assert type(found) is type(wanted), where
        assert found == wanted, where


def are_numbers(value: Any) -> bool:
    """Whether it is a number, or a list of nothing else; true and false are none."""
    if isinstance(value, list):
        return all(map(are_numbers, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ([1.0, 2.0001], [1.0, 2.0]),
        (0.0001, 0.0),
        ([[1.0]], [1.0]),
        ([1.0, 2.0, 3.0], [1.0, 2.0]),
        ({"a": 1.0}, {"a": 1.0, "b": 2.0}),
        ({"a": [1.0001]}, {"a": [1.0]}),
        ([True, False], [True, True]),
        (1.0, True),
        (None, 1.0),
        (["left"], ["right"]),
    ],
)
def test_a_difference_is_found(found: Any, wanted: Any) -> None:
    with pytest.raises(AssertionError):
        check_same(found, wanted, "example")


def test_rounding_is_no_difference() -> None:
    check_same({"a": [1.0 + 5e-7, 1e6 + 0.5], "b": 2}, {"a": [1.0, 1e6]}, "example")
