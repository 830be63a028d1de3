"""A second model inside the posterior: its cross-fitted predictions are a column, or the mean.

Predictions of labeled rows come from a model that has not seen them, so that the posterior learns
how far they can be trusted; a new row gets the mean prediction of all folds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from gpn.estimators.closed_form.networks import FoldNetworks, fit_networks
from gpn.estimators.closed_form.trees import Trees
from gpn.methods.gpn.fitting.closed_form import MAX_EXACT_LABELS

Array = NDArray[Any]
Rows = NDArray[np.float64]
Index = NDArray[np.int64]

FOLDS = 5
MIN_LABELS = 20
VERY_FEW_LABELS, FEW_LABELS = 600, 2000
MAX_TARGETS = 4
FLOAT32_RANGE = np.finfo(np.float32).min, np.finfo(np.float32).max
FOREST_TREES, FOREST_LEAVES, FOREST_COLUMNS = 50, 500, 20  # columns that a split is chosen from
MAX_ROWS_PER_THREAD = 10_000


@dataclass(frozen=True)
class MeanModel:
    """Predictions ``(n, o)`` at new rows: those of `models`, or of boosted `trees` and `networks`.

    weights: of trees and of networks, a pair for each target; None without networks. as_mean:
    whether the prior's mean is the prediction; otherwise it is one more input column.
    """

    trees: tuple[Trees, ...] = ()
    networks: FoldNetworks | None = None
    weights: Rows | None = None
    models: tuple[tuple[Any, ...], ...] = ()
    as_mean: bool = False

    def predict(self, X: Array, x: Rows) -> Rows:
        """At rows `X` in the units of the data, which are `x` once scaled."""
        if self.models:
            by_fold = [_predicted(models, X) for models in zip(*self.models, strict=True)]
            return np.mean(by_fold, axis=0)
        by_trees = np.stack([trees.predict(X) for trees in self.trees], axis=1)
        if self.networks is None or self.weights is None:
            return by_trees
        both = np.stack([by_trees, self.networks.predict(x).mean(0)], axis=2)
        return _weighted(both, self.weights)


def cross_fit(
    X: Array,
    x: Rows,
    y: Rows,
    model: Any,
    *,
    unseen: Index,
    on_step: Callable[[], None],
    weights: Rows | None = None,
) -> tuple[Rows, MeanModel]:
    """Predictions of each label by models that have not seen it, and the model of new rows.

    A label is predicted by the model without its fold; those of `unseen`, which are in no fold, by
    the mean of all models, as new rows are. Without a `model` these are boosted trees, and
    networks too where labels are too many for an exact posterior; non-negative least squares weighs
    the two. `weights` of labels go to all but the networks, and to a `model` that takes them.
    """
    seen = np.setdiff1d(np.arange(len(X)), unseen)
    folds = [(seen[rest], seen[fold]) for rest, fold in folds_of(X[seen])]
    has_networks = model is None and len(X) > MAX_EXACT_LABELS
    kind = usual_model(len(X)) if model is None else model
    predicted, fitted = np.zeros_like(y), []
    each = np.ones(len(X)) if weights is None else weights
    for rest, fold in folds:
        fitted.append(_fitted(X[rest], y[rest], kind, each[rest]))
        predicted[fold] = _predicted(fitted[-1], X[fold])
        on_step()
    if len(unseen):
        predicted[unseen] = np.mean([_predicted(models, X[unseen]) for models in fitted], axis=0)
    by_target = tuple(zip(*fitted, strict=True))
    if model is not None:
        return predicted, MeanModel(models=by_target)
    trees = tuple(map(_trees, by_target))
    if not has_networks:
        return predicted, MeanModel(trees=trees)
    networks = fit_networks(x, y, [rest for rest, _ in folds])
    by_networks = networks.predict(x)
    column = by_networks.mean(0)
    for number, (_, fold) in enumerate(folds):
        column[fold] = by_networks[number, fold]
    both = np.stack([predicted, column], axis=2)
    root = np.sqrt(each[seen])
    shares = np.stack(
        [nnls(both[seen, o] * root[:, None], y[seen, o] * root)[0] for o in range(y.shape[1])]
    )
    return _weighted(both, shares), MeanModel(trees=trees, networks=networks, weights=shares)


def nested_predictions(
    X: Array, y: Rows, model: Any, n_left_out: int, weights: Rows | None = None
) -> Rows:
    """What `cross_fit` would predict without the labels of fold k ``(k, n, o)``, for the first k.

    A row near a left-out label is else predicted by a model that knows this label, which tells it
    to whoever compares the row's own label with its prediction. Each model leaves out two folds:
    a row of fold i has the prediction of that without folds i and k, a row of fold k the mean of
    all that leave it out.
    """
    folds = [fold for _, fold in folds_of(X)]
    kind = usual_model(len(X)) if model is None else model
    each = np.ones(len(X)) if weights is None else weights
    pairs = [(i, k) for i, k in combinations(range(len(folds)), 2) if i < n_left_out]
    found, every = np.zeros((len(folds), *y.shape)), np.arange(len(X))
    for i, k in pairs:
        rest = np.setdiff1d(every, np.concatenate([folds[i], folds[k]]))
        models = _fitted(X[rest], y[rest], kind, each[rest])
        for one, other in ((i, k), (k, i)):
            predicted = _predicted(models, X[folds[one]])
            found[other][folds[one]] = predicted
            found[one][folds[one]] += predicted / (len(folds) - 1)
    return found[:n_left_out]


def folds_of(X: Array) -> list[tuple[Index, Index]]:
    """The other rows, and the rows, of each fold; copies of a row share a fold.

    A prediction that has seen the labels of a row's copies tells the label of the row itself, once
    their mean is known.
    """
    _, groups = np.unique(X, axis=0, return_inverse=True)
    n_groups = int(groups.max()) + 1
    if n_groups < FOLDS:
        groups, n_groups = np.arange(len(X)), len(X)
    fold = np.random.default_rng(0).permutation(n_groups)[groups.ravel()] % min(FOLDS, n_groups)
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(fold.max() + 1)]


def _fitted(X: Array, y: Rows, kind: Any, weights: Rows) -> list[Any]:
    """A model for each target."""
    models = [clone(kind) for _ in y.T]
    with few_threads(len(X)):
        has_weights = bool((weights != 1).any()) and has_fit_parameter(kind, "sample_weight")
        options = {"sample_weight": weights} if has_weights else {}
        return [one.fit(X, targets, **options) for one, targets in zip(models, y.T, strict=True)]


def _predicted(models: Iterable[Any], X: Array) -> Rows:
    """One column for each target's model."""
    return np.stack([np.ravel(model.predict(X)) for model in models], axis=1)


