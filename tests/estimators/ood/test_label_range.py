"""Rows whose labels lie beyond all labels."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import gpn
from gpn import GPNRegressor
from gpn.estimators.ood.label_range import MIN_USUAL, OUTSIDE_SHARE, LabelRange, Spread
from gpn.estimators.ood.pool import auc


def wide(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The target depends on a sum of six columns: its largest values lie at no column's end."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6))
    return x, x.sum(1) + rng.normal(0, 0.2, n)


def test_the_probability_outside_is_that_of_a_students_t() -> None:
    location, scale = np.array([[0.0], [3.0]]), np.array([[1.0], [2.0]])
    low, high = np.array([-1.0]), np.array([4.0])
    for freedom in (4.0, np.inf):
        t = stats.t(freedom, location, scale)
        expected = (t.cdf(low) + t.sf(high))[:, 0]
        found = Spread(location, scale, np.array([freedom])).outside(low, high)
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_several_targets_lie_outside_where_one_does() -> None:
    location, scale = np.array([[0.0, 0.0], [0.0, 50.0]]), np.ones((2, 2))
    spread = Spread(location, scale, np.full(2, np.inf))
    inside, outside = spread.outside(np.full(2, -9.0), np.full(2, 9.0))
    assert inside < 1e-12
    assert outside > 1 - 1e-12


def test_evidence_is_bayes_rule() -> None:
    y = np.linspace(0.0, 1.0, 50)[:, None]
    spread = Spread(y, np.full((50, 1), 0.1), np.array([np.inf]))
    found = LabelRange.of(y, np.arange(50), spread, np.zeros(50))
    far = Spread(np.array([[5.0], [0.5]]), np.full((2, 1), 0.1), np.array([np.inf]))
    beyond, middle = found.log_odds(far)
    assert beyond == pytest.approx(np.log1p(OUTSIDE_SHARE / found.usual))
    assert middle < 1e-4
    assert found.usual >= MIN_USUAL


def test_rows_with_labels_beyond_all_labels_have_high_scores() -> None:
    """The distance to labels, and trees on columns, hardly know them."""
    x, y = wide(1500, 0)
    is_out = y > np.quantile(y, 0.9)
    rows, targets = x[~is_out], y[~is_out]
    model = GPNRegressor(random_state=0).fit(rows[:300], targets[:300])
    known, out = model.ood_score(rows[300:]), model.ood_score(x[is_out])
    by_rows = [model._log_odds(model._inputs(each)) for each in (rows[300:], x[is_out])]
    assert auc(known, out) > 0.9
    assert auc(*by_rows) < 0.8


def test_false_alarms_are_as_many_as_asked_for() -> None:
    shares = []
    for seed in range(6):
        x, y = wide(460, seed)
        model = GPNRegressor(random_state=0, mean=None).fit(x[:60], y[:60])
        shares.append(model.is_ood(x[60:]).mean())
    assert 0.02 < np.mean(shares) < 0.09


def test_a_saved_model_has_the_same_scores(tmp_path: Path) -> None:
    x, y = wide(80, 1)
    model = GPNRegressor(random_state=0, mean=None).fit(x, np.stack([y, -y], axis=1))
    model.save(tmp_path / "model.gpn")
    loaded = gpn.load(tmp_path / "model.gpn")
    np.testing.assert_array_equal(loaded.ood_score(2 * x), model.ood_score(2 * x))
    assert loaded.threshold(0.1) == model.threshold(0.1)
    every = model.predict_all(2 * x)
    np.testing.assert_allclose(every.ood_score, model.ood_score(2 * x), rtol=1e-9)


def test_labels_of_two_values_are_no_edge() -> None:
    """Half of the labels lie at each end, so that labels beyond say little."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    y = np.where(x[:, 0] > 0, 1.0, 0.0)
    model = GPNRegressor(random_state=0).fit(x[:80], y[:80])
    assert model.is_ood(x[80:]).mean() < 0.3
    assert model.is_ood([[30.0, 0.0]])[0]
