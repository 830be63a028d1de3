"""What the report measures: calibration, risk and OOD scores, as pure functions of arrays.

Calibration of a regression is measured by the probability integral transform (PIT) of each label,
u = P(new label < y): uniform where the model is calibrated.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr

from gpn import metrics
from gpn.core.posterior.gaussian import GaussianPosterior
from gpn.core.warnings import GPNWarning
from gpn.estimators.intervals.distribution import LabelDistribution

Array = NDArray[np.float64]
LEVELS = np.append(np.linspace(0.05, 0.95, 19), 0.99)
FRACTIONS = np.linspace(0.05, 1.0, 20)
PIT_DRAWS = 400
CHUNK_ROWS = 5000
HISTOGRAM_BINS = 40
FALSE_POSITIVE_RATES = np.arange(1, 31) / 100
BOX_DRAWS = 200
BOX_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def noise_std_of(estimator: Any) -> float:
    """The standard deviation of the label noise in units of the target; 0 if unknown."""
    return float((estimator.posterior_.noise_std or 0.0) * estimator.y_scale_.scale[0])


def pit(estimator: Any, x: Array, y: Array) -> Array:
    """u = P(new label < y) at each row: from the predictive distribution, or from draws.

    After conformal calibration u = ½ ± ½ level, where the interval of that level ends at y.
    """
    noise_std, calibration = noise_std_of(estimator), estimator.calibration_
    has_distribution = isinstance(estimator.posterior_, GaussianPosterior)
    if calibration is not None or has_distribution or estimator.label_noise_ is not None:
        found = estimator.predict_distribution(x)
        if calibration is None:
            return found.cdf(y)
        away = y - found.location
        scores, levels = calibration.scores[:, 0], calibration.levels()[:, 0]
        if calibration.weights is not None:
            found = replace(found, known=None, other=None)
        inside = calibrated_level(found, np.abs(away), scores, levels)
        return 0.5 + 0.5 * np.sign(away) * inside
    chunks = [slice(start, start + CHUNK_ROWS) for start in range(0, len(x), CHUNK_ROWS)]
    draws = (estimator.sample_y(x[chunk], PIT_DRAWS) for chunk in chunks)
    return np.concatenate(
        [draws_pit(y[chunk], drawn, noise_std) for chunk, drawn in zip(chunks, draws, strict=True)]
    )


def calibrated_level(found: LabelDistribution, away: Array, scores: Array, levels: Array) -> Array:
    """The level of the widest interval, of the n that calibration knows, that ends before y.

    The k-th ends at score k times the row's scale, and further out where the row is unknown.
    """
    low, high = np.zeros(len(away), int), np.full(len(away), len(scores))
    while (low < high).any():
        rank = (low + high + 1) // 2
        ends = scores[np.maximum(rank, 1) - 1] * found.scale
        ends = ends + found.margin(levels[np.maximum(rank, 1) - 1])
        is_inside = ends < away
        low, high = np.where(is_inside, rank, low), np.where(is_inside, high, rank - 1)
    return np.concatenate([[0.0], levels])[low]


def draws_pit(y: Array, draws: Array, noise_std: float) -> Array:
    """u = mean over draws ``(n, s)`` of P(draw + noise < y)."""
    if noise_std > 0:
        return ndtr((y[:, None] - draws) / noise_std).mean(1)
    return ((draws < y[:, None]) + 0.5 * (draws == y[:, None])).mean(1)


def coverage(u: Array) -> dict[str, Any]:
    """The share of labels inside the central interval of each level, with its 95 % sampling band.

    A label with PIT u lies inside the central interval of `level` where |2u − 1| ≤ level.
    """
    half = 1.96 * np.sqrt(LEVELS * (1 - LEVELS) / len(u))
    return {
        "levels": LEVELS,
        "shares": (np.abs(2 * u - 1)[:, None] <= LEVELS).mean(0),
        "low": np.clip(LEVELS - half, 0, 1),
        "high": np.clip(LEVELS + half, 0, 1),
    }


def error_by_std(std: Array, error: Array, bins: int = 10) -> dict[str, Array]:
    """RMSE against predicted standard deviation, in bins of equally many rows."""
    order = np.argsort(std, kind="stable")
    groups = [g for g in np.array_split(order, max(1, min(bins, len(order) // 10))) if len(g)]
    return {
        "predicted": np.array([np.sqrt((std[g] ** 2).mean()) for g in groups]),
        "rmse": np.array([np.sqrt((error[g] ** 2).mean()) for g in groups]),
        "rows": np.array([len(g) for g in groups]),
    }


def reliability(probabilities: Array, classes: NDArray[np.int64]) -> dict[str, Array]:
    """`gpn.metrics.reliability`: accuracy against confidence, in the bins behind the ECE."""
    pair = torch.from_numpy(probabilities), torch.from_numpy(classes)
    confidence, accuracy, share = (values.numpy() for values in metrics.reliability(*pair))
    return {
        "confidence": confidence,
        "accuracy": accuracy,
        "rows": np.round(share * len(classes)),
    }


def risk(losses: Array, scores: dict[str, Array], *, root: bool) -> dict[str, Any]:
    """`gpn.metrics.risk_coverage` of each score, and of the best order, at fixed coverages."""
    last = np.maximum(1, np.round(FRACTIONS * len(losses)).astype(int)) - 1

    def line(score: Array) -> Array:
        _, mean = metrics.risk_coverage(torch.from_numpy(losses), torch.from_numpy(score))
        at_coverage: Array = mean.numpy()[last]
        return np.sqrt(at_coverage) if root else at_coverage

    lines = {name: line(score) for name, score in scores.items()}
    return {"coverage": FRACTIONS, "lines": {**lines, "best possible": line(losses)}}


def histogram(groups: dict[str, Array], *, log: bool = False) -> dict[str, Any]:
    """The share of each group in common bins; values beyond the last bin count in it."""
    values = np.concatenate(list(groups.values()))
    low, high = _range(values[values > 0] if log else values, log=log)
    spaced = np.geomspace if log else np.linspace
    edges = spaced(low, high, HISTOGRAM_BINS + 1)
    shares = {
        name: np.histogram(np.clip(group, edges[0], edges[-1]), edges)[0] / max(1, len(group))
        for name, group in groups.items()
    }
    return {"edges": edges, "shares": shares}


def _range(values: Array, *, log: bool) -> tuple[float, float]:
    """From the lowest value to the 99.8 % quantile."""
    if not len(values):
        return 0.1, 1.0
    high = float(np.quantile(values, 0.998))
    if log:
        low = float(np.quantile(values, 0.002))
        return low, max(high, low * 1.01)
    low = min(float(values.min()), 0.0)
    return low, high if high > low else low + 1.0


def flags(thresholds: Array, groups: dict[str, Callable[[float], Any]]) -> dict[str, Any]:
    """The threshold at each false-positive rate, and the share of each group that it flags."""
    shares = {
        name: np.array([np.mean(flagged(float(limit))) for limit in thresholds])
        for name, flagged in groups.items()
    }
    return {"rates": FALSE_POSITIVE_RATES, "thresholds": thresholds, "shares": shares}


def thresholds_of(estimator: Any) -> Array:
    """The estimator's own threshold at each false-positive rate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPNWarning)  # of rates that few labels cannot show
        return np.array([estimator.threshold(float(rate)) for rate in FALSE_POSITIVE_RATES])


def class_boxes(estimator: Any, x: Array) -> Array:
    """Quantiles over draws of the probability of each class: ``(rows, classes, 5)``."""
    draws = estimator.sample_proba(x, BOX_DRAWS)
    return np.moveaxis(np.quantile(draws, BOX_QUANTILES, axis=-1), 0, -1)
