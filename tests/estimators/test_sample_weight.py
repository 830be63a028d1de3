"""A row counts as often as its weight says; in closed form its noise is σ²/c."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

import gpn
from gpn import ARDPrior, GPNConfig, GPNRegressor, TrainConfig
from gpn.estimators.validation import CopiesWarning, repeats
from tests.estimators.test_estimators import POOL, SHORT, X, Y


def test_a_weight_is_a_number_of_rows() -> None:
    quick = GPNRegressor(SHORT.replace(train=TrainConfig(steps=30)), random_state=0)
    twice = np.where(np.arange(120) < 60, 2, 0)
    weighted = clone(quick).fit(X, Y, POOL, sample_weight=twice).predict(POOL)
    doubled = np.concatenate([X[:60]] * 2), np.concatenate([Y[:60]] * 2)
    with pytest.warns(CopiesWarning, match="got 60 of 120 that are copies of others"):
        again = clone(quick).fit(*doubled, POOL).predict(POOL)
    np.testing.assert_allclose(weighted, again, rtol=1e-9)
    with pytest.raises(ValueError, match="at least one non-zero number"):
        clone(quick).fit(X, Y, POOL, sample_weight=np.zeros(120))


def test_fractional_weights_are_rounded_in_proportion() -> None:
    weights = np.linspace(0.1, 2.1, 1000)
    counts = np.bincount(repeats(weights, np.zeros((1000, 1)), np.random.RandomState(0)))
    assert abs(counts.sum() - 1000) <= 1
    share = weights[:500].sum() / weights.sum()
    assert counts[:500].sum() / counts.sum() == pytest.approx(share, abs=0.01)


TABLE = np.random.default_rng(0).normal(size=(60, 2))
TARGETS = np.sin(2 * TABLE[:, 0]) + 0.2 * np.random.default_rng(1).normal(size=60)
NEW = np.random.default_rng(2).normal(size=(20, 2))


def predicted(weights: Any, rows: Any = slice(None)) -> Any:
    """Means of a fit in closed form with a given prior and noise, in the units of the data."""
    prior = ARDPrior(column_scales=(0.7, 0.7), linear=0.1)
    config = GPNConfig(generator="closed-form", prior=prior, noise_std=0.3)
    task = gpn.Task(TABLE[rows], TARGETS[rows])
    each = None if weights is None else torch.as_tensor(weights)
    return gpn.GPN(config).fit(task, rng=0, weights=each).mean(NEW).numpy()


def test_weights_are_continuous() -> None:
    """Ten, eleven and one and a half once counted ten times, once and once."""
    moved = []
    for weight in (1.0, 1.5, 2.0, 9.99, 10.0, 10.01, 11.0, 1e3):
        weights = np.ones(60)
        weights[7] = weight
        moved.append(predicted(weights))
    np.testing.assert_allclose(moved[2], predicted(None, [*range(60), 7]), atol=1e-9)
    steps = [np.abs(b - a).max() for a, b in itertools.pairwise(moved)]
    assert min(steps) > 0
    assert steps[3] == pytest.approx(steps[4], rel=0.02)  # 9.99 to 10 and 10 to 10.01
    assert steps[5] > 10 * steps[4]  # from 10.01 to 11
    assert steps[0] > steps[1] > steps[5]


def test_weighted_tables_are_fitted_in_closed_form(tmp_path: Path) -> None:
    """Labels of little weight are far off: weights tell that, and the file keeps them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    weights = np.where(np.arange(200) % 2, 1.0, 0.01)
    weights[:20] = 0.0
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=200) / np.sqrt(weights.clip(0.01))
    new = rng.normal(size=(200, 2))
    fits = [(slice(None), None), (slice(None), weights), (slice(20, None), 50 * weights[20:])]
    models = [
        GPNRegressor(random_state=0).fit(x[rows], y[rows], new, sample_weight=each)
        for rows, each in fits
    ]
    assert models[1].posterior_.config.generator == "closed-form"
    plain, weighted, scaled = (
        np.sqrt(np.mean((model.predict(new) - np.sin(2 * new[:, 0])) ** 2)) for model in models
    )
    assert weighted < 0.5 * plain
    assert weighted == pytest.approx(scaled, rel=1e-3)
    models[1].save(tmp_path / "m.gpn")
    loaded = gpn.load(tmp_path / "m.gpn")
    expected = models[1].predict(new, return_std=True)
    np.testing.assert_allclose(loaded.predict(new, return_std=True), expected, rtol=1e-6)


def test_weights_are_for_numbers_in_closed_form(line: gpn.Task, quick: GPNConfig) -> None:
    with pytest.raises(ValueError, match=r"weights of labels must go with .*'closed-form'"):
        gpn.GPN(quick).fit(line, rng=0, weights=torch.ones(len(line.x_obs)))
