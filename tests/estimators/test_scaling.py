"""Scales of columns in the closed form: pixels share one, and no cell is extrapolated far."""

import numpy as np

from gpn import GPNRegressor
from gpn.estimators.scaling import Scale, lonely_value, share_a_unit

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


def test_a_bend_can_be_undone() -> None:
    values = np.exp(3 * RNG.normal(size=(200, 2)))
    scale = Scale.robust(values)
    assert scale.bend is not None
    assert (scale.bend == 3.0).all()
    np.testing.assert_allclose(scale.invert(scale.apply(values)), values, rtol=1e-9)


def test_a_very_long_tail_leaves_the_scale_to_the_bulk() -> None:
    """The deviation of such a column is ten times the spread of nine in ten of its values."""
    heavy = RNG.pareto(0.6, size=(300, 1))
    bulk = np.quantile(heavy, 0.9) - np.quantile(heavy, 0.1)
    assert heavy.std() > 10 * bulk
    assert Scale.robust(heavy).scale[0] < bulk
    mostly_zero = np.where(RNG.random((300, 1)) < 0.85, 0.0, 50.0)
    mostly_zero[::20] = 0.1
    assert Scale.robust(mostly_zero).scale[0] > 1


def test_a_value_that_many_rows_share_far_from_all_others_is_lonely() -> None:
    column = RNG.uniform(-1, 1, 100)
    assert lonely_value(column) is None
    for code in (-7.0, 12.0):
        spoilt = np.r_[np.full(10, code), column]
        assert lonely_value(spoilt) == code
    assert lonely_value(np.r_[np.full(2, -7.0), column]) is None, "two rows are too few"
    assert lonely_value(np.r_[np.full(10, -2.0), column]) is None, "near"
    assert lonely_value(np.r_[np.full(101, -7.0), column]) is None, "most rows"
    assert lonely_value(np.repeat([0.0, 1.0, 9.0], 20)) is None, "a column of three values"
