"""The mean model inside a posterior: cross-fitted trees and networks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

import gpn
from gpn import GPNRegressor
from gpn.core.types import as_generator
from gpn.estimators.closed_form import choice, mean, networks
from gpn.estimators.closed_form.networks import FoldNetworks, fit_networks
from gpn.methods.gpn.fitting import closed_form

RNG = np.random.default_rng(0)
NONE = np.arange(0)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "MIN_STEPS", 200)


@pytest.fixture
def networks_for_few_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred labels count as too many for an exact posterior."""
    for module in (mean, closed_form):
        monkeypatch.setattr(module, "MAX_EXACT_LABELS", 200)
    monkeypatch.setattr(closed_form, "LANDMARKS", 30)
    monkeypatch.setattr(choice, "MAX_SCORED_LABELS", 40)
    monkeypatch.setattr(choice, "MAX_CROSS_VALIDATED", 200)
    monkeypatch.setattr(networks, "MIN_STEPS", 800)


def smooth(x: Any) -> Any:
    return np.sin(3 * x[:, 0]) * np.cos(2 * x[:, 1]) + x[:, 1]


def cross_fit(x: Any, y: Any, model: Any = None, **options: Any) -> Any:
    options = {"unseen": NONE, "on_step": lambda: None, **options}
    return mean.cross_fit(x, x, y, model, **options)


def test_few_labels_have_the_trees_of_a_random_forest() -> None:
    x, new = RNG.normal(size=(2, 300, 2))
    both = mean.usual_model(300).fit(x, smooth(x))
    forest = RandomForestRegressor(mean.FOREST_TREES, max_features=2, random_state=0)
    expected = (forest.fit(x, smooth(x)).predict(new) + both.boosting_.predict(new)) / 2
    assert np.abs(both.predict(new) - expected).mean() < 0.1 * expected.std()
    weights = np.where(x[:, 0] > 0, 1.0, 0.0)
    ignored = np.where(x[:, 0] > 0, smooth(x), 1e6)
    assert np.abs(mean.usual_model(300).fit(x, ignored, weights).predict(new)).max() < 10


def test_a_far_cell_is_no_error() -> None:
    x = RNG.normal(size=(60, 2))
    x[3, 1] = 1e300
    assert np.isfinite(mean.usual_model(60).fit(x, smooth(x[:, ::-1] * 0)).predict(x)).all()


def test_copies_of_a_row_share_a_fold() -> None:
    x = np.repeat(RNG.normal(size=(37, 2)), 3, axis=0)
    fold_of_row = np.zeros(len(x))
    for number, (rest, fold) in enumerate(mean.folds_of(x)):
        assert len(rest) + len(fold) == len(x)
        fold_of_row[fold] = number
    assert (fold_of_row.reshape(37, 3) == fold_of_row[::3, None]).all()
    assert len(set(fold_of_row)) == mean.FOLDS


def test_predictions_of_a_label_do_not_depend_on_it() -> None:
    x = RNG.normal(size=(60, 2))
    y = smooth(x)[:, None]
    before, _ = cross_fit(x, y, LinearRegression())
    for _, fold in mean.folds_of(x):
        changed = y.copy()
        changed[fold] += 10.0
        after, _ = cross_fit(x, changed, LinearRegression())
        np.testing.assert_allclose(after[fold], before[fold])


def test_a_network_does_not_learn_from_its_fold() -> None:
    x = RNG.normal(size=(100, 2))
    y, rests = smooth(x)[:, None], [np.arange(50), np.arange(50, 100)]
    changed = y.copy()
    changed[50:] += 10.0
    before, after = (fit_networks(x, targets, rests).predict(x) for targets in (y, changed))
    np.testing.assert_array_equal(before[0], after[0])
    assert np.abs(before[1] - after[1]).min() > 1


def test_unseen_labels_are_predicted_as_new_rows_are() -> None:
    x = RNG.normal(size=(80, 2))
    y, unseen = smooth(x)[:, None], np.array([3, 40, 77])
    predicted, model = cross_fit(x, y, LinearRegression(), unseen=unseen)
    np.testing.assert_allclose(predicted[unseen], model.predict(x, x)[unseen])
    y[unseen] += 100
    np.testing.assert_allclose(cross_fit(x, y, LinearRegression(), unseen=unseen)[0], predicted)


def test_arrays_are_the_networks() -> None:
    made = FoldNetworks(3, (4, 8, 8, 2), as_generator(0))
    again = FoldNetworks.from_arrays(made.arrays(), 4, 2)
    x = RNG.normal(size=(10, 4))
    np.testing.assert_array_equal(again.predict(x), made.predict(x))
    broken = {**made.arrays(), "layers.1.bias": np.full((3, 8), np.nan, np.float32)}
    with pytest.raises(ValueError, match="must have finite parameters"):
        FoldNetworks.from_arrays(broken, 4, 2)


@pytest.mark.usefixtures("networks_for_few_labels")
def test_networks_help_where_labels_are_too_many(tmp_path: Path) -> None:
    """Thirty landmarks cannot hold this function, networks can; a file holds both."""
    rng = np.random.default_rng(3)
    x, new = rng.uniform(-2, 2, (600, 2)), rng.uniform(-2, 2, (300, 2))
    model = GPNRegressor(random_state=0).fit(x, smooth(x))
    assert model.mean_ is not None
    assert model.mean_.networks is not None
    alone = GPNRegressor(random_state=0, mean=None).fit(x, smooth(x))
    error, error_alone = (np.abs(m.predict(new) - smooth(new)).mean() for m in (model, alone))
    assert error < 0.8 * error_alone
    low, high = model.predict_interval(new)
    assert 0.88 < ((low < smooth(new)) & (smooth(new) < high)).mean() < 0.995
    model.save(tmp_path / "model.gpn")
    np.testing.assert_array_equal(gpn.load(tmp_path / "model.gpn").predict(new), model.predict(new))


def test_networks_of_several_targets_have_weights_for_each(
    networks_for_few_labels: None,
) -> None:
    x = RNG.uniform(-2, 2, (250, 2))
    y = np.stack([smooth(x), np.sign(x[:, 0])], axis=1)
    predicted, model = cross_fit(x, y)
    assert model.weights.shape == (2, 2)
    assert (model.weights >= 0).all()
    assert predicted.shape == model.predict(x, x).shape == (250, 2)
