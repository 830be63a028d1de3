"""The detector of a table: what it must see, and what it must not be disturbed by."""

import time

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from gpn.estimators.ood.detector import Detector, fit_trees
from gpn.estimators.ood.distances import N_DISTANCES, Distances
from gpn.estimators.ood.pool import auc
from gpn.estimators.ood.thresholds import threshold_log_odds

RNG = np.random.default_rng(0)
MIXING = RNG.normal(size=(2, 6))


def known_rows(n: int, seed: int) -> np.ndarray:
    """Six columns that depend on two numbers, in three clusters."""
    rng = np.random.default_rng(seed)
    centres = 4 * np.array([[0, 0], [1, 0], [0, 1]])[rng.integers(3, size=n)]
    return (centres + rng.normal(size=(n, 2))) @ MIXING + 0.1 * rng.normal(size=(n, 6))


LABELS, NEW = known_rows(200, 1), known_rows(400, 2)
DETECTOR = Detector.fit(LABELS, None, 0)


def area(detector: Detector, rows: np.ndarray) -> float:
    return auc(detector.log_odds(NEW), detector.log_odds(rows))


def moved(column: int | slice, size: float) -> np.ndarray:
    rows = NEW.copy()
    rows[:, column] += size * LABELS.std(0)[column]
    return rows


@pytest.mark.parametrize("size", [-1000.0, -20.0, 20.0, 1000.0])
@pytest.mark.parametrize("column", [0, 5, slice(None)])
def test_far_rows_score_higher_than_all_known_ones(column: int | slice, size: float) -> None:
    assert DETECTOR.log_odds(moved(column, size)).min() > DETECTOR.reference.max()


def test_what_is_further_away_scores_higher_up_to_the_end_of_numbers() -> None:
    row = LABELS[:1]
    sizes = [10.0, 1e2, 1e4, 1e6, 1e9]
    scores = [DETECTOR.probability(DETECTOR.log_odds(row + size))[0] for size in sizes]
    assert (np.diff(scores) > 0).all()
    assert scores[-1] < 1


def test_new_combinations_of_known_values_are_unknown() -> None:
    rng = np.random.default_rng(3)
    permuted = np.stack([rng.permutation(column) for column in NEW.T], axis=1)
    assert area(DETECTOR, permuted) > 0.95
    gap = (np.array([[4.0, 4.0]]) + 0.3 * rng.normal(size=(100, 2))) @ MIXING
    assert area(DETECTOR, gap) > 0.9


def test_distances_of_a_label_are_those_without_it() -> None:
    distances = Distances.of(LABELS)
    own = distances.of_labels()
    without = np.stack(
        [Distances.of(np.delete(LABELS, i, 0))(LABELS[i : i + 1])[0] for i in range(0, 200, 10)]
    )
    assert own.shape == (200, N_DISTANCES)
    np.testing.assert_allclose(own[::10, [0, 3, 4, 5]], without[:, [0, 3, 4, 5]], rtol=1e-6)
    np.testing.assert_allclose(own[::10, [1, 2]], without[:, [1, 2]], atol=0.15)


FAR_POOL = known_rows(200, 5) + 30
POOLS = {
    "like the labels": known_rows(300, 4),
    "the labels themselves": LABELS,
    "tiny": NEW[:5],
    "far": FAR_POOL,
    "half and half": np.concatenate([known_rows(150, 6), moved(2, 2.0)[:150]]),
}


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_never_hurts(name: str) -> None:
    """Nearly the AUC without one, also for shifts that the pool does not show."""
    detector = Detector.fit(LABELS, POOLS[name], 0)
    for rows in (moved(2, 2.0), moved(0, 5.0), moved(slice(None), 2.0)):
        assert area(detector, rows) > area(DETECTOR, rows) - 0.02
    if name in ("the labels themselves", "tiny"):
        assert detector.pool is None


def test_a_pool_of_other_rows_helps_to_see_them() -> None:
    """A part of a cluster that no label comes from, within the range of all distances."""
    is_other = LABELS[:, 0] > np.quantile(LABELS[:, 0], 0.3)
    rows = known_rows(900, 7)
    labels, others = LABELS[is_other], rows[rows[:, 0] < np.quantile(LABELS[:, 0], 0.25)]
    known = NEW[NEW[:, 0] > np.quantile(LABELS[:, 0], 0.3)]
    pool = np.concatenate([rows[rows[:, 0] > np.quantile(LABELS[:, 0], 0.3)][:100], others[:100]])
    areas = []
    for unlabeled in (None, pool):
        detector = Detector.fit(labels, unlabeled, 0)
        areas.append(auc(detector.log_odds(known), detector.log_odds(others[100:])))
    assert areas[1] > max(areas[0], 0.95)


