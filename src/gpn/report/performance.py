"""Predictions against labels: points, confusion, baseline, confidence, and columns that matter."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpn.report.rows import Array, feature_slices
from gpn.tables.model import TableModel

MAX_POINTS = 1500
MIN_BASELINE_ROWS = 10
PERMUTED_ROWS, MIN_PERMUTED_ROWS, MAX_PERMUTED_ROWS = 20_000, 50, 500
MAX_IMPORTANT = 12
SHARES = ("coverage_95", "accuracy", "set_coverage_95", "flagged")


def wilson(share: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """The Wilson interval of a share that was measured on n rows.

    (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)
    """
    z = float(norm.ppf((1 + level) / 2))
    centre, size = share + z**2 / (2 * n), 1 + z**2 / n
    half = z * np.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return max(0.0, float((centre - half) / size)), min(1.0, float((centre + half) / size))


def confidence(summary: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """95 % confidence intervals of the shares among the key figures."""
    return {name: wilson(summary[name], summary["rows"]) for name in SHARES if name in summary}


def points(
    estimator: Any, x: Array, y: Array, flagged: NDArray[np.bool_]
) -> dict[str, Array | list[int]]:
    """Prediction, 95 % interval and truth of at most 1,500 rows, and whether they are flagged."""
    some = np.random.default_rng(0).permutation(len(y))[:MAX_POINTS]
    found = estimator.predict_all(x[some])
    return {
        "rows": [int(i) for i in some],
        "true": y[some],
        "predicted": np.asarray(found.mean, float),
        "low": np.asarray(found.lower, float),
        "high": np.asarray(found.upper, float),
        "flagged": flagged[some].astype(float),
    }


def confusion(predicted: NDArray[np.int64], true: NDArray[np.int64], n_classes: int) -> Array:
    """How many rows of each true class (first axis) were predicted as each class."""
    counts = np.zeros((n_classes, n_classes))
    np.add.at(counts, (true, predicted), 1)
    return counts


def baseline(model: TableModel, x: Array, y: Array) -> dict[str, Any] | None:
    """The key figures of a simple model that was fitted to the stored labeled rows.

    Ridge regression, or the shares of the classes; None where the file stores too few rows.
    """
    record = model.record
    if record is None or record.x is None or record.y is None or len(record.x) < MIN_BASELINE_ROWS:
        return None
    if model.is_classifier:
        return _majority(record.y.astype(int), y.astype(int), len(model.estimator.classes_))
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
    error = ridge.fit(record.x, record.y).predict(x) - y
    values = {"rmse": np.sqrt(np.mean(error**2)), "mae": np.abs(error).mean()}
    if np.ptp(y) > 0:
        values["r2"] = 1 - np.mean(error**2) / y.var()
    return {"name": "ridge", "rows": len(record.x), **{k: float(v) for k, v in values.items()}}


def _majority(labels: Any, y: Any, n_classes: int) -> dict[str, Any]:
    counts = np.bincount(labels, minlength=n_classes)
    shares = (counts + 1) / (counts.sum() + n_classes)
    return {
        "name": "most frequent class",
        "rows": len(labels),
        "accuracy": float(np.mean(y == counts.argmax())),
        "nll": float(-np.log(shares[y]).mean()),
    }


def importance(model: TableModel, x: Array, y: Array | None, rows: Any) -> dict[str, Any]:
    """What happens when one column's values are shuffled among rows: error, and OOD score.

    error: the increase of the RMSE, of classes of the negative log likelihood, where labels `y` of
    `rows` are known. score: the mean absolute change of the OOD score.
    """
    columns = list(feature_slices(model.encoder))
    size = int(np.clip(PERMUTED_ROWS // len(columns), MIN_PERMUTED_ROWS, MAX_PERMUTED_ROWS))
    rng, estimator = np.random.default_rng(0), model.estimator
    chosen = rng.permutation(len(rows))[:size]
    here, labels = x[rows[chosen]], None if y is None else y[chosen]
    score, error = estimator.ood_score(here), _error(model, here, labels)
    found = []
    for name, place in columns:
        shuffled = here.copy()
        shuffled[:, place] = here[rng.permutation(len(here)), place]
        change = float(np.abs(estimator.ood_score(shuffled) - score).mean())
        rise = None if error is None else float(_error(model, shuffled, labels) or 0.0) - error
        found.append({"name": name, "score": change, "error": rise})
    return {"rows": len(here), "error": _leading(found, "error"), "score": _leading(found, "score")}


def _error(model: TableModel, x: Array, y: Array | None) -> float | None:
    if y is None:
        return None
    if model.is_classifier:
        p = model.estimator.predict_proba(x)[np.arange(len(y)), y.astype(int)]
        return float(-np.log(np.maximum(p, 1e-12)).mean())
    return float(np.sqrt(np.mean((model.estimator.predict(x) - y) ** 2)))


def _leading(found: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    known = [{"name": one["name"], "value": one[key]} for one in found if one[key] is not None]
    return sorted(known, key=lambda one: -one["value"])[:MAX_IMPORTANT]
