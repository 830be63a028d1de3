"""Columns brought to mean 0 and standard deviation 1, and back; sentinels do not spoil the scale.

A sentinel is a code for missing values, such as -999, among ordinary numbers. One of them among
values around 1 dominates the column's deviation and shrinks the other values to a point. Such a
column is scaled by its other values, with a warning. A value counts as a sentinel if it is a common
code, lies far from all other values, and makes the deviation ten times theirs. Every other column
has `Scale.of` all rows, to the last digit: long tails, clusters and wide pools stay as they are.

Any other value that many rows share, far from all others, may be a code, too: it gives a warning
and changes nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from gpn.core.warnings import GPNWarning, warn_caller

Rows = NDArray[np.float64]

MAX_VALUE = 1e150
MIN_SCALE = np.finfo(np.float64).tiny  # what is divided by less overflows
FAR = 10.0  # ratio of deviations, and of distances from the centre

NINES = [float(10**digits - 1) for digits in range(2, 10)]
TENS = [10.0**digits for digits in range(3, 31)]
LIMITS = [32767.0, 32768.0, 2147483647.0, 2147483648.0]
CODES = np.array([sign * code for code in (*NINES, *TENS, *LIMITS) for sign in (1, -1)])
MAX_NAMED_COLUMNS = 3
NORMAL_SPREAD = 2.563  # from the first decile to the ninth, of N(0, 1)
# Of the standard deviation; a column with fewer values in its bulk than half of the rows is scaled
# by the latter, such as one of mostly one value.
MIN_SPREAD = 0.1
MIN_TRIMMED = 10  # rows
LONG_TAIL, BEND, BEYOND = 6.0, 3.0, 10.0
MIN_PIXELS, NEARLY = 16, 0.8
# Of a value that may be a code: rows, their share, other values, and the gap in ranges of these.
MIN_CODE_ROWS, MIN_CODE_SHARE, MIN_OTHER_VALUES, MIN_CODE_GAP = 3, 0.02, 10, 2.0


class SentinelWarning(GPNWarning):
    """A column holds codes for missing values, which its scale leaves out."""


@dataclass(frozen=True)
class Scale:
    """z = (value − shift) / scale, column by column; a constant column becomes 0.

    Where `bend` is finite, values beyond it grow like their logarithm, bend + log(1 + |z| − bend).
    """

    shift: Rows
    scale: Rows
    bend: Rows | None = None

    @classmethod
    def of(cls, values: Rows, weights: Rows | None = None) -> "Scale":
        """The scale of these rows; images and other arrays are not scaled."""
        if values.ndim != 2:
            return cls.none()
        peak = np.abs(values).max(0)
        if (peak > MAX_VALUE).any():
            raise ValueError(
                f"values must be small enough to be squared, at most {MAX_VALUE:g}, got "
                f"{peak.max():.3g}; rescale the column, or take its logarithm."
            )
        power = np.frexp(peak)[1]  # by powers of two, so that small squares do not underflow
        scaler = StandardScaler().fit(np.ldexp(values, -power), sample_weight=weights)
        scale = np.where(scaler.scale_ < 1, np.ldexp(scaler.scale_, power), 1.0)
        return cls(np.ldexp(scaler.mean_, power), np.where(scale >= MIN_SCALE, scale, 1.0))

    @classmethod
    def none(cls) -> "Scale":
        """The scale that changes nothing."""
        return cls(np.zeros(()), np.ones(()))

    @classmethod
    def robust(cls, values: Rows) -> "Scale":
        """By median and quantiles of labeled rows, which no single row can spoil.

        A column with long tails is bent, so that its few largest values do not lie alone, and any
        column ten times further out than all labels: no cell that is typed wrong is extrapolated.
        Columns of one unit share a scale: else a pixel that is hardly ever lit outweighs others.
        """
        plain = cls._without_extremes(values)
        tenth, median, last = np.quantile(values, [0.1, 0.5, 0.9], axis=0)
        spread = (last - tenth) / NORMAL_SPREAD
        wide = (spread > MIN_SPREAD * plain.scale) | _has_varied_bulk(values, tenth, last)
        scale = np.where(wide, spread, plain.scale)
        shift = np.where(wide, median, plain.shift)
        of_one_unit = share_a_unit(values)
        if of_one_unit.any():
            scale = np.where(of_one_unit, np.sqrt(np.mean(scale[of_one_unit] ** 2)), scale)
        longest = np.abs((values - shift) / scale).max(0)
        return cls(
            shift, scale, np.where(longest > LONG_TAIL, BEND, BEYOND * np.maximum(longest, 1.0))
        )

    @classmethod
    def _without_extremes(cls, values: Rows) -> "Scale":
        """`of` all rows; of a column whose few extreme cells make its deviation, without them."""
        plain, n = cls.of(values), len(values)
        if n < MIN_TRIMMED:
            return plain
        cut = max(1, n // 100)
        inner = np.sort(values, axis=0)[cut : n - cut]
        trimmed = cls.of(inner)
        spoilt = (plain.scale > FAR * trimmed.scale) & (np.ptp(inner, axis=0) > 0)
        return cls(
            np.where(spoilt, trimmed.shift, plain.shift),
            np.where(spoilt, trimmed.scale, plain.scale),
        )

    def apply(self, values: Rows) -> Rows:
        z = (values - self.shift) / self.scale
        if self.bend is None:
            return z
        bend = np.broadcast_to(self.bend, z.shape)
        far = np.abs(z) > bend
        if far.any():
            z[far] = np.sign(z[far]) * (bend[far] + np.log1p(np.abs(z[far]) - bend[far]))
        return z

    def undo(self, values: Rows) -> Rows:
        """Back to the units of the data; `values` ``(..., o)``."""
        return values * self.scale + self.shift

    def invert(self, scaled: Rows) -> Rows:
        """The values of which `apply` made these, bends included."""
        if self.bend is None:
            return self.undo(scaled)
        size = np.abs(scaled)
        excess = np.maximum(size - self.bend, 0.0)
        return self.undo(np.sign(scaled) * (size - excess + np.expm1(excess)))


@dataclass(frozen=True)
class Sentinel:
    """A code in `count` of the `total` values of a column, and the moments of the others."""

    code: float
    count: int
    total: int
    mean: float
    std: float

    def __str__(self) -> str:
        far = abs(self.code - self.mean) / self.std
        return (
            f"{self.code:g} in {self.count} of {self.total} rows, {far:.3g} standard deviations off"
        )


def _has_varied_bulk(values: Rows, low: Rows, high: Rows) -> NDArray[np.bool_]:
    """Which columns have many values between two quantiles, however far the others lie."""
    inside = np.where((values >= low) & (values <= high), values, low)
    ordered = np.sort(inside, axis=0)
    varied: NDArray[np.bool_] = (np.diff(ordered, axis=0) > 0).sum(0) >= len(values) / 2
    return varied


def share_a_unit(values: Rows) -> NDArray[np.bool_]:
    """Which columns are like pixels: many, from one smallest value to, mostly, one largest."""
    low, high = values.min(0), values.max(0)
    varies = high > low
    usual = np.median(low[varies]) if varies.any() else 0.0
    alike: NDArray[np.bool_] = varies & (low == usual)
    if alike.sum() < max(MIN_PIXELS, values.shape[1] / 2):
        return np.zeros_like(alike)
    reach = high[alike] - usual
    return alike if np.median(reach) > NEARLY * reach.max() else np.zeros_like(alike)


def scale_of_rows(
    X: Rows, pool: Rows | None, names: NDArray[np.object_] | None, *, robust: bool = False
) -> Scale:
    """The scale of labels and pool; of a column with sentinels, that of its other values.

    A `robust` one is that of the labels alone.
    """
    if X.ndim != 2:
        return Scale.none()
    rows = X if pool is None else np.concatenate([X, pool])
    of_all = Scale.of(rows)
    scale = Scale.robust(X) if robust else of_all
    found = _sentinels(rows, of_all)
    _warn_of_lonely_values(X, found, names)
    if not found:
        return scale
    shift, std = scale.shift.copy(), scale.scale.copy()
    for i, sentinel in found.items():
        shift[i], std[i] = sentinel.mean, sentinel.std
    columns = [f"{i if names is None else repr(names[i])} has {s}" for i, s in found.items()]
    more = len(columns) - MAX_NAMED_COLUMNS
    warn_caller(
        "columns should hold no codes for missing values, got some: column "
        f"{'; column '.join(columns[:MAX_NAMED_COLUMNS])}"
        f"{f'; and {more} more columns' if more > 0 else ''}. Impute or drop such values; here "
        "the column is scaled by its other values.",
        SentinelWarning,
    )
    return Scale(shift, std, scale.bend)


def _warn_of_lonely_values(
    X: Rows, sentinels: Collection[int], names: NDArray[np.object_] | None
) -> None:
    """Warn where many rows of a column share a value far from all others, sentinels aside."""
    values = {i: lonely_value(column) for i, column in enumerate(X.T) if i not in sentinels}
    shown = [
        f"{i if names is None else repr(names[i])} has {value:g} in {np.sum(X[:, i] == value)} of "
        f"{len(X)} rows"
        for i, value in values.items()
        if value is not None
    ]
    if shown:
        more = len(shown) - MAX_NAMED_COLUMNS
        warn_caller(
            "columns should hold no codes for missing values, got values far from all others: "
            f"column {'; column '.join(shown[:MAX_NAMED_COLUMNS])}"
            f"{f'; and {more} more columns' if more > 0 else ''}. If they are codes, replace them "
            "by NaN; here they are taken as numbers.",
            SentinelWarning,
        )


def lonely_value(column: Rows) -> float | None:
    """The smallest or largest value, where many rows share it, and all others are far from it."""
    ordered = np.sort(column)
    for end, others in (
        (ordered[0], ordered[np.searchsorted(ordered, ordered[0], "right") :]),
        (ordered[-1], ordered[: np.searchsorted(ordered, ordered[-1], "left")]),
    ):
        count = len(ordered) - len(others)
        if not max(MIN_CODE_ROWS, MIN_CODE_SHARE * len(ordered)) <= count < len(ordered) / 2:
            continue
        gap = np.abs(others - end).min()
        if gap > MIN_CODE_GAP * np.ptp(others) > 0 and len(np.unique(others)) >= MIN_OTHER_VALUES:
            return float(end)
    return None


def warn_of_target_sentinels(y: Rows) -> None:
    """Warn where targets hold codes for missing values; they are fitted as labels all the same."""
    for i, sentinel in _sentinels(y, Scale.of(y)).items():
        which = "y" if y.shape[1] == 1 else f"target {i} of y"
        warn_caller(
            f"{which} should hold no codes for missing values, got {sentinel}; if that is what "
            "they are, move those rows to X_unlabeled: now they dominate the other labels.",
            SentinelWarning,
        )


def _sentinels(rows: Rows, scale: Scale) -> dict[int, Sentinel]:
    """The sentinel of each column that has one."""
    found = {i: _sentinel(values, scale.scale[i]) for i, values in enumerate(rows.T)}
    return {i: sentinel for i, sentinel in found.items() if sentinel is not None}


def _sentinel(values: Rows, std: float) -> Sentinel | None:
    """Fewer than half of the values are codes, and they lie far from all others."""
    coded = np.isin(values, CODES)
    if not 0 < coded.sum() < len(values) / 2:
        return None
    others, codes = values[~coded], values[coded]
    mean, other_std = float(others.mean()), float(others.std())
    nearest = np.abs(codes - mean).min()
    if other_std <= 0 or std <= FAR * other_std or nearest <= FAR * np.abs(others - mean).max():
        return None
    return Sentinel(float(codes[0]), len(codes), len(values), mean, other_std)