def _weighted(predictions: Rows, weights: Rows) -> Rows:
    """Σ_j weights[o, j] · predictions[n, o, j]."""
    return np.einsum("noj,oj->no", predictions, weights)


@contextmanager
def few_threads(n: int) -> Iterator[None]:
    """One thread for scikit-learn's trees of few rows, where more of them wait for each other."""
    if n > MAX_ROWS_PER_THREAD:
        yield
        return
    with threadpool_limits(1, user_api="openmp"):
        yield


class TreesOfBothKinds(RegressorMixin, BaseEstimator):
    """The mean of boosted trees and of a random forest, which follows noise less than either."""

    def fit(self, X: Array, y: Rows, sample_weight: Rows | None = None) -> "TreesOfBothKinds":
        self.boosting_ = boosted_trees(len(X)).fit(X, y, sample_weight)
        self.forest_ = random_forest(X, y, sample_weight)
        self.trees_ = Trees.mean([Trees.of([self.boosting_]), Trees.of_regression(self.forest_)])
        return self

    def predict(self, X: Array) -> Rows:
        return self.trees_.predict(X)


def random_forest(X: Array, y: Rows, weights: Rows | None) -> list[DecisionTreeRegressor]:
    """The trees of a `RandomForestRegressor`, one by one.

    A forest empties the filters of warnings for a moment at each tree, also for other threads.
    """
    rng = np.random.RandomState(0)
    each = np.ones(len(X)) if weights is None else weights
    rows = np.ascontiguousarray(np.clip(X, *FLOAT32_RANGE), np.float32)
    trees = []
    for _ in range(FOREST_TREES):
        seed = rng.randint(np.iinfo(np.int32).max)
        tree = DecisionTreeRegressor(
            min_samples_leaf=max(1, len(X) // FOREST_LEAVES),
            max_features=min(X.shape[1], FOREST_COLUMNS),
            random_state=seed,
        )
        drawn = np.random.RandomState(seed).randint(len(X), size=len(X))
        counts = np.bincount(drawn, minlength=len(X))
        trees.append(tree.fit(rows, y, sample_weight=each * counts, check_input=False))
    return trees


def usual_model(n: int) -> Any:
    """Two kinds of trees while labels are few, boosted ones alone beyond."""
    return TreesOfBothKinds() if n < FEW_LABELS else boosted_trees(n)


def _trees(models: Sequence[Any]) -> Trees:
    """The mean of fitted models of the kind of `usual_model`."""
    if not isinstance(models[0], TreesOfBothKinds):
        return Trees.of(models)
    return Trees.mean([model.trees_ for model in models])


def boosted_trees(n: int) -> HistGradientBoostingRegressor:
    """Smaller leaves and fewer trees while labels are few.

    Of very few labels trees of half as many leaves are as good, in half the time: on eleven tables
    they have 0.4 and 0.7 % less error with 150 and 500 labels, 2 % more with 1,200.
    """
    leaf, trees = (5, 100) if n < FEW_LABELS else (20, 200)
    return HistGradientBoostingRegressor(
        max_iter=trees,
        max_leaf_nodes=15 if n < VERY_FEW_LABELS else 31,
        min_samples_leaf=leaf,
        early_stopping=False,
        random_state=0,
    )
