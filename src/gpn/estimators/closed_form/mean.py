"""A second model inside the posterior: its cross-fitted predictions are a column, or the mean.

Predictions of labeled rows come from a model that has not seen them, so that the posterior learns
how far they can be trusted; a new row gets the mean prediction of all folds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from gpn.estimators.closed_form.trees import Trees

Array = NDArray[Any]
Rows = NDArray[np.float64]

FOLDS = 5
MIN_LABELS = 20
FEW_LABELS = 2000
MAX_TARGETS = 4
MAX_ROWS_PER_THREAD = 10_000


@dataclass(frozen=True)
class MeanModel:
    """Predictions ``(n, o)`` at new rows; `trees` where they are boosted trees, else `models`.

    as_mean: whether the prior's mean is the prediction; otherwise it is one more input column.
    """

    trees: tuple[Trees, ...] = ()
    models: tuple[tuple[Any, ...], ...] = ()
    as_mean: bool = False

    def predict(self, X: Array) -> Rows:
        if self.trees:
            return np.stack([trees.predict(X) for trees in self.trees], axis=1)
        columns = [np.mean([each.predict(X) for each in some], axis=0) for some in self.models]
        return np.stack(columns, axis=1)


def cross_fit(X: Array, y: Rows, model: Any, on_fold: Callable[[], None]) -> tuple[Rows, MeanModel]:
    """Out-of-fold predictions of each label, and the model of new rows; None is boosted trees."""
    out_of_fold = np.zeros_like(y)
    fitted: list[list[Any]] = [[] for _ in y.T]
    folds = min(FOLDS, len(X))
    for rest, fold in KFold(folds, shuffle=True, random_state=0).split(X):
        for target, targets in enumerate(y.T):
            one = boosted_trees(len(X)) if model is None else clone(model)
            with few_threads(len(X)):
                one.fit(X[rest], targets[rest])
                out_of_fold[fold, target] = np.ravel(one.predict(X[fold]))
            fitted[target].append(one)
        on_fold()
    if model is None:
        return out_of_fold, MeanModel(trees=tuple(map(Trees.of, fitted)))
    return out_of_fold, MeanModel(models=tuple(map(tuple, fitted)))


@contextmanager
def few_threads(n: int) -> Iterator[None]:
    """One thread for scikit-learn's trees of few rows, where more of them wait for each other."""
    if n > MAX_ROWS_PER_THREAD:
        yield
        return
    with threadpool_limits(1, user_api="openmp"):
        yield


def boosted_trees(n: int) -> HistGradientBoostingRegressor:
    """Small leaves while labels are few."""
    leaf = 5 if n < FEW_LABELS else 20
    return HistGradientBoostingRegressor(
        max_iter=200, min_samples_leaf=leaf, early_stopping=False, random_state=0
    )
