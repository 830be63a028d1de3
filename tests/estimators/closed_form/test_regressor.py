"""Tables in closed form: what far rows, few labels and a model inside do to a regressor."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import gpn
from gpn import GPNConfig, GPNRegressor
from gpn.estimators.validation import CopiesWarning

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (120, 2))
NEW = RNG.uniform(-2, 2, (300, 2))


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Each test draws the same numbers in any order of the tests."""
    global RNG
    RNG = np.random.default_rng(1)


def smooth(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sin(2 * x[:, 0]) + x[:, 1]


def steps(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(x[:, 0] > 0.3, 3.0, -1.0) + np.where(x[:, 1] > -0.7, 2.0, 0.0)


Y = smooth(X) + 0.1 * RNG.normal(size=len(X))
POOL = RNG.uniform(-2, 2, (500, 2))


@pytest.fixture(scope="module")
def model() -> GPNRegressor:
    return GPNRegressor(random_state=0).fit(X, Y)


def test_the_choice_is_on_the_configuration(model: GPNRegressor) -> None:
    config: Any = model.posterior_.config  # type: ignore[attr-defined]
    assert config.generator == "closed-form"
    assert len(config.prior.column_scales) == 2 + (0 if model.mean_ is None else 1)
    assert model.score(NEW, smooth(NEW)) > 0.99


@pytest.mark.parametrize("far", [[500.0, 500.0], [4821.0, -4821.0], [2.0**70, 0.0]])
def test_a_far_pool_row_changes_nothing(model: GPNRegressor, far: list[float]) -> None:
    spoilt = GPNRegressor(random_state=0).fit(X, Y, X_unlabeled=np.vstack([POOL, far]))
    np.testing.assert_allclose(spoilt.predict(NEW), model.predict(NEW))
    assert spoilt.is_ood([far]).all()


def test_a_far_labeled_row_leaves_the_others(model: GPNRegressor) -> None:
    rows, targets = np.vstack([X, [500.0, 0.0]]), np.append(Y, 0.0)
    assert GPNRegressor(random_state=0).fit(rows, targets).score(NEW, smooth(NEW)) > 0.95


def test_five_points_of_a_line_are_extrapolated() -> None:
    x = np.arange(5.0)[:, None]
    line = GPNRegressor(random_state=0).fit(x, 2 * x[:, 0])
    low, high = line.predict_interval([[10.0]])
    assert low[0] < 20.0 < high[0]
    assert line.predict([[10.0]])[0] == pytest.approx(20.0, abs=1.0)


def test_intervals_hold_new_labels_and_widen_where_nothing_is_known(model: GPNRegressor) -> None:
    labels = smooth(NEW) + 0.1 * RNG.normal(size=len(NEW))
    low, high = model.predict_interval(NEW)
    assert 0.9 < ((low < labels) & (labels < high)).mean() <= 1.0
    far_low, far_high = model.predict_interval(10 * NEW)
    assert (far_high - far_low).mean() > 3 * (high - low).mean()
    assert model.is_ood(NEW).mean() < 0.12
    assert model.is_ood(10 * NEW[np.abs(NEW).min(1) > 1]).mean() > 0.95


def test_trees_are_used_where_they_are_better() -> None:
    x = RNG.uniform(-2, 2, (400, 2))
    with_trees = GPNRegressor(random_state=0).fit(x, steps(x))
    alone = GPNRegressor(mean=None, random_state=0).fit(x, steps(x))
    assert with_trees.mean_ is not None
    assert alone.mean_ is None
    error = [np.mean((m.predict(NEW) - steps(NEW)) ** 2) for m in (with_trees, alone)]
    assert error[0] < error[1]


def test_trees_are_left_out_where_they_are_worse() -> None:
    x = RNG.normal(size=(100, 3))
    assert GPNRegressor(random_state=0).fit(x, x @ [1.0, 2.0, 3.0]).mean_ is None


def test_a_model_of_your_own_goes_inside(tmp_path: Path) -> None:
    forest = RandomForestRegressor(20, min_samples_leaf=3, random_state=0)
    found = GPNRegressor(mean=forest, random_state=0).fit(X, steps(X))
    assert found.mean_ is not None
    assert found.score(NEW, steps(NEW)) > 0.8
    with pytest.raises(TypeError, match="use pickle or joblib"):
        found.save(tmp_path / "own.gpn")


@pytest.mark.parametrize("mean", ["trees", LinearRegression, Y], ids=["typo", "class", "array"])
def test_a_mean_must_be_a_regressor(mean: Any) -> None:
    with pytest.raises(ValueError, match="mean must be 'auto', None or a scikit-learn regressor"):
        GPNRegressor(mean=mean).fit(X, Y)


def test_copies_of_few_rows_do_not_make_known_rows_unknown() -> None:
    """Cross-validation leaves copies out together; of more than 300 labels they are not, yet."""
    copied = GPNRegressor(mean=None, random_state=0)
    with pytest.warns(CopiesWarning, match="got 120 of 180 that are copies of others"):
        copied.fit(np.repeat(X[:60], 3, axis=0), np.repeat(Y[:60], 3))
    assert copied.is_ood(NEW).mean() < 0.2


def test_bad_questions_have_one_clear_answer(model: GPNRegressor) -> None:
    with pytest.raises(ValueError, match="quantiles must lie strictly between 0 and 1"):
        model.predict_quantiles(NEW, [])
    with pytest.raises(NotFittedError):
        GPNRegressor().threshold()
    few = GPNConfig(prior=gpn.ARDPrior(column_scales=(1.0,)), noise_std=0.1)
    with pytest.raises(ValueError, match="a scale for each column, 2 here, got 1"):
        GPNRegressor(few).fit(X, Y)


def test_a_linear_target_is_predicted_beyond_its_noise() -> None:
    x = RNG.normal(size=(60, 5))
    y = x @ np.arange(5.0) + 0.5 * RNG.normal(size=60)
    fresh = RNG.normal(size=(500, 5))
    truth = fresh @ np.arange(5.0)
    error = np.sqrt(np.mean((GPNRegressor(random_state=0).fit(x, y).predict(fresh) - truth) ** 2))
    assert error < 0.5


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("function", [smooth, steps])
def test_a_saved_model_predicts_the_same(tmp_path: Path, targets: int, function: Any) -> None:
    y = np.stack([function(X), X[:, 0]], 1)[:, :targets]
    y = y + 0.1 * RNG.normal(size=y.shape)
    fitted = GPNRegressor(random_state=0).fit(np.c_[X, np.exp(3 * X[:, 0])], y)
    fitted.save(tmp_path / "model.gpn")
    loaded = gpn.load(tmp_path / "model.gpn")
    rows = np.c_[NEW, np.exp(3 * NEW[:, 0])]
    before, after = fitted.predict_distribution(rows), loaded.predict_distribution(rows)
    for name in ("location", "scale", "freedom"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    np.testing.assert_array_equal(fitted.sample_y(rows, 2), loaded.sample_y(rows, 2))
    np.testing.assert_array_equal(fitted.functions(2)(rows), loaded.functions(2)(rows))
    np.testing.assert_array_equal(fitted.is_ood(3 * rows), loaded.is_ood(3 * rows))
    loaded.save(tmp_path / "again.gpn")
    again = gpn.load(tmp_path / "again.gpn")
    np.testing.assert_array_equal(again.predict(rows), fitted.predict(rows))


def test_a_setting_of_a_network_trains_one() -> None:
    short = GPNConfig(train=gpn.TrainConfig(steps=2, label_batch=16, pool_batch=16))
    network = GPNRegressor(short, random_state=0).fit(X, Y, X_unlabeled=POOL)
    assert network.posterior_.config.generator == "affine"  # type: ignore[attr-defined]


def test_images_have_no_closed_form() -> None:
    config = GPNConfig(generator="closed-form")
    with pytest.raises(ValueError, match="closed-form' needs rows"):
        gpn.GPN(config).fit(gpn.Task(X.reshape(-1, 1, 1, 2), Y))


def test_one_value_flags_no_known_row() -> None:
    with pytest.warns(gpn.GPNWarning, match="two values at least"):
        constant = GPNRegressor(random_state=0).fit(X, np.full(len(X), 3.0))
    assert constant.is_ood(X).mean() < 0.2
    np.testing.assert_allclose(constant.predict(NEW), 3.0, atol=1e-6)


def test_a_given_prior_is_used_as_it_is() -> None:
    prior = gpn.ARDPrior(column_scales=(1.0, 1.0), linear=0.5)
    config = GPNConfig(prior=prior, noise_std=0.1)
    given = GPNRegressor(config, random_state=0).fit(X, steps(X))
    assert given.posterior_.config.prior == prior  # type: ignore[attr-defined]
    assert given.mean_ is None


@pytest.mark.parametrize("setting", [{"n_axes": 7}, {"jitter": 0.1}, {"beta": 0.1}])
def test_no_setting_is_ignored(setting: dict[str, Any]) -> None:
    assert not GPNRegressor(GPNConfig(**setting))._is_closed_form(X, has_pool=False)


def test_the_closed_form_refuses_another_prior() -> None:
    config = GPNConfig(generator="closed-form", prior=gpn.MLPPrior())
    with pytest.raises(ValueError, match="needs an ARDPrior"):
        gpn.GPN(config).fit(gpn.Task(X, Y))


def test_any_estimator_of_the_closed_form_pairs_labels_with_their_rows() -> None:
    settings = {"generator": "closed-form"}
    named = gpn.PosteriorRegressor("gpn", settings=settings, random_state=0)
    named.fit(X, Y, X_unlabeled=POOL)
    low, high = named.predict_interval(NEW)
    assert (high - low).mean() < 1.5
