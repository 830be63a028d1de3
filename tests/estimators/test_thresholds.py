"""The scores that set the threshold of `is_ood`, and the share of known rows it flags."""

from typing import Any

import numpy as np
import pytest

import gpn
from gpn import GPNClassifier, GPNConfig, GPNRegressor, MLPTrunk, TrainConfig
from gpn.estimators.thresholds import (
    FOLDS,
    MIN_LABELS_TO_FOLD,
    choose_rule,
    class_folds,
    held_out_rows,
    threshold_of,
)
from tests.estimators.test_estimators import POOL, SHORT, X, Y

RNG = np.random.default_rng(1)


def test_the_threshold_comes_from_all_labels() -> None:
    """Each is left out of some fits of the detector; a network holds labels out for noise only."""
    model = GPNRegressor(SHORT, random_state=0).fit(X, Y, X_unlabeled=POOL)
    assert len(model.reference_scores_) == len(X)
    few = GPNRegressor(SHORT, random_state=0).fit(X[:30], Y[:30], X_unlabeled=POOL)
    assert len(few.reference_scores_) == 30


@pytest.mark.parametrize("n", [5, 19, 100])
def test_at_most_the_share_asked_for_of_known_rows_is_flagged(n: int) -> None:
    """On average over fits, for any distribution of scores; with five no less than a sixth."""
    model, flagged = GPNRegressor(), []
    for _ in range(4000):
        model.reference_scores_ = np.sort(RNG.exponential(size=n))
        flagged.append(np.exp(-model.threshold(0.05)))  # the share of the distribution beyond it
    assert np.mean(flagged) == pytest.approx(max(0.05, 1 / (n + 1)), rel=0.1)


def test_few_labels_of_an_exact_posterior_are_scored_by_leave_one_out() -> None:
    """Leave-one-out scores set the threshold, and evidence sets the prior."""
    model = GPNRegressor(GPNConfig(train=TrainConfig(steps=600)), random_state=0)
    few, noisy = X[:45], Y[:45] + RNG.normal(0, 1, 45)
    model.fit(few, noisy, X_unlabeled=POOL)
    assert model.posterior_.config.anchor == "joint"
    assert len(model.reference_scores_) == 45
    known, ood = RNG.uniform(-1, 1, (500, 2)), RNG.uniform(2, 3, (500, 2))
    assert model.is_ood(known).mean() < 0.12
    assert model.is_ood(ood).mean() > 0.95
    config = model.posterior_.config
    assert config.noise_std == pytest.approx(1 / noisy.std(), rel=0.4)
    asked = model.config.replace(prior=gpn.MLPPrior(), noise_std=0.3)
    used = GPNRegressor(asked, random_state=0).fit(few, noisy, X_unlabeled=POOL).posterior_.config
    assert (used.prior, used.noise_std) == (gpn.MLPPrior(), 0.3)


@pytest.mark.parametrize("n", [80, pytest.param(400, marks=pytest.mark.slow)])
def test_labels_without_noise_leave_known_rows_known(n: int) -> None:
    """There the network's error is larger than the exact spread: only held-out rows show it."""
    x, new = RNG.normal(size=(n, 12)), RNG.normal(size=(400, 12))
    pool = np.concatenate([RNG.normal(size=(200, 12)), 3 * RNG.normal(size=(200, 12))])
    network = GPNConfig(generator="affine")
    model = GPNRegressor(network, random_state=0).fit(x, x @ np.arange(12.0), X_unlabeled=pool)
    assert len(model.reference_scores_) == n
    assert model.is_ood(new).mean() < 0.2
    assert model.is_ood(4 * new).mean() > 0.9


def test_a_rare_class_is_never_held_out_whole() -> None:
    y = np.zeros(100, dtype=int)
    y[7] = 1
    model = GPNClassifier(SHORT.replace(train=TrainConfig(steps=5)), random_state=1)
    assert model.fit(X[:100], y, X_unlabeled=POOL).classes_.tolist() == [0, 1]


