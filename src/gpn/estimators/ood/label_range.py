"""Rows whose labels lie beyond all labels: what a detector of rows alone cannot see.

With p(x) the probability of a new label outside the range of the labels, by the predictive
distribution, and p̄ its mean over labels that were left out,

    log odds of x = log odds by the detector + log(1 + q p(x)/p̄) .

This is Bayes' rule for an outlier whose label is likelier to lie beyond, up to q. p̄ counts as at
least `MIN_USUAL`: few labels cannot show that it is less.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

Rows = NDArray[np.float64]

OUTSIDE_SHARE = 0.3  # q
MIN_USUAL = 0.02


@dataclass(frozen=True)
class LabelRange:
    """The range of each target's labels.

    usual: p̄. reference: log odds of labels that were left out, sorted.
    """

    low: Rows
    high: Rows
    usual: float
    reference: Rows

    @classmethod
    def of(cls, y: Rows, rows: NDArray[np.int64], spread: "Spread", log_odds: Rows) -> Self:
        """Of labels ``(n, o)``; `rows` were left out, with their spread and a detector's odds."""
        ordered = np.sort(y, axis=0)
        left_out = y[rows]
        low = np.where(left_out <= ordered[0], ordered[1], ordered[0])
        high = np.where(left_out >= ordered[-1], ordered[-2], ordered[-1])
        outside = spread.outside(low, high)
        found = cls(ordered[0], ordered[-1], max(float(outside.mean()), MIN_USUAL), log_odds)
        return cls(found.low, found.high, found.usual, np.sort(log_odds + found._evidence(outside)))

    def log_odds(self, spread: "Spread") -> Rows:
        """What labels that may lie beyond add to a detector's log odds."""
        return self._evidence(spread.outside(self.low, self.high))

    def _evidence(self, outside: Rows) -> Rows:
        evidence: Rows = np.log1p(OUTSIDE_SHARE * outside / self.usual)
        return evidence


@dataclass(frozen=True)
class Spread:
    """Student's t for each row's label and target ``(n, o)``; infinite freedom is the normal."""

    location: Rows
    scale: Rows
    freedom: Rows

    def outside(self, low: Rows, high: Rows) -> Rows:
        """The probability that one of the row's labels lies outside low to high."""
        inside = self._cdf(high) - self._cdf(low)
        total: Rows = 1 - np.clip(inside, 0.0, 1.0).prod(1)
        return total

    def _cdf(self, y: Rows) -> Rows:
        z = (y - self.location) / self.scale
        is_normal = np.isinf(self.freedom)
        found: Rows = ndtr(z)
        if not is_normal.all():
            found = np.where(is_normal, found, stdtr(self.freedom, z))
        return found
