"""The score that a share of new known rows exceeds, from log odds of labels left out of their fit.

Of n + 1 exchangeable rows each is equally likely to score highest, so that the k-th lowest of n
reference scores is exceeded by a share (n + 1 − k)/(n + 1) of new rows, on average over data sets;
between two of them the score is interpolated. A share below 1/(n + 1) is beyond what the labels can
tell: there the threshold follows an exponential tail through the largest scores.
"""

import math

import numpy as np
from numpy.typing import NDArray

from gpn.core.warnings import GPNWarning, warn_caller

Rows = NDArray[np.float64]

MIN_TAIL, TAIL_SHARE = 5, 0.1
LEAST_EXPECTED = 0.2  # of n + 1 known rows beyond the threshold


class ExtrapolatedThresholdWarning(GPNWarning):
    """The share of false alarms asked for is smaller than the labels can show."""


def threshold_log_odds(reference: Rows, fpr: float) -> float:
    """The log odds that a share `fpr` of new known rows exceeds, on average over fits."""
    ordered, n = np.sort(reference), len(reference)
    position = (n + 1) * (1 - fpr)
    if position <= n:
        return float(np.interp(position, np.arange(1, n + 1), ordered))
    return extrapolated(ordered, fpr)


def extrapolated(ordered: Rows, fpr: float) -> float:
    """Beyond the largest score: u + k b ((p/fpr)^{1/k} − 1), p = k/(n + 1) above u.

    b is the mean excess of the k scores over u. In an exponential tail a share `fpr` of new rows
    exceeds it exactly, on average over fits: E exp(−c b̂/b) = (1 + c/k)^{−k}.
    """
    n = len(ordered)
    k = min(max(MIN_TAIL, round(TAIL_SHARE * n)), n - 1)
    start = ordered[-k - 1]
    excess = float((ordered[-k:] - start).mean())
    ratio = k / (n + 1) / fpr
    return float(start + k * excess * (ratio ** (1 / k) - 1))


def warn_of_extrapolation(n: int, fpr: float) -> None:
    """Warn where a threshold lies far beyond the labels' scores."""
    if fpr * (n + 1) < LEAST_EXPECTED:
        warn_caller(
            f"a share of false alarms should be about 1/{n + 1} for {n} labels to show it, got "
            f"{fpr:g}; the threshold follows an exponential tail beyond their scores: use a "
            "larger fpr, or check it on more known rows.",
            ExtrapolatedThresholdWarning,
        )


def false_alarm_std(n: int, fpr: float) -> float:
    """How much the share of false alarms differs from data set to data set of n labels."""
    return math.sqrt(fpr * (1 - fpr) / (n + 2))
