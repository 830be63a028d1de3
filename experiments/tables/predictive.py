"""What a method says about new rows: a distribution for each target, and its 95 % interval."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gpn.estimators.intervals.distribution import LabelDistribution

LEVEL = 0.95
Values = Float[np.ndarray, "n"]


def gaussian(location: Values, scale: Values) -> LabelDistribution:
    """N(μ, σ²) at each row."""
    return LabelDistribution(location, scale, np.full(len(location), np.inf))


@dataclass(frozen=True)
class Prediction:
    """A distribution, and the interval that is tested: conformal ones are not its quantiles."""

    distribution: LabelDistribution
    low: Values
    high: Values


def prediction(distribution: LabelDistribution) -> Prediction:
    """The central 95 % of a distribution."""
    ends = (distribution.ppf((1 - LEVEL) / 2), distribution.ppf((1 + LEVEL) / 2))
    return Prediction(distribution, *(np.asarray(end) for end in ends))


def measure(predicted: Prediction, y: Values) -> dict[str, float]:
    """Errors, scores and intervals in the units of y, averaged over the rows."""
    said, inside = predicted.distribution, (predicted.low <= y) & (y <= predicted.high)
    return {
        "rmse": float(np.sqrt(np.mean((y - np.asarray(said.mean())) ** 2))),
        "nll": -float(np.mean(said.logpdf(y))),
        "crps": float(np.mean(said.crps(y))),
        "coverage_95": float(np.mean(inside)),
        "width_95": float(np.mean(predicted.high - predicted.low)),
    }
