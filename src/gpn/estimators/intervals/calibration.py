"""Calibration on labeled rows that the fit has not seen, by split conformal prediction.

Where new rows come from the distribution of the calibration rows, `level` of their labels lie in
their intervals or sets, however wrong the model is (`conformal.py`). That holds on average over
such rows: not at each single row, and not for OOD rows.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpn.core.types import Outputs
from gpn.estimators.intervals.conformal import conformal_quantile

Array = NDArray[Any]

MIN_STD = 1e-6  # of a target's standard deviation, so that an overconfident model can be corrected


def label_moments(
    mean: Outputs, variance: Outputs, noise_std: float | None
) -> tuple[Outputs, Outputs]:
    """Mean and standard deviation (Var[g] + σ_ε²)^{1/2} of a label."""
    std = (variance.double() + (noise_std or 0.0) ** 2).sqrt()
    return mean.double(), std.clamp_min(MIN_STD)


def calibrated_interval(
    mean: Outputs, std: Outputs, calibration_scores: Array, level: float
) -> tuple[Outputs, Outputs]:
    """mean ± q std, q from the scores |y − mean| / std of the calibration rows."""
    half = conformal_quantile(torch.from_numpy(calibration_scores), level).to(std) * std
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
