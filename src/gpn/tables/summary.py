"""How well a fit predicts labels that it left out, beside a baseline. Nothing is fitted again."""

import math
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler

from gpn.core.posterior.softmax import softmax_draws
from gpn.core.warnings import GPNWarning
from gpn.estimators.regressor import RowMoments
from gpn.estimators.validation import repeated_rows
from gpn.methods.gpn.fit_report import UnseenLabels

Array = NDArray[Any]

MAX_BASELINE_ROWS = 2000
RIDGE_ALPHAS = np.logspace(-3, 5, 17)
MIN_LABELS = 10
CHUNK_ROWS = 1000
MIN_PROBABILITY = 1e-12
MAX_R2_BEHIND = 0.05  # of the baseline, before a fit warns


class BaselineWarning(GPNWarning):
    """A simple baseline predicts left-out labels better than the fit does."""


def fit_summary(estimator: Any, x: Array, y: Array, seconds: float) -> dict[str, Any]:
    """Metrics of left-out labels and of the baseline, and the seconds of the fit.

    The labels are those that the fit left out for its own purposes, one by one or in folds: an
    estimator that left out none has no metrics.
    """
    report = getattr(estimator.posterior_, "fit_report", None)
    unseen: UnseenLabels | None = getattr(report, "unseen", None)
    if unseen is None or len(unseen.rows) < MIN_LABELS:
        return {"seconds": round(seconds, 2)}
    if is_classifier(estimator):
        found = _of_classes(x, y, unseen)
    else:
        found = _of_numbers(estimator, x, y, unseen)
    rounded = {name: float(f"{value:.5g}") for name, value in found.items()}
    return {"left_out_labels": len(unseen.rows), **rounded, "seconds": round(seconds, 2)}


def _of_numbers(estimator: Any, x: Array, y: Array, unseen: UnseenLabels) -> dict[str, float]:
    rows = unseen.rows.cpu().numpy()
    ordered_x, ordered_y = repeated_rows(x, y[:, None], None, 0)  # the order of the fit
    ordered_x, labels = ordered_x[rows], ordered_y[rows, 0]
    scaled = estimator._scaled(ordered_x)
    known = torch.ones(len(rows), 1, dtype=torch.float64)
    moments = RowMoments(unseen.mean.cpu(), unseen.variance.cpu(), known)
    distribution = estimator._distribution(scaled, moments)
    low, high = distribution.interval(0.95)
    variance = float(labels.var())
    error = float(np.mean((labels - distribution.mean()) ** 2))
    ridge = ridge_error(x, y)
    return {
        "r2": 1 - error / variance if variance > 0 else 0.0,
        "ridge_r2": 1 - ridge / float(y.var()) if y.var() > 0 else 0.0,
        "rmse": error**0.5,
        "ridge_rmse": ridge**0.5,
        "nll": -float(np.mean(distribution.logpdf(labels))),
        "ridge_nll": 0.5 * math.log(2 * math.pi * math.e * max(ridge, 1e-300)),
        "coverage_95": float(np.mean((low <= labels) & (labels <= high))),
    }


def behind_baseline(summary: dict[str, Any]) -> str | None:
    """A sentence for whoever reads the warnings of a fit that a simple baseline beats."""
    ridge_r2, r2 = summary.get("ridge_r2", 0.0), summary.get("r2", np.inf)
    if ridge_r2 > max(MAX_R2_BEHIND, r2 + MAX_R2_BEHIND):
        return (
            "a fit should predict left-out labels about as well as ridge regression, got an R² of "
            f"{r2:.3f} where ridge regression has {ridge_r2:.3f}; drop "
            "columns that say little, or use ridge regression."
        )
    if r2 <= 0:
        return (
            "a fit should predict left-out labels better than their mean does, got an R² of "
            f"{r2:.3f}; label more rows, or use columns that say more."
        )
    if summary.get("nll", -np.inf) > summary.get("majority_nll", np.inf):
        return (
            "a fit should predict left-out labels better than the shares of the classes do, got an "
            f"NLL of {summary['nll']:.3f} where these have {summary['majority_nll']:.3f}; label "
            "more rows, or use other columns."
        )
    return None


def ridge_error(x: Array, y: Array) -> float:
    """The mean squared leave-one-out error of ridge regression, in closed form."""
    picked = np.random.default_rng(0).permutation(len(x))[:MAX_BASELINE_ROWS]
    rows = StandardScaler().fit_transform(x[picked])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns that are alike
        ridge = RidgeCV(RIDGE_ALPHAS, store_cv_results=True).fit(rows, y[picked])
    return float(ridge.cv_results_.mean(0).min())


def _of_classes(x: Array, y: Array, unseen: UnseenLabels) -> dict[str, float]:
    rows = unseen.rows.cpu().numpy()
    labels = repeated_rows(x, y.astype(np.int64), None, 0)[1][rows]
    chunks = zip(unseen.mean.split(CHUNK_ROWS), unseen.variance.split(CHUNK_ROWS), strict=True)
    p = torch.cat([softmax_draws(*chunk).mean(0).cpu() for chunk in chunks]).double().numpy()
    shares = np.bincount(y.astype(np.int64)) / len(y)
    own = np.clip(p[np.arange(len(labels)), labels], MIN_PROBABILITY, 1.0)
    known = shares[shares > 0]
    return {
        "accuracy": float((p.argmax(1) == labels).mean()),
        "majority_accuracy": float(shares.max()),
        "nll": -float(np.log(own).mean()),
        "majority_nll": -float((known * np.log(known)).sum()),
    }
