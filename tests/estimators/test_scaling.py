"""Scales of columns in the closed form: pixels share one, and no cell is extrapolated far."""

import numpy as np

from gpn import GPNRegressor
from gpn.estimators.scaling import Scale, share_a_unit

RNG = np.random.default_rng(0)


def pixels() -> np.ndarray:
    values = RNG.integers(0, 17, (100, 20)).astype(float)
    values[:, 3] = RNG.random(100) < 0.03  # hardly ever lit
    values[:, 5] = 0.0
    return values


def test_pixels_share_a_scale() -> None:
    values = pixels()
    varies = np.arange(20) != 5
    np.testing.assert_array_equal(share_a_unit(values), varies)
    assert len(np.unique(Scale.robust(values).scale[varies])) == 1


def test_columns_of_other_units_do_not() -> None:
    values = pixels()
    assert not share_a_unit(values * 10.0 ** np.arange(20)).any()
    assert not share_a_unit(values + np.arange(20)).any()
    assert not share_a_unit(values[:, :8]).any()
    assert not share_a_unit(np.ones((5, 20))).any()


def test_rows_near_the_labels_are_scaled_as_ever() -> None:
    values = RNG.normal(size=(200, 3))
    scale = Scale.robust(values)
    near = 9 * np.abs(scale.apply(values)).max(0) * scale.scale + scale.shift
    np.testing.assert_allclose(scale.apply(near), (near - scale.shift) / scale.scale)


def test_a_cell_typed_wrong_is_not_extrapolated() -> None:
    x = RNG.normal(size=(60, 2))
    model = GPNRegressor(random_state=0).fit(x, 3 * x[:, 0] + x[:, 1])
    wrong = np.array([[1e6, 0.0], [1e140, 0.0]])
    mean, std = model.predict(wrong, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert np.abs(mean).max() < 1e4
    assert model.is_ood(wrong).all()
