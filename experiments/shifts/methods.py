"""Detectors: each is fitted to labeled rows and a pool, and returns a score of rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor, IsolationForest
from sklearn.neighbors import NearestNeighbors

from gpn import GPNRegressor
from gpn.estimators.ood.detector import Detector
from gpn.estimators.ood.thresholds import threshold_log_odds
from gpn.estimators.scaling import Scale

Rows = NDArray[np.float64]
Score = Callable[[Rows], Rows]

ENSEMBLE_TARGETS = 5


@dataclass(frozen=True)
class Fitted:
    """A score, larger for unknown rows, and its threshold for 5 % of false alarms."""

    score: Score
    threshold: float


@dataclass(frozen=True)
class ShiftMethod:
    """fit(labels, pool, seed); `takes_pool` says whether the pool changes anything.

    `fit_targets` fits the targets, too: fit_targets(labels, targets, pool, seed).
    """

    fit: Callable[[Rows, Rows | None, int], Fitted]
    takes_pool: bool = False
    fit_targets: Callable[[Rows, Rows, Rows | None, int], Fitted] | None = None


def fit_gpn(labels: Rows, pool: Rows | None, seed: int) -> Fitted:
    """The detector of `GPNClassifier`, which does not look at its classes; rows scaled as there."""
    scale = Scale.robust(labels)
    unlabeled = None if pool is None else scale.apply(pool)
    found = Detector.fit(scale.apply(labels), unlabeled, seed)
    limit = threshold_log_odds(found.reference, 0.05)
    return Fitted(lambda rows: found.log_odds(scale.apply(rows)), limit)


def fit_regressor(labels: Rows, targets: Rows, pool: Rows | None, seed: int) -> Fitted:
    """`GPNRegressor` with its defaults, on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    model = GPNRegressor(random_state=seed).fit(labels, targets, X_unlabeled=pool)
    torch.set_num_threads(before)
    return Fitted(model.ood_score, model.threshold(0.05))


def fit_neighbours(labels: Rows, pool: Rows | None, seed: int) -> Fitted:
    scale = Scale.of(labels)
    near = NearestNeighbors(n_neighbors=min(5, len(labels) - 1)).fit(scale.apply(labels))
    own = near.kneighbors()[0].mean(1)  # without the row itself
    return Fitted(
        lambda rows: near.kneighbors(scale.apply(rows))[0].mean(1), float(np.quantile(own, 0.95))
    )


def fit_forest(labels: Rows, pool: Rows | None, seed: int) -> Fitted:
    forest = IsolationForest(n_estimators=100, random_state=seed).fit(labels)
    own = -forest.score_samples(labels)
    return Fitted(lambda rows: -forest.score_samples(rows), float(np.quantile(own, 0.95)))


def fit_mahalanobis(labels: Rows, pool: Rows | None, seed: int) -> Fitted:
    scale = Scale.of(labels)
    scaled = scale.apply(labels)
    n_columns = labels.shape[1]
    covariance = np.cov(scaled.T).reshape(n_columns, n_columns)
    precision = np.linalg.pinv(covariance + 1e-6 * np.eye(n_columns))

    def score(rows: Rows) -> Rows:
        centred = scale.apply(rows)
        return np.einsum("ij,jk,ik->i", centred, precision, centred)

    return Fitted(score, float(np.quantile(score(labels), 0.95)))


def fit_ensemble(labels: Rows, pool: Rows | None, seed: int) -> Fitted:
    """The variance between trees that predict random functions of the columns."""
    rng = np.random.default_rng(seed)
    scale = Scale.of(labels)
    scaled = scale.apply(labels)
    targets = np.tanh(scaled @ rng.normal(size=(labels.shape[1], ENSEMBLE_TARGETS)))
    forest = ExtraTreesRegressor(100, min_samples_leaf=3, bootstrap=True, random_state=seed)
    forest.fit(scaled, targets)

    def score(rows: Rows) -> Rows:
        each: Any = np.stack([tree.predict(scale.apply(rows)) for tree in forest.estimators_])
        return each.var(0).sum(1)

    return Fitted(score, float(np.quantile(score(labels), 0.95)))


METHODS = {
    "gpn": ShiftMethod(fit_gpn, takes_pool=True, fit_targets=fit_regressor),
    "knn": ShiftMethod(fit_neighbours),
    "isolation-forest": ShiftMethod(fit_forest),
    "mahalanobis": ShiftMethod(fit_mahalanobis),
    "ensemble": ShiftMethod(fit_ensemble),
}
