"""Estimators with a detector: unsure where rows are unknown, unchanged where they are known."""

import copy
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.tree import DecisionTreeRegressor

import gpn
from gpn import GPNClassifier, GPNConfig, GPNRegressor, TrainConfig
from gpn.estimators.intervals.distribution import LabelDistribution

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 4))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=150)
FAR = X[:40] + np.array([0.0, 30.0, 0.0, 0.0])
POOL = 2 * RNG.normal(size=(100, 4))
SHORT = GPNConfig(train=TrainConfig(steps=30))


@pytest.fixture(scope="module")
def regressor() -> GPNRegressor:
    return GPNRegressor(random_state=0, mean=None).fit(X, Y)


@pytest.fixture(scope="module")
def classifier() -> GPNClassifier:
    return GPNClassifier(SHORT, random_state=0).fit(X, X[:, 0] > 0, POOL)


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_far_rows_are_flagged_whatever_the_posterior_says(name: str, request: Any) -> None:
    model = request.getfixturevalue(name)
    for rows in (FAR, X + 20, X - 20, 100 * (X + 1)):
        assert model.is_ood(rows).mean() > 0.99
    new = np.random.default_rng(5).normal(size=(500, 4))
    assert model.is_ood(new).mean() < 0.12


def test_numbers_are_unsure_where_rows_are_unknown(regressor: GPNRegressor) -> None:
    mean, std = regressor.predict(FAR, return_std=True)
    assert (std > 0.95 * Y.std()).all(), "the prior's deviation is at least that of labels"
    low, high = regressor.predict_interval(FAR, observation_noise=False)
    assert (high - low > 3 * Y.std()).all()
    draws = regressor.sample_y(FAR, 2000)
    np.testing.assert_allclose(draws.std(1), std, rtol=0.25)
    np.testing.assert_allclose(draws.mean(1), mean, atol=0.2)
    _, covariance = regressor.predict(FAR, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-4)
    everything = regressor.predict_all(FAR)
    np.testing.assert_allclose(everything.std, std)
    np.testing.assert_allclose(everything.lower, regressor.predict_interval(FAR)[0])
    np.testing.assert_allclose(everything.ood_score, regressor.ood_score(FAR))


def test_the_gate_hardly_changes_what_is_known(regressor: GPNRegressor) -> None:
    new = RNG.normal(size=(400, 4))
    labels = np.sin(new[:, 0]) + 0.1 * RNG.normal(size=400)
    found = regressor.predict_distribution(new)
    plain = LabelDistribution(found.location, found.scale, found.freedom)
    assert -found.logpdf(labels).mean() < -plain.logpdf(labels).mean() + 0.03
    low, high = found.interval(0.95)
    assert 0.9 < ((low <= labels) & (labels <= high)).mean() < 0.995


def test_classes_are_even_where_rows_are_unknown(classifier: GPNClassifier) -> None:
    p = classifier.predict_proba(X[:40] + 1000)
    np.testing.assert_allclose(p, 0.5, atol=0.01)
    draws = classifier.sample_proba(X[:40] + 1000, 500)
    assert draws.std(-1).mean() > 0.1
    np.testing.assert_allclose(draws.mean(-1), 0.5, atol=0.15)


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_a_model_file_keeps_detector_and_gate(name: str, request: Any, tmp_path: Path) -> None:
    model = request.getfixturevalue(name)
    model.save(tmp_path / "model.gpn")
    loaded = gpn.load(tmp_path / "model.gpn")
    rows = np.concatenate([X, FAR])
    np.testing.assert_allclose(loaded.ood_score(rows), model.ood_score(rows), atol=1e-12)
    assert loaded.threshold(0.05) == model.threshold(0.05)
    if name == "regressor":
        np.testing.assert_allclose(loaded.predict_all(rows).upper, model.predict_all(rows).upper)
    else:
        np.testing.assert_allclose(loaded.predict_proba(rows), model.predict_proba(rows))


def test_wide_tables_with_a_pool_are_fitted_in_closed_form() -> None:
    wide = RNG.normal(size=(120, 15))
    model = GPNRegressor(random_state=0, mean=None).fit(wide, wide[:, 0], 3 * wide[:60])
    assert model.posterior_.config.generator == "closed-form"
    assert model.detector_ is not None


