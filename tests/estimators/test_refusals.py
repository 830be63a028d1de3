"""Errors for rows, pools, classes and modules that do not fit."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gpn
from gpn import GPNClassifier, GPNRegressor
from gpn.estimators import SyntheticPoolWarning
from tests.estimators.small import SMALL
from tests.estimators.test_estimators import POOL, WORDS, X, Y

SET = TensorDataset(torch.from_numpy(POOL))
POOLS: dict[str, tuple[Any, str]] = {
    "loader": (DataLoader(SET), r"a torch Dataset.*got a DataLoader; pass .*loader\.dataset"),
    "text": ("pool.csv", r"got a path, 'pool\.csv'; read it.*gpn\.DiskPool\(path\)"),
    "path": (Path("pool.npy"), "got a path, 'pool.npy'"),
    "number": (3, "X_unlabeled must be rows like those of X .* got int"),
    "dict": ({"a": [1.0]}, "got dict"),
    "weights": (
        np.ones(120),
        r"got one of shape \(120,\); weights of labels go to .*sample_weight",
    ),
    "infinity": (np.full((4, 2), np.inf), "X_unlabeled must be .*got what contains infinity"),
    "wide": (
        np.ones((4, 3)),
        "X_unlabeled must be .*got one that has 3 features, but GPNRegressor",
    ),
    "deep": (np.ones((4, 2, 2)), r"X_unlabeled must have rows of the shape.* \(2,\), got \(2, 2\)"),
    "wide dataset": (TensorDataset(torch.ones(4, 3)), "X_unlabeled .*that has 3 features"),
    "empty": (POOL[:0], "X_unlabeled must be rows like those of X, got Found array with 0"),
}


@pytest.mark.parametrize(("pool", "message"), POOLS.values(), ids=POOLS.keys())
def test_errors_of_unlabeled_rows_name_them(pool: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        GPNRegressor(SMALL, random_state=0).fit(X, Y, pool)


@pytest.mark.parametrize(
    "pool", [SET, POOL.tolist(), torch.from_numpy(POOL), gpn.box([-3] * 2, [3] * 2)]
)
def test_every_pool_type_of_the_error_message_is_accepted(pool: Any) -> None:
    GPNRegressor(SMALL, random_state=0).fit(X, Y, pool)


def test_other_names_of_unlabeled_columns() -> None:
    frames = (pd.DataFrame(X, columns=["a", "b"]), Y, pd.DataFrame(POOL, columns=["a", "c"]))
    with pytest.raises(ValueError, match=r"X_unlabeled must be .*feature names should match"):
        GPNRegressor(SMALL, random_state=0).fit(*frames)


def test_the_synthetic_pool_warning_points_at_the_caller() -> None:
    with pytest.warns(SyntheticPoolWarning) as caught:
        GPNRegressor(SMALL, random_state=0).fit(X, Y)
    assert [entry.filename for entry in caught] == [__file__]


@pytest.mark.parametrize("shape", [(3, 2), (2, 2, 2, 2)])
def test_rows_of_any_axes_need_no_pool(shape: tuple[int, ...]) -> None:
    x = X[:, :1].repeat(np.prod(shape), 1).reshape(120, *shape)
    with pytest.warns(SyntheticPoolWarning):
        model = GPNRegressor(SMALL, module=nn.Flatten(), random_state=0).fit(x, Y)
    assert model.predict(x).shape == (120,)


def test_an_image_alone_is_no_batch_of_them() -> None:
    images = X.reshape(60, 1, 2, 2)
    model = GPNClassifier(SMALL, module=nn.Flatten(), random_state=0)
    model.fit(images, WORDS[:60], images)
    message = (
        r"X must be rows as in the fit, shape \(n, 1, 2, 2\), got \(1, 2, 2\); one row .*X\[None\]"
    )
    for ask in (model.predict, model.is_ood, lambda x: model.calibrate(x, WORDS[:1])):
        with pytest.raises(ValueError, match=message):
            ask(images[0])
    with pytest.raises(ValueError, match=r"got \(4, 1, 2, 3\)\."):
        model.predict(np.zeros((4, 1, 2, 3)))


def test_a_table_has_two_axes() -> None:
    model = GPNRegressor(SMALL, random_state=0).fit(X, Y, POOL)
    with pytest.raises(ValueError, match=r"shape \(n, 2\), got \(5, 2, 2\)"):
        model.predict(np.zeros((5, 2, 2)))
    with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
        model.predict(X[0])


def test_a_module_that_takes_other_rows() -> None:
    message = (
        r"must take rows of shape \(2,\), two of them .*\(2, 2\), got RuntimeError from it \(mat1"
    )
    with pytest.raises(ValueError, match=message):
        GPNRegressor(SMALL, module=nn.Linear(5, 4), random_state=0).fit(X, Y, POOL)


@pytest.mark.parametrize(
    ("y", "kind", "message"),
    [
        (["a", None, "b", "a"], ValueError, r"got None in 1 of 4 \(first: row 1\).*to X_unlabeled"),
        (["a", 1, "b", "a"], TypeError, "all texts or all numbers, got both"),
    ],
)
def test_classes_that_are_none(y: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        GPNClassifier(SMALL, random_state=0).fit(X[:4], np.array(y, dtype=object), POOL)


def test_log_probabilities() -> None:
    model = GPNClassifier(SMALL, random_state=0).fit(X, WORDS, POOL)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_proba = lambda _: np.array([[1.0, 0.0]])
        assert model.predict_log_proba(X[:1]).tolist() == [[0.0, -np.inf]]
