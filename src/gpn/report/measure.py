"""How well a regression keeps its word on labeled rows: pure functions of arrays.

A label's position u is the share of its predicted distribution that lies below it: uniform where
the model is calibrated.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from gpn.core.posterior.gaussian import GaussianPosterior
from gpn.estimators.thresholds import threshold_of

Array = NDArray[np.float64]
LEVELS = np.append(np.linspace(0.05, 0.95, 19), 0.99)
FRACTIONS = np.linspace(0.05, 1.0, 20)
DRAWS = 400
CHUNK_ROWS = 5000
BINS = 40
FALSE_ALARMS = np.arange(1, 31) / 100


def noise_of(estimator: Any) -> float:
    """The standard deviation of labels around the function, in their own units; 0 if unknown."""
    return float((estimator.posterior_.noise_std or 0.0) * estimator.y_scale_.scale[0])


def positions(estimator: Any, x: Array, y: Array) -> Array:
    """u = P(label below y), with the noise of labels where the fit knows it.

    Of a calibrated model, the u whose interval just holds the label by the calibration rows.
    """
    noise = noise_of(estimator)
    scores = estimator.calibration_scores_
    if scores is not None or isinstance(estimator.posterior_, GaussianPosterior):
        mean, std = estimator.predict(x, return_std=True)
        total = np.hypot(std, noise)
        if scores is not None:
            return calibrated_positions(y, mean, total, scores[:, 0])
        return gaussian_positions(y, mean, total)
    parts = [slice(start, start + CHUNK_ROWS) for start in range(0, len(x), CHUNK_ROWS)]
    draws = (estimator.sample_y(x[part], DRAWS) for part in parts)
    return np.concatenate(
        [draw_positions(y[p], d, noise) for p, d in zip(parts, draws, strict=True)]
    )


def gaussian_positions(y: Array, mean: Array, std: Array) -> Array:
    """Φ((y − mean) / std)."""
    return ndtr((y - mean) / np.maximum(std, np.finfo(float).tiny))


def calibrated_positions(y: Array, mean: Array, std: Array, scores: Array) -> Array:
    """½ ± ½ of the level whose conformal interval ends at y, above or below the mean."""
    own = np.abs(y - mean) / np.maximum(std, np.finfo(float).tiny)
    level = np.searchsorted(scores, own) / (len(scores) + 1)
    return 0.5 + 0.5 * np.sign(y - mean) * level


def draw_positions(y: Array, draws: Array, noise: float) -> Array:
    """The mean over draws ``(n, s)`` of P(draw + noise < y)."""
    if noise > 0:
        return ndtr((y[:, None] - draws) / noise).mean(1)
    return ((draws < y[:, None]) + 0.5 * (draws == y[:, None])).mean(1)


def coverage(u: Array) -> dict[str, Any]:
    """The share of labels inside the middle interval of each level, and what chance alone allows.

    A label lies inside the middle `level` exactly where |2u − 1| ≤ level.
    """
    inside = np.abs(2 * u - 1)[:, None] <= LEVELS
    reach = 1.96 * np.sqrt(LEVELS * (1 - LEVELS) / len(u))
    return {
        "levels": LEVELS,
        "shares": inside.mean(0),
        "low": np.clip(LEVELS - reach, 0, 1),
        "high": np.clip(LEVELS + reach, 0, 1),
        "rows": len(u),
    }


def spread_against_error(std: Array, error: Array, bins: int = 10) -> dict[str, Any]:
    """Rows in bins of equal number by predicted std: what was predicted, and the error found."""
    order = np.argsort(std, kind="stable")
    groups = [g for g in np.array_split(order, max(1, min(bins, len(order) // 10))) if len(g)]
    return {
        "predicted": np.array([np.sqrt((std[g] ** 2).mean()) for g in groups]),
        "found": np.array([np.sqrt((error[g] ** 2).mean()) for g in groups]),
        "rows": np.array([len(g) for g in groups]),
    }


def risk(losses: Array, orders: dict[str, Array], *, root: bool) -> dict[str, Any]:
    """The mean loss of the rows that are kept, by their share, the smallest of an order first."""
    counts = np.maximum(1, np.round(FRACTIONS * len(losses)).astype(int))

    def line(order: Array) -> Array:
        kept = np.cumsum(losses[np.argsort(order, kind="stable")])[counts - 1] / counts
        return np.sqrt(kept) if root else kept

    lines = {name: line(order) for name, order in orders.items()}
    return {"kept": FRACTIONS, "lines": {**lines, "best possible": line(losses)}}


def histogram(groups: dict[str, Array], *, log: bool = False) -> dict[str, Any]:
    """Shares of each group in common bins; the few values beyond the last bin count in it."""
    everything = np.concatenate(list(groups.values()))
    if log:
        everything = everything[everything > 0]
    low, high = _ends(everything, log=log) if len(everything) else (0.1, 1.0)
    edges = np.geomspace(low, high, BINS + 1) if log else np.linspace(low, high, BINS + 1)
    shares = {
        name: np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / max(1, len(values))
        for name, values in groups.items()
    }
    return {"edges": edges, "shares": shares}


def _ends(values: Array, *, log: bool) -> tuple[float, float]:
    low, high = float(values.min()), float(np.quantile(values, 0.998))
    if log:
        low = float(np.quantile(values, 0.002))
        return low, max(high, low * 1.01)
    return min(low, 0.0), high if high > low else low + 1.0


def flags(reference: Array, groups: dict[str, Array]) -> dict[str, Any]:
    """For each rate of false alarms: the threshold, and the share of each group above it."""
    limits = np.array([threshold_of(reference, rate) for rate in FALSE_ALARMS])
    shares = {name: (values[:, None] > limits).mean(0) for name, values in groups.items()}
    return {"rates": FALSE_ALARMS, "limits": limits, "shares": shares}
