"""The predictive distribution of labels, one for each row, with the verbs of scipy.stats."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from gpn.core.checks import require_level

Array = NDArray[np.float64]

GAUSSIAN_FREEDOM = 1e6  # stands in for infinitely many degrees of freedom


@dataclass(frozen=True)
class LabelDistribution:
    """location + scale · t_ν at each row: ``(n,)``, or ``(n, o)`` for several targets.

    Infinite `freedom` is the normal distribution. Arguments broadcast against the rows.
    """

    location: Array
    scale: Array
    freedom: Array

    def mean(self) -> Array:
        return self.location

    def std(self) -> Array:
        """The standard deviation of a new label: that of the function and the noise together."""
        return self._frozen.std()

    def pdf(self, y: Any) -> Array:
        return self._frozen.pdf(y)

    def logpdf(self, y: Any) -> Array:
        return self._frozen.logpdf(y)

    def cdf(self, y: Any) -> Array:
        return self._frozen.cdf(y)

    def ppf(self, q: Any) -> Array:
        """The quantile q of each row."""
        return self._frozen.ppf(q)

    def rvs(self, size: int = 1, random_state: Any = None) -> Array:
        """`size` labels of each row, along a last axis."""
        shape = (size, *self.location.shape)
        draws = stats.t.rvs(
            self._freedom, self.location, self.scale, size=shape, random_state=random_state
        )
        return np.moveaxis(draws, 0, -1)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """The central interval that holds a share `level`."""
        require_level(level)
        return self.ppf((1 - level) / 2), self.ppf((1 + level) / 2)

    def crps(self, y: Any) -> Array:
        """The continuous ranked probability score of labels y: in their units, lower is better.

        With z = (y − location) / scale (Jordan, Krüger and Lerch 2019):

            z (2F(z) − 1) + 2 f(z) (ν + z²)/(ν − 1) − 2√ν/(ν − 1) · B(1/2, ν − 1/2)/B(1/2, ν/2)²
        """
        z, freedom = (y - self.location) / self.scale, self._freedom
        spread = (freedom + z**2) / (freedom - 1)
        log_ratio = special.betaln(0.5, freedom - 0.5) - 2 * special.betaln(0.5, freedom / 2)
        constant = 2 * np.sqrt(freedom) / (freedom - 1) * np.exp(log_ratio)
        score = z * (2 * stats.t.cdf(z, freedom) - 1) + 2 * stats.t.pdf(z, freedom) * spread
        return self.scale * (score - constant)

    @property
    def _freedom(self) -> Array:
        return np.minimum(self.freedom, GAUSSIAN_FREEDOM)

    @property
    def _frozen(self) -> Any:
        return stats.t(self.freedom, loc=self.location, scale=self.scale)
