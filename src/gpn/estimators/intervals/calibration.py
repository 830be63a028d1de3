"""Calibration on labeled rows that the fit has not seen, by split conformal prediction.

Where new rows come from the distribution of the calibration rows, `level` of their labels lie in
their intervals or sets, however wrong the model is (`conformal.py`). That holds on average over
such rows: not at each single row, and not for OOD rows. Where new rows follow another distribution
of x, calibration rows are weighted (`shift.py`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpn.core.types import Outputs
from gpn.estimators.intervals.conformal import (
    conformal_quantile,
    weighted_levels,
    weighted_quantile,
)
from gpn.estimators.intervals.shift import ShiftWeights

Array = NDArray[Any]

MIN_STD = 1e-6  # of a target's standard deviation, so that an overconfident model can be corrected


@dataclass(frozen=True)
class Calibration:
    """Conformal scores ``(n, o)`` of calibration rows, each column ascending.

    weights ``(n + 1, o)``: of these rows in their order, and of a new row; None where all are 1.
    """

    scores: Array
    weights: Array | None = None

    @classmethod
    def of(cls, scores: Array, shift: ShiftWeights | None = None) -> "Calibration":
        """Scores of rows in any order, with the weights of a shift."""
        order = np.argsort(scores, axis=0, kind="stable")
        ascending = np.take_along_axis(scores, order, axis=0)
        if shift is None:
            return cls(ascending)
        new = np.full((1, scores.shape[1]), shift.of_new)
        return cls(ascending, np.concatenate([shift.of_rows[order], new]))

    def quantile(self, level: float) -> torch.Tensor:
        """The score of each output that `level` of new rows do not exceed."""
        scores = torch.from_numpy(self.scores)
        if self.weights is None:
            return conformal_quantile(scores, level)
        return weighted_quantile(scores, torch.from_numpy(self.weights), level)

    def levels(self) -> Array:
        """The level of the interval that ends at each score."""
        weights = np.ones((len(self.scores) + 1, 1)) if self.weights is None else self.weights
        return weighted_levels(torch.from_numpy(weights)).expand(self.scores.shape).numpy()

    @property
    def effective_rows(self) -> float:
        """(Σ w)² / Σ w²: so many rows of equal weight are as good."""
        if self.weights is None:
            return float(len(self.scores))
        own = self.weights[:-1, 0]
        return float(own.sum() ** 2 / (own**2).sum())


def label_moments(
    mean: Outputs, variance: Outputs, noise_std: float | None
) -> tuple[Outputs, Outputs]:
    """Mean and standard deviation (Var[g] + σ_ε²)^{1/2} of a label."""
    std = (variance.double() + (noise_std or 0.0) ** 2).sqrt()
    return mean.double(), std.clamp_min(MIN_STD)


def calibrated_interval(
    mean: Outputs, std: Outputs, calibration: Calibration, level: float
) -> tuple[Outputs, Outputs]:
    """mean ± q std, q from the scores |y − mean| / std of the calibration rows."""
    half = calibration.quantile(level).to(std) * std
    return mean - half, mean + half


def class_numbers(classes: Array, y: Array) -> NDArray[np.int64]:
    """The position of every label among the classes of the fit."""
    positions = {name: i for i, name in enumerate(classes.tolist())}
    unknown = sorted({name for name in y.tolist() if name not in positions}, key=str)
    if unknown:
        raise ValueError(
            f"classes must be those of the fit, {list(positions)}, got {unknown[0]!r}, too."
        )
    return np.array([positions[name] for name in y.tolist()], dtype=np.int64)
