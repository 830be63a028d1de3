"""Columns in which a few values would drown all others, such as -999 for what is missing.

Mean and standard deviation of labels and pool bring columns to one size. One value a thousand
times as far off as the rest makes that deviation its own, and the rest of the column a point:

    pool     joint deviation > 10 × the labels' own            →  the labels' mean and deviation
    labels   deviation > 10 × IQR / 1.349, nothing in between  →  median and IQR / 1.349

Both are said. Where neither holds the scale is `Scale.of` all rows, to the last digit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpn.core.diagnostic import GPNWarning
from gpn.estimators.place import warn_caller
from gpn.scaling import Scale

Column = NDArray[np.float64]
Names = NDArray[np.object_] | None

MUCH = 10.0  # times the deviation that a column should have
GAP = 5.0  # so much further off are codes for missing values, and a long tail is not
ENOUGH_LABELS = 20  # for a deviation of their own
NORMAL_IQR = 1.349  # of a normal law with deviation 1


class OutlierWarning(GPNWarning):
    """A few values lie so far off that a column could not be scaled by all of them."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with one column, and the centre and deviation to use in its place."""

    rows: str
    centre: float
    deviation: float
    far: Column  # how many deviations off the strange values are

    def __str__(self) -> str:
        nearest, furthest = self.far.min(), self.far.max()
        span = f"{nearest:.3g}" if nearest == furthest else f"{nearest:.3g} to {furthest:.3g}"
        return f"{len(self.far)} {self.rows} {span} standard deviations off"


def scale_of_rows(X: Column, pool: Column | None, names: Names) -> Scale:
    """The scale of labels and pool together, but for columns that a few values would spoil."""
    if X.ndim != 2:
        return Scale.none()
    rows = X if pool is None else np.concatenate([X, pool])
    scale = Scale.of(rows)
    faults = dict(_faults(X, rows, scale))
    if not faults:
        return scale
    shift, size = scale.shift.copy(), scale.scale.copy()
    for i, fault in faults.items():
        shift[i], size[i] = fault.centre, fault.deviation
    _warn(faults, names)
    return Scale(shift, size)


def warn_of_targets(y: Column) -> None:
    """Say where a few targets lie far off; they are labels all the same, and are fitted."""
    scale = Scale.of(y)
    for i, values in enumerate(y.T):
        if (fault := _codes(values, scale.scale[i], "of its values")) is not None:
            which = "y" if y.shape[1] == 1 else f"target {i} of y"
            warn_caller(
                f"{which} should hold no codes for missing values, got {fault}; if that is what "
                "they are, move those rows to X_unlabeled: now they drown the other labels.",
                OutlierWarning,
            )


def _faults(X: Column, rows: Column, scale: Scale) -> Iterator[tuple[int, Fault]]:
    """The columns that are not to be scaled by all rows."""
    alone = Scale.of(X)
    wide = (scale.scale > MUCH * alone.scale) & (np.ptp(X, axis=0) > 0)
    for i, values in enumerate(rows.T):
        fault = None
        if wide[i] and len(X) >= ENOUGH_LABELS:
            fault = _strangers(X[:, i], values[len(X) :], alone.shift[i], alone.scale[i])
        fault = fault or _codes(values, scale.scale[i], "of its values")
        if fault is not None:
            yield i, fault


def _strangers(labels: Column, pool: Column, centre: float, deviation: float) -> Fault | None:
    """Pool values outside the labels' range and far from it."""
    far = np.abs(pool - centre) / deviation
    outside = (pool < labels.min()) | (pool > labels.max())
    strange = far[outside & (far > MUCH)]
    rows = f"of {len(pool)} rows of X_unlabeled"
    return Fault(rows, centre, deviation, strange) if len(strange) else None


def _codes(values: Column, deviation: float, rows: str) -> Fault | None:
    """Values far beyond all others, with nothing in between: no long tail."""
    low, centre, high = np.quantile(values, [0.25, 0.5, 0.75])
    robust = (high - low) / NORMAL_IQR
    if robust <= 0 or deviation <= MUCH * robust:
        return None
    far = np.abs(values - centre) / robust
    strange = far[far > MUCH]
    tail = len(strange) == 0 or strange.min() <= GAP * MUCH
    return None if tail else Fault(rows, float(centre), float(robust), strange)


def _warn(faults: dict[int, Fault], names: Names) -> None:
    said = [f"{i if names is None else repr(names[i])} has {fault}" for i, fault in faults.items()]
    more = f"; and {len(said) - 3} columns more" if len(said) > 3 else ""
    warn_caller(
        "columns should be of one size, so that no value drowns the others: column "
        f"{'; column '.join(said[:3])}{more}. Is it a code for missing? Impute or drop it. Here "
        "the column is scaled by the other rows.",
        OutlierWarning,
    )
