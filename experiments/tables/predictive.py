"""What a method says about new rows: a distribution for each target, and its 95 % interval."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

LEVEL = 0.95
Values = Float[np.ndarray, "n"]


class Distribution(Protocol):
    """One distribution per row; every method takes and returns one number per row."""

    def mean(self) -> Any: ...

    def logpdf(self, y: Any) -> Any: ...

    def crps(self, y: Any) -> Any: ...

    def ppf(self, q: float) -> Any: ...


@dataclass(frozen=True)
class Gaussian:
    """N(μ, σ²) at each row."""

    location: Values
    scale: Values

    def mean(self) -> Values:
        return self.location

    def logpdf(self, y: Values) -> Values:
        return norm.logpdf(y, self.location, self.scale)

    def crps(self, y: Values) -> Values:
        """σ (z (2 Φ(z) − 1) + 2 φ(z) − 1/√π), z = (y − μ)/σ (Gneiting and Raftery 2007)."""
        z = (y - self.location) / self.scale
        return self.scale * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - np.pi**-0.5)

    def ppf(self, q: float) -> Values:
        return norm.ppf(q, self.location, self.scale)


@dataclass(frozen=True)
class Prediction:
    """A distribution, and the interval that is tested: conformal ones are not its quantiles."""

    distribution: Distribution
    low: Values
    high: Values


def prediction(distribution: Distribution) -> Prediction:
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