def test_arrays_restore_the_detector() -> None:
    pool = POOLS["half and half"]
    for detector in (DETECTOR, Detector.fit(LABELS, pool, 0)):
        again = Detector.from_arrays(detector.arrays(), 6)
        np.testing.assert_allclose(again.log_odds(NEW), detector.log_odds(NEW), rtol=1e-9)
        assert again.share == detector.share


def test_labels_are_known_and_scores_are_probabilities() -> None:
    scores = DETECTOR.probability(DETECTOR.log_odds(NEW))
    assert ((scores >= 0) & (scores <= 1)).all()
    assert scores.mean() < 0.03


def test_a_fit_takes_a_moment() -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 20))
    started = time.process_time()
    detector = Detector.fit(rows, None, 0)
    assert time.process_time() - started < 8, "about one second on one core"
    started = time.process_time()
    detector.log_odds(rows)
    assert time.process_time() - started < 3


def grid(levels: int, columns: int) -> np.ndarray:
    axis = np.linspace(-1, 1, levels)
    return np.stack(np.meshgrid(*[axis] * columns), -1).reshape(-1, columns)


@pytest.mark.parametrize(
    ("levels", "columns", "has_pool"),
    [(45, 1, False), (45, 1, True), (7, 2, False), (7, 2, True), (3, 3, False)],
)
def test_rows_between_the_points_of_a_regular_design_are_known(
    levels: int, columns: int, has_pool: bool
) -> None:
    """A line between every two labels would flag up to 80 % of what lies between them."""
    rng = np.random.default_rng(0)
    labels, inside = grid(levels, columns), rng.uniform(-1, 1, (1000, columns))
    pool = rng.uniform(-2, 2, (500, columns)) if has_pool else None
    detector = Detector.fit(labels, pool, 0)
    limit = threshold_log_odds(detector.reference, 0.05)
    assert (detector.log_odds(inside) > limit).mean() < 0.05
    assert (detector.log_odds(inside + 20) > limit).all()


def test_doubts_of_labels_come_from_trees_that_have_not_seen_them() -> None:
    """Odds of labels by all trees, which have seen them, are lower than those of new rows."""
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(2, 2500, 3))
    pool = rng.normal(0.5, 1.5, (2000, 3))
    detector = Detector.fit(rows, pool, 0)
    unseen = detector.label_log_odds(rows, np.arange(2500)).mean()
    seen = detector.log_odds(rows).mean()
    assert abs(unseen - detector.log_odds(new).mean()) < 0.5 * (unseen - seen)


def test_trees_are_those_of_a_forest() -> None:
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(size=(80, 3)), rng.normal(1.0, 2.0, size=(200, 3))
    seed = int(np.random.default_rng(5).integers(2**31))
    forest = ExtraTreesClassifier(
        7, min_samples_leaf=4, max_depth=6, class_weight="balanced", random_state=seed
    )
    forest.fit(np.concatenate([known, unknown]), np.r_[np.zeros(80), np.ones(200)])
    trees = fit_trees(known, unknown, 7, (4, 6), np.random.default_rng(5))
    new = rng.normal(size=(50, 3)).astype(np.float32)
    np.testing.assert_allclose(trees.predict(new), forest.predict_proba(new)[:, 1], atol=1e-12)


def test_rows_in_single_precision_are_as_usual_as_before() -> None:
    """A tenth is no label's tenth after rounding: whole columns of known values would be new."""
    rng = np.random.default_rng(3)
    labels, rows = rng.integers(1, 4, size=(2, 300, 5)) / 10
    detector = Detector.fit(labels, None, 0)
    rounded = rows.astype(np.float32).astype(np.float64)
    assert not np.array_equal(rounded, rows)
    np.testing.assert_allclose(detector.log_odds(rounded), detector.log_odds(rows))
    numbers = np.arange(50)
    halves = labels.astype(np.float32).astype(np.float64)
    found = [detector.label_log_odds(each, numbers) for each in (labels, halves)]
    np.testing.assert_allclose(*found)
