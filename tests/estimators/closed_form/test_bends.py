"""Long tails with a linear effect stay straight; those with another effect stay bent."""

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from gpn import GPNRegressor
from gpn.estimators.closed_form.bends import straightened
from gpn.estimators.scaling import BEND, Scale

N, COLUMNS = 200, 4


def tails(seed: int = 0) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return np.exp(rng.normal(size=(N, COLUMNS))), rng


def n_bent(scale: Scale) -> int:
    assert scale.bend is not None
    return int((scale.bend == BEND).sum())


@pytest.mark.parametrize(("effect", "straight"), [(np.asarray, True), (np.log, False)])
def test_columns_are_straight_where_their_effect_is_linear(
    effect: Callable[[np.ndarray], np.ndarray], straight: bool
) -> None:
    X, rng = tails()
    y = effect(X).sum(1, keepdims=True) + 0.3 * rng.normal(size=(N, 1))
    scale = Scale.robust(X)
    n = n_bent(scale)
    assert n >= COLUMNS - 1
    assert n_bent(straightened(scale, X, y)) == (0 if straight else n)


def test_a_cell_typed_wrong_stays_bent() -> None:
    X, rng = tails()
    y = np.log(X).sum(1, keepdims=True) + 0.3 * rng.normal(size=(N, 1))
    X[3, 1] = 1e9
    scale = Scale.robust(X)
    assert scale.scale[1] < 3  # the cell does not make the column's scale
    assert n_bent(straightened(scale, X, y)) == n_bent(scale)


def test_a_linear_target_is_found_nearly_as_well_as_by_least_squares() -> None:
    """With bent columns the error was seven times that of least squares."""
    X, rng = tails()
    weights = np.array([1.0, -2.0, 0.5, 1.5])
    y = X @ weights + 3.0 + rng.normal(size=N)
    new = np.exp(rng.normal(size=(500, COLUMNS)))
    truth = new @ weights + 3.0
    model = GPNRegressor(mean=None, random_state=0).fit(X, y)
    errors = [
        np.sqrt(np.mean((each.predict(new) - truth) ** 2))
        for each in (model, LinearRegression().fit(X, y))
    ]
    assert errors[0] < 1.6 * errors[1]