def test_copies_of_a_row_are_not_held_out_from_themselves() -> None:
    """Weights of three: every held-out row leaves with all of its copies."""
    rows = np.repeat(np.arange(80), 3)
    held_out = held_out_rows(rows, None, np.random.RandomState(0))
    assert not set(np.delete(rows, held_out)) & set(rows[held_out])
    assert len(set(rows[held_out])) == 19
    few = held_out_rows(np.repeat(np.arange(20), 3), None, np.random.RandomState(0))
    assert len(few) == 0, "twenty labels are few, however often they are repeated"


def forty_labels(seed: int) -> tuple[Any, Any, Any]:
    """Rows of N(0, I) with two classes, a wider pool, and new rows of N(0, I)."""
    rng = np.random.default_rng(seed)
    x, new = rng.normal(size=(40, 2)), rng.normal(size=(500, 2))
    model = GPNClassifier(FOLLOWING, random_state=seed)
    return model.fit(x, x[:, 0] > 0, 2 * rng.normal(size=(100, 2))), x, new


FOLLOWING = GPNConfig(
    anchor="joint",
    n_axes=15,
    noise_axes=20,
    reference_rows=64,
    trunk=MLPTrunk(widths=(32,), fourier=16),
    train=TrainConfig(steps=80, pool_batch=16, learning_rate=2e-2),
)


def test_few_labels_of_classes_flag_no_more_than_asked_for() -> None:
    """Scores of labels that were learnt let three times as many new rows through."""
    flagged, before = [], []
    for seed in (1, 2):
        model, x, new = forty_labels(seed)
        assert len(model.reference_scores_) == 40
        flagged.append(model.is_ood(new).mean())
        learnt = threshold_of(model.ood_score(x), 0.05)
        before.append((model.ood_score(new) > learnt).mean())
    assert np.mean(flagged) <= 0.1
    assert np.mean(flagged) < np.mean(before)


def test_folds_share_out_every_class_but_never_its_only_label() -> None:
    classes = np.repeat([0, 1, 2, 3], [1, 2, 10, 7])
    groups = np.arange(20)
    parts = class_folds(groups, classes, np.random.RandomState(0))
    held_out = np.concatenate(parts)
    assert len(parts) == FOLDS
    assert sorted(held_out) == list(range(1, 20)), "each once, but for the first"
    for rows in parts:
        assert set(np.delete(classes, rows)) == {0, 1, 2, 3}
        assert np.bincount(classes[rows], minlength=4)[2] in (3, 4)


def test_copies_share_a_fold_and_few_labels_have_no_folds() -> None:
    groups = np.repeat(np.arange(9), 3)
    parts = class_folds(groups, np.repeat(np.arange(9) % 2, 3), np.random.RandomState(0))
    assert all(len(rows) == 9 and len(set(groups[rows])) == 3 for rows in parts)
    few = np.arange(MIN_LABELS_TO_FOLD - 1)
    assert class_folds(few, few % 2, np.random.RandomState(0)) == []
    model = GPNClassifier(SHORT.replace(train=TrainConfig(steps=2)), random_state=0)
    model.fit(X[:4], [0, 0, 1, 1], POOL)
    np.testing.assert_allclose(model.reference_scores_, np.sort(model.ood_score(X[:4])))


def test_other_methods_of_classes_are_cross_fitted_too() -> None:
    settings = {"train": TrainConfig(steps=20)}
    model = gpn.PosteriorClassifier("dropout", settings=settings, random_state=0)
    model.fit(X[:30], X[:30, 0] > 0, POOL)
    assert len(model.reference_scores_) == 30
    assert not np.allclose(model.reference_scores_, np.sort(model.ood_score(X[:30])))


@pytest.mark.parametrize(
    ("n", "classes", "has_loo", "learnt", "rule"),
    [
        (80, False, True, 61, "held_out"),
        (40, False, True, 40, "leave_one_out"),
        (40, False, False, 40, "held_out"),
        (40, True, False, 40, "cross_fitted"),
        (4, True, False, 4, "held_out"),
    ],
)
def test_one_rule_is_chosen_by_the_number_of_labels(
    n: int, classes: bool, has_loo: bool, learnt: int, rule: str
) -> None:
    labels = np.arange(n) % 2 if classes else None
    rows, chosen = choose_rule(np.arange(n), labels, np.random.RandomState(0), has_loo=has_loo)
    assert len(rows) == learnt
    assert getattr(chosen, "func", chosen).__name__ == rule
