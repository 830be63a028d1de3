"""A pool never hurts: its trees must help the score, and its gate what known labels can bear."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from gpn import GPNClassifier, GPNRegressor
from gpn.estimators.ood.detector import Detector
from gpn.estimators.ood.gate import MAX_COST, bearable_share, gate_cost
from gpn.estimators.ood.pool import (
    SURE,
    Odds,
    PoolOdds,
    auc,
    auc_gain,
    placements,
    unlike_labels,
)

RNG = np.random.default_rng(0)


def test_the_cost_of_a_gate_is_the_loss_of_the_mixture() -> None:
    y, doubt = RNG.normal(size=(400, 2)), RNG.uniform(0, 0.9, 400)
    known, unknown = stats.norm.logpdf(y), stats.norm.logpdf(y, scale=3)
    mixed = np.log((1 - doubt[:, None]) * np.exp(known) + doubt[:, None] * np.exp(unknown))
    assert gate_cost(doubt, known, unknown) == pytest.approx((known - mixed).sum(1).mean())
    assert gate_cost(np.zeros(400), known, unknown) == 0
    assert gate_cost(doubt, unknown - 800, unknown) < 0, "a label that surprises gains"


def detector_with(sureness: float) -> Detector:
    rows = RNG.normal(size=(300, 3))
    found = Detector.fit(rows, None, 0)
    pool = PoolOdds((1.0,), 0.0, 0.9, 0.0, 0.5, sureness)
    return replace(found, share=0.3, pool=pool)


def test_a_sure_pool_may_cost_more_and_labels_that_surprise_allow_any_share() -> None:
    unsure, sure = detector_with(2.5), detector_with(100.0)
    odds = unsure.reference
    y = np.clip(RNG.normal(size=(300, 1)), -2, 2)
    known, unknown = stats.norm.logpdf(y), stats.norm.logpdf(y, scale=3)
    share = bearable_share(unsure, odds, known, unknown)
    doubt = replace(unsure, share=share).doubt(odds)
    assert share < 0.3
    assert gate_cost(doubt, known, unknown) <= MAX_COST
    assert bearable_share(sure, odds, known, unknown) == 0.3
    assert bearable_share(unsure, odds, unknown - 1, unknown) == 0.3


def test_the_gain_of_a_score_is_the_difference_of_areas() -> None:
    low, high = RNG.normal(size=(2, 500)), RNG.normal(0.5, 1, (2, 300))
    for own in placements(low[0], high[0]):
        assert own.mean() == pytest.approx(auc(low[0], high[0]))
    both = auc_gain((low[0], high[0]), (low.sum(0), high.sum(0)))
    assert both[0] == pytest.approx(auc(low.sum(0), high.sum(0)) - auc(low[0], high[0]))
    gains = []
    for _ in range(300):
        a, b = RNG.normal(size=(2, 500)), RNG.normal(0.5, 1, (2, 300))
        gains.append(auc_gain((a[0], b[0]), (a.sum(0), b.sum(0)))[0])
    assert both[1] == pytest.approx(np.std(gains), rel=0.15)


def test_a_pool_whose_rows_the_score_knows_already_adds_nothing() -> None:
    """Trees that tell pool rows from labels worse than the score does would add noise to it."""
    labels, pool = RNG.normal(size=300), RNG.normal(4, 1, 300)
    noise, more = RNG.normal(size=(2, 300)) + np.array([[0.0], [0.8]])
    assert PoolOdds.fit(Odds(labels, noise[None]), Odds(pool, more[None])) is None
    same = RNG.normal(size=300)
    assert PoolOdds.fit(Odds(labels, noise[None]), Odds(same, more[None])) is not None


def test_each_kind_of_trees_counts_as_far_as_unseen_rows_confirm_it() -> None:
    """Normal scores of two kinds: the log odds of both together are their weighted sum."""
    shifts = np.array([[2.0], [1.0], [-1.0]])
    labels, pool = RNG.normal(size=(3, 4000)), RNG.normal(size=(3, 4000)) + shifts
    known, unknown = (Odds(np.zeros(4000), odds) for odds in (labels, pool))
    found = PoolOdds.fit(known, unknown)
    assert found is not None
    np.testing.assert_allclose(found.coefficients, [2.0, 1.0, 0.0], atol=0.15)
    assert found.auc > auc(labels[0], pool[0])
    assert PoolOdds.restored(found.stored()) == replace(found, sureness=SURE)


def test_each_pool_row_counts_once() -> None:
    labels, pool = RNG.normal(size=(20, 2)), RNG.normal(size=(30, 2))
    again = pool[RNG.integers(30, size=5000)]
    found = unlike_labels(labels, np.concatenate([labels, pool, again]), 1000, RNG)
    assert found is not None
    np.testing.assert_array_equal(np.unique(found, axis=0), np.unique(pool, axis=0))


@pytest.mark.parametrize("kind", ["like", "copies", "far", "mixed"])
def test_known_rows_are_as_likely_with_a_pool_as_without(kind: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(700, 4))
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=700)
    labels, pool, new = slice(0, 150), x[150:300], slice(300, 700)
    pools = {"like": pool, "copies": pool[rng.integers(40, size=2000)], "far": pool + 100}
    rows = pools.get(kind, np.concatenate([pool[:75], pool[75:] + np.array([0, 2, 0, 0])]))
    losses = []
    for unlabeled in (None, rows):
        model = GPNRegressor(random_state=0, mean=None).fit(x[labels], y[labels], unlabeled)
        losses.append(-model.predict_distribution(x[new]).logpdf(y[new]).mean())
    assert losses[1] < losses[0] + 0.02


def test_classes_of_known_rows_are_as_likely_with_a_pool_as_without() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(500, 3))
    y = (x[:, 0] + 0.3 * rng.normal(size=500) > 0).astype(int)
    pool = rng.normal(size=(200, 3)) * [1, 1, 2]
    losses = []
    for unlabeled in (None, pool):
        model = GPNClassifier(random_state=0, mean=None).fit(x[:120], y[:120], unlabeled)
        p = model.predict_proba(x[120:])
        losses.append(-np.log(p[np.arange(380), y[120:]]).mean())
    assert losses[1] < losses[0] + 0.02


def test_a_perfect_gain_has_a_finite_sureness() -> None:
    """All rows gain alike, so that the gain has no standard error."""
    labels = Odds(np.linspace(1.0, 2.0, 50), np.full((1, 50), -5.0))
    pool = Odds(np.linspace(0.0, 0.5, 50), np.full((1, 50), 5.0))
    found = PoolOdds.fit(labels, pool)
    assert found is None or np.isfinite(found.sureness)
    gain, error = auc_gain((labels.outlier, pool.outlier), (np.zeros(50), np.ones(50)))
    assert gain == 0.5
    assert 0 < error < 0.01
