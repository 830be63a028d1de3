"""Columns in which codes for missing values, such as -999, would drown all others.

Mean and standard deviation of labels and pool bring columns to one size. One -999 among values
around 1 makes that deviation its own, and the rest of the column a point. Where values that are
written like codes lie far beyond the others, and make the deviation ten times theirs, the column
is scaled by the others, and that is said. Everywhere else the scale is `Scale.of` all rows, to the
last digit: long tails, clusters and pools much wider than the labels are what they are.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpn.core.warnings import GPNWarning, warn_caller
from gpn.estimators.scaling import Scale

Column = NDArray[np.float64]

Names = NDArray[np.object_] | None


MUCH = 10.0  # times the deviation that a column should have

NINES = [float(10**digits - 1) for digits in range(2, 10)]

TENS = [10.0**digits for digits in range(3, 31)]

LIMITS = [32767.0, 32768.0, 2147483647.0, 2147483648.0]

CODES = np.array([sign * code for code in (*NINES, *TENS, *LIMITS) for sign in (1, -1)])


class SentinelWarning(GPNWarning):
    """A few values lie so far off that a column could not be scaled by all of them."""


@dataclass(frozen=True)
class Fault:
    """The codes in one column, and the centre and deviation of its other values."""

    code: float
    count: int
    total: int
    centre: float
    deviation: float

    def __str__(self) -> str:
        far = abs(self.code - self.centre) / self.deviation
        many = f"{self.count} of {self.total} rows"
        return f"{self.code:g} in {many}, {far:.3g} standard deviations off"


def scale_of_rows(X: Column, pool: Column | None, names: Names) -> Scale:
    """The scale of labels and pool together, but for columns that codes would spoil."""
    if X.ndim != 2:
        return Scale.none()
    rows = X if pool is None else np.concatenate([X, pool])
    scale = Scale.of(rows)
    found = {i: _fault(values, scale.scale[i]) for i, values in enumerate(rows.T)}
    faults = {i: fault for i, fault in found.items() if fault is not None}
    if not faults:
        return scale
    shift, size = scale.shift.copy(), scale.scale.copy()
    for i, fault in faults.items():
        shift[i], size[i] = fault.centre, fault.deviation
    _warn(faults, names)
    return Scale(shift, size)


def warn_of_targets(y: Column) -> None:
    """Say where targets hold codes; they are labels all the same, and are fitted."""
    scale = Scale.of(y)
    for i, values in enumerate(y.T):
        if (fault := _fault(values, scale.scale[i])) is not None:
            which = "y" if y.shape[1] == 1 else f"target {i} of y"
            warn_caller(
                f"{which} should hold no codes for missing values, got {fault}; if that is what "
                "they are, move those rows to X_unlabeled: now they drown the other labels.",
                SentinelWarning,
            )


def _fault(values: Column, deviation: float) -> Fault | None:
    """Fewer than half of the values look like codes, and lie far from all others."""
    coded = np.isin(values, CODES)
    if not 0 < coded.sum() < len(values) / 2:
        return None
    others, codes = values[~coded], values[coded]
    centre, own = float(others.mean()), float(others.std())
    nearest = np.abs(codes - centre).min()
    if own <= 0 or deviation <= MUCH * own or nearest <= MUCH * np.abs(others - centre).max():
        return None
    return Fault(float(codes[0]), len(codes), len(values), centre, own)


def _warn(faults: dict[int, Fault], names: Names) -> None:
    said = [f"{i if names is None else repr(names[i])} has {fault}" for i, fault in faults.items()]
    more = f"; and {len(said) - 3} columns more" if len(said) > 3 else ""
    warn_caller(
        "columns should be of one size, so that no value drowns the others: column "
        f"{'; column '.join(said[:3])}{more}. Is it a code for missing? Impute or drop it. Here "
        "the column is scaled by its other values.",
        SentinelWarning,
    )
