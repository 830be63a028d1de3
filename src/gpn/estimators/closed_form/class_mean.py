"""A second classifier inside the posterior: its cross-fitted log-odds are columns, or the mean.

Log-odds of labeled rows come from a model that has not seen them, scaled so that they are
calibrated; a new row gets the mean of all folds.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from gpn.estimators.closed_form.mean import few_threads
from gpn.estimators.closed_form.trees import Trees

Array = NDArray[Any]
Rows = NDArray[np.float64]

FOLDS = 5
MIN_LABELS = 50
FEW_LABELS = 2000
MAX_CLASSES = 4  # trees of more classes take longer than all the rest
MIN_PROBABILITY = 1e-4


@dataclass(frozen=True)
class ClassMean:
    """Log-odds ``(n, o)`` at new rows, centred; `trees` where they are boosted, else `models`.

    as_mean: whether they are the prior's mean; otherwise they are more input columns.
    """

    n_classes: int
    trees: tuple[Trees, ...] = ()
    models: tuple[Any, ...] = ()
    scale: float = 1.0
    as_mean: bool = False

    def predict(self, X: Array) -> Rows:
        if self.trees:
            raw = np.stack([trees.predict(X) for trees in self.trees], axis=1)
            return centred(raw)
        odds = [log_odds(model, X, self.n_classes) for model in self.models]
        return self.scale * np.mean(odds, axis=0)


def cross_fit_classes(
    X: Array, y: NDArray[np.int64], n_classes: int, model: Any, on_fold: Callable[[], None]
) -> tuple[Rows, ClassMean]:
    """Out-of-fold log-odds of each label, and the model of new rows; None is boosted trees."""
    out_of_fold, fitted = np.zeros((len(y), n_classes)), []
    for rest, fold in _folds(X, y):
        one = boosted_classes(len(X)) if model is None else clone(model)
        with few_threads(len(X)):
            one.fit(X[rest], y[rest])
            out_of_fold[fold] = log_odds(one, X[fold], n_classes)
        fitted.append(one)
        on_fold()
    scale = calibrating_scale(out_of_fold, y)
    found = ClassMean(n_classes, models=tuple(fitted), scale=scale)
    if model is None:
        found = ClassMean(n_classes, trees=_scaled_trees(fitted, scale))
    return scale * out_of_fold, found


def has_folds(y: NDArray[np.int64]) -> bool:
    """Whether every fold leaves labels of two classes to learn from."""
    counts = np.sort(np.bincount(y, minlength=2))
    return bool(counts[-2] >= 2 and counts[-1] >= FOLDS)


def _folds(X: Array, y: NDArray[np.int64]) -> list[tuple[Array, Array]]:
    """Rows to learn from and the others; a class with few labels may be missing in some.

    Copies of a row share a fold: a model that has seen one knows the class of the others.
    """
    _, groups = np.unique(X, axis=0, return_inverse=True)
    options: dict[str, Any] = {"shuffle": True, "random_state": 0}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        if FOLDS <= int(groups.max()) + 1 < len(X):
            folds = StratifiedGroupKFold(FOLDS, **options).split(X, y, groups.ravel())
        else:
            folds = StratifiedKFold(FOLDS, **options).split(X, y)
        return [(rest, fold) for rest, fold in folds if len(fold)]


def check_class_mean(mean: Any) -> None:
    """Raise unless `mean` is one of the choices, or has the verbs of a classifier."""
    if mean is None or (isinstance(mean, str) and mean == "auto"):
        return
    if hasattr(mean, "fit") and hasattr(mean, "predict_proba") and not isinstance(mean, type):
        return
    raise ValueError(
        "mean must be 'auto', None or a scikit-learn classifier with predict_proba, got "
        f"{mean!r:.100}; try mean=HistGradientBoostingClassifier()."
    )


def boosted_classes(n: int) -> HistGradientBoostingClassifier:
    """Small leaves while labels are few."""
    leaf = 5 if n < FEW_LABELS else 20
    return HistGradientBoostingClassifier(
        max_iter=60,
        learning_rate=0.12,
        max_leaf_nodes=15,
        min_samples_leaf=leaf,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=0,
    )


def log_odds(model: Any, X: Array, n_classes: int) -> Rows:
    """log p of each class, minus their mean; a class that the model has not seen is improbable."""
    p = np.zeros((len(X), n_classes))
    p[:, np.asarray(model.classes_, dtype=np.int64)] = model.predict_proba(X)
    return centred(np.log(np.clip(p, MIN_PROBABILITY, 1.0)))


def centred(raw: Rows) -> Rows:
    """Logits whose sum is 0; one column is the log-odds of the second of two classes."""
    both = np.concatenate([-raw / 2, raw / 2], axis=1) if raw.shape[1] == 1 else raw
    return both - both.mean(1, keepdims=True)


def calibrating_scale(odds: Rows, y: NDArray[np.int64]) -> float:
    """The factor under which log-odds have the best log score (Guo et al. 2017)."""
    rows = np.arange(len(y))

    def loss(log_scale: float) -> float:
        return -float(log_softmax(np.exp(log_scale) * odds, axis=1)[rows, y].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-4.0, 1.0), method="bounded").x))


def _scaled_trees(models: list[HistGradientBoostingClassifier], scale: float) -> tuple[Trees, ...]:
    """The mean of all folds for each class; of two classes, for the second one's log-odds."""
    count = len(models[0]._predictors[0])
    every = [Trees.of(models, number) for number in range(count)]
    return tuple(
        replace(trees, value=trees.value * scale, baseline=trees.baseline * scale)
        for trees in every
    )
