"""Which columns with long tails stay straight: those whose effect on the labels is linear.

A bent column grows like its logarithm beyond its usual values (`scaling.py`). That is right for
most long tails, and wrong where twice the delay means twice the cost. Ridge regression tells, by
how it predicts left-out labels with the column bent and straight; with leverages h its residual of
a label that is left out is e / (1 − h).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpn.estimators.intervals.label_noise import student_loss
from gpn.estimators.scaling import BEND, BEYOND, Scale

Rows = NDArray[np.float64]
Array = NDArray[np.int64]

MAX_LABELS = 1000
MAX_COLUMNS = 100  # with long tails; wider tables, such as spectra, are left bent
TOO_FAR = 300.0  # from the centre, in units of the scale: such a cell may be typed wrong
PENALTY = 1.0
MIN_GAIN = 0.01  # nats per label
MAX_ERROR_RATIO = 0.99
PASSES = 2


def straightened(scale: Scale, X: Rows, y: Rows) -> Scale:
    """The scale with those columns straight by which left-out labels gain.

    The search begins with all of them bent or all straight, and then turns one after another.
    """
    if scale.bend is None or X.ndim != 2:
        return scale
    furthest = np.abs((X - scale.shift) / scale.scale).max(0)
    bent = np.flatnonzero((scale.bend == BEND) & (furthest < TOO_FAR))
    if not 0 < len(bent) <= MAX_COLUMNS or len(X) <= X.shape[1] + 2:
        return scale
    some = np.random.default_rng(0).permutation(len(X))[:MAX_LABELS]
    X, y = X[some], y[some] - y[some].mean(0)
    straight = BEYOND * np.maximum(furthest, 1.0)

    def turned(scale: Scale, columns: Array) -> Scale:
        assert scale.bend is not None
        bends = scale.bend.copy()
        bends[columns] = np.where(bends[columns] == BEND, straight[columns], BEND)
        return replace(scale, bend=bends)

    loss, error = _left_out(scale, X, y)
    for columns in [bent, *(bent[[i]] for i in range(len(bent)))] * PASSES:
        other = turned(scale, columns)
        found = _left_out(other, X, y)
        if found[0] < loss - MIN_GAIN and found[1] < MAX_ERROR_RATIO * error:
            scale, (loss, error) = other, found
    return scale


def _left_out(scale: Scale, X: Rows, y: Rows) -> tuple[float, float]:
    """Of labels that ridge regression has not seen: the negative log likelihood of the best
    Student's t, and the squared error."""
    x = scale.apply(X)
    spread = x.std(0)
    x = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
    half = np.linalg.solve(x.T @ x + PENALTY * np.eye(x.shape[1]), x.T)
    leverage = np.minimum(np.einsum("ij,ji->i", x, half) + 1 / len(x), 1 - 1e-6)
    residuals = (y - x @ (half @ y)) / (1 - leverage)[:, None]
    loss = float(np.mean([student_loss(column) for column in residuals.T]))
    return loss, float(np.mean(residuals**2))