def test_other_methods_share_the_detector_but_not_the_gate() -> None:
    model = gpn.PosteriorRegressor("gp", random_state=0).fit(X[:60], Y[:60], POOL)
    assert model.is_ood(FAR).all()
    found = model.predict_distribution(X[:5])
    assert found.known is None


@pytest.mark.parametrize("freedom", [2.5, 5.0, np.inf])
def test_the_mixture_of_labels_has_the_moments_and_scores_of_its_draws(freedom: float) -> None:
    found = LabelDistribution(
        np.array([0.0, 1.0]),
        np.array([0.5, 2.0]),
        np.full(2, freedom),
        np.array([0.9, 0.3]),
        np.array([3.0, 1.0]),
    )
    first, second = found.rvs(200_000, 0), found.rvs(200_000, 1)
    y = np.array([0.4, -3.0])
    crps = np.abs(first - y[:, None]).mean(1) - np.abs(first - second).mean(1) / 2
    np.testing.assert_allclose(found.crps(y), crps, rtol=0.02)
    for q in (0.01, 0.5, 0.9):
        np.testing.assert_allclose(found.cdf(found.ppf(q)), q, atol=1e-6)
        np.testing.assert_allclose((first < found.ppf(q)[:, None]).mean(1), q, atol=0.005)
    np.testing.assert_allclose(np.log(found.pdf(y)), found.logpdf(y))
    if freedom > 4:
        np.testing.assert_allclose(found.std(), first.std(1), rtol=0.02)
    known = stats.t.pdf(y[0], freedom, 0.0, 0.5)
    assert found.pdf(y)[0] == pytest.approx(0.9 * known + 0.1 * stats.norm.pdf(y[0], 0.0, 3.0))


def quadratic(x: Any) -> Any:
    return 20 + 5 * x[:, 0] - 3 * x[:, 1] ** 2


@pytest.fixture(scope="module")
def with_wide_pool() -> GPNRegressor:
    rng = np.random.default_rng(0)
    x, pool = rng.uniform(-1, 1, (40, 2)), rng.uniform(-3, 3, (500, 2))
    return GPNRegressor(random_state=0).fit(x, quadratic(x), X_unlabeled=pool)


def test_a_wide_pool_leaves_the_posterior_at_known_rows(with_wide_pool: GPNRegressor) -> None:
    new = np.random.default_rng(1).uniform(-1, 1, (300, 2))
    far = np.random.default_rng(2).uniform(2, 3, (100, 2))
    _, known = with_wide_pool.predict(new, return_std=True)
    assert np.median(known) < 0.01
    assert np.mean(known > 1) < 0.15
    assert (with_wide_pool.predict(far, return_std=True)[1] > 2).all()


def test_calibration_narrows_known_rows_only(with_wide_pool: GPNRegressor) -> None:
    rng = np.random.default_rng(3)
    held_out, far = rng.uniform(-1, 1, (40, 2)), rng.uniform(2, 3, (100, 2))
    model = copy.copy(with_wide_pool).calibrate(held_out, quadratic(held_out))
    low, high = model.predict_interval(far, 0.9)
    assert ((low < quadratic(far)) & (quadratic(far) < high)).mean() > 0.9
    low, high = model.predict_interval(rng.uniform(-1, 1, (100, 2)), 0.9)
    assert np.median(high - low) < 0.1


def test_a_slow_pool_is_not_scaled_with_the_means_column() -> None:
    """The detector reads the pool in a second thread while the mean model is set."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (60, 2))
    rows = torch.from_numpy(rng.uniform(-2, 2, (3000, 2)))

    class Slow(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, number: int) -> Any:
            time.sleep(2e-4)
            return rows[number]

    y = np.where(x[:, 0] > 0.1, 3.0, -1.0)
    model = GPNRegressor(mean=DecisionTreeRegressor(max_depth=2), random_state=0)
    assert model.fit(x, y, X_unlabeled=Slow()).is_ood([[30.0, 0.0]]).all()
