"""The predictive distribution of labels, one for each row, with the verbs of scipy.stats."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from gpn.core.checks import require_level

Array = NDArray[np.float64]

GAUSSIAN_FREEDOM = 1e6  # stands in for infinitely many degrees of freedom
MAX_STEPS, ROUNDING = 50, 4e-16  # of Newton's method: five, where no end is far off
NODES = 40  # of the integral over a Student's t's random scale


@dataclass(frozen=True)
class LabelDistribution:
    """s · (location + scale · t_ν) + (1 − s) · N(location, other²) at each row.

    Arrays are ``(n,)``, or ``(n, o)`` for several targets. `known` is s, the probability that the
    row is like the labeled ones; where it is None, s is 1 everywhere. Infinite `freedom` is the
    normal distribution. Arguments broadcast against the rows.
    """

    location: Array
    scale: Array
    freedom: Array
    known: Array | None = None
    other: Array | None = None

    def mean(self) -> Array:
        return self.location

    def std(self) -> Array:
        """The standard deviation of a new label: that of the function and the noise together."""
        variance = self._unit_variance * self.scale**2
        if self.known is not None:
            variance = self._known * variance + (1 - self._known) * self._other**2
        return np.sqrt(variance)

    def pdf(self, y: Any) -> Array:
        return self._mixed(self._frozen.pdf(y), lambda: self._normal.pdf(y))

    def logpdf(self, y: Any) -> Array:
        if self.known is None:
            return self._frozen.logpdf(y)
        with np.errstate(divide="ignore"):
            first = np.log(self._known) + self._frozen.logpdf(y)
            return np.logaddexp(first, np.log1p(-self._known) + self._normal.logpdf(y))

    def cdf(self, y: Any) -> Array:
        return self._mixed(self._frozen.cdf(y), lambda: self._normal.cdf(y))

    def ppf(self, q: Any) -> Array:
        """The quantile q of each row; of a mixture it lies between those of its parts."""
        if self.known is None:
            is_normal = np.isinf(self.freedom)
            student = self._standard_ppf(q)
            return self.location + np.where(is_normal, self.scale * special.ndtri(q), student)
        standard = self._standard_ppf(q)
        ends = np.broadcast_arrays(standard, self._other * special.ndtri(q), self._known)
        found, other = np.array(ends[0]), ends[1]
        mixed = (ends[2] < 1) & (found != other)
        if mixed.any():
            found[mixed] = self._mixed_ppf(q, mixed, found[mixed], other[mixed])
        return self.location + found

    def _mixed_ppf(self, q: Any, rows: NDArray[np.bool_], first: Array, second: Array) -> Array:
        """Newton's method from between two ends, and bisection where it would leave them."""

        def those(values: Any) -> Array:
            return np.broadcast_to(values, rows.shape)[rows]

        scale, other, known, level = map(those, (self.scale, self._other, self._known, q))
        freedom = those(self._freedom)
        low, high = np.minimum(first, second), np.maximum(first, second)
        value = known * first + (1 - known) * second
        for _ in range(MAX_STEPS):
            t, z = value / scale, value / other
            gap = known * special.stdtr(freedom, t) + (1 - known) * special.ndtr(z) - level
            slope = known / scale * _student_pdf(t, freedom) + (1 - known) / other * _normal_pdf(z)
            low, high = np.where(gap < 0, value, low), np.where(gap < 0, high, value)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = value - gap / slope
            inside = (step >= low) & (step <= high)  # false where the slope is 0
            step = np.where(inside, step, (low + high) / 2)
            moved, value = np.abs(step - value), step
            if (moved <= ROUNDING * np.abs(value)).all():
                break
        return value

    def rvs(self, size: int = 1, random_state: Any = None) -> Array:
        """`size` labels of each row, along a last axis."""
        shape = (size, *self.location.shape)
        rng = np.random.default_rng(random_state) if self.known is not None else random_state
        draws = stats.t.rvs(self._freedom, self.location, self.scale, size=shape, random_state=rng)
        if self.known is not None:
            assert isinstance(rng, np.random.Generator)
            others = self.location + self._other * rng.standard_normal(shape)
            draws = np.where(rng.random(shape) < self._known, draws, others)
        return np.moveaxis(draws, 0, -1)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """The central interval that holds a share `level`."""
        require_level(level)
        upper = self.ppf((1 + level) / 2)
        return 2 * self.location - upper, upper  # every part is symmetric about its location

    def margin(self, level: Any) -> Array:
        """How much further out the central interval of each row ends than if it were known."""
        if self.known is None:
            return np.zeros_like(self.location)
        top = (1 + level) / 2
        return np.maximum(self.ppf(top) - self.location - self._standard_ppf(top), 0.0)

    def crps(self, y: Any) -> Array:
        """The continuous ranked probability score of labels y: in their units, lower is better.

        E|Y − y| − ½ E|Y − Y'|, in closed form for each part (Jordan, Krüger and Lerch 2019): with
        z = (y − location)/scale, the first term of a Student's t is scale times
        z (2F(z) − 1) + 2 f(z) (ν + z²)/(ν − 1).
        """
        z, freedom = (y - self.location) / self.scale, self._freedom
        spread = (freedom + z**2) / (freedom - 1)
        error = z * (2 * stats.t.cdf(z, freedom) - 1) + 2 * stats.t.pdf(z, freedom) * spread
        log_ratio = special.betaln(0.5, freedom - 0.5) - 2 * special.betaln(0.5, freedom / 2)
        constant = 2 * np.sqrt(freedom) / (freedom - 1) * np.exp(log_ratio)
        if self.known is None:
            return self.scale * (error - constant)
        s, other, w = self._known, self._other, (y - self.location) / self._other
        error_of_other = w * (2 * special.ndtr(w) - 1) + 2 * np.exp(-(w**2) / 2) / np.sqrt(
            2 * np.pi
        )
        between = s**2 * self.scale * constant + (1 - s) ** 2 * other / np.sqrt(np.pi)
        between = between + s * (1 - s) * self._cross_difference()
        return s * self.scale * error + (1 - s) * other * error_of_other - between

    def _cross_difference(self) -> Array:
        """E|T − N| of the two parts: T is normal given its random scale, over which this sums."""
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        unit = ((nodes + 1) / 2) ** 4  # closer together at small shares, where scales are large
        weights = weights / 2 * 4 * ((nodes + 1) / 2) ** 3
        total = np.zeros(np.broadcast(self.scale, self.location).shape)
        for share, weight in zip(unit, weights, strict=True):
            precision = special.gammaincinv(self._freedom / 2, share) * 2 / self._freedom
            total += weight * np.sqrt(self.scale**2 / precision + self._other**2)
        return np.sqrt(2 / np.pi) * total

    def _mixed(self, first: Array, second: Any) -> Array:
        if self.known is None:
            return first
        return self._known * first + (1 - self._known) * second()

    def _standard_ppf(self, q: Any) -> Array:
        freedom = np.atleast_1d(self._freedom)
        if (freedom == freedom[:1]).all():  # one for all rows
            freedom = freedom[:1]
        return self.scale * special.stdtrit(freedom, q)

    @property
    def _unit_variance(self) -> Array:
        """Of Student's t without a scale; infinite for two degrees of freedom or fewer."""
        with np.errstate(invalid="ignore", divide="ignore"):
            finite = self.freedom / (self.freedom - 2)
        return np.where(np.isinf(self.freedom), 1.0, np.where(self.freedom > 2, finite, np.inf))

    @property
    def _known(self) -> Array:
        assert self.known is not None
        return self.known

    @property
    def _other(self) -> Array:
        assert self.other is not None
        return self.other

    @property
    def _freedom(self) -> Array:
        return np.minimum(self.freedom, GAUSSIAN_FREEDOM)

    @property
    def _frozen(self) -> Any:
        return stats.t(self.freedom, loc=self.location, scale=self.scale)

    @property
    def _normal(self) -> Any:
        return stats.norm(self.location, self._other)


def _student_pdf(t: Array, freedom: Array) -> Array:
    log_norm = special.betaln(0.5, freedom / 2) + np.log(freedom) / 2
    density: Array = np.exp(-(freedom + 1) / 2 * np.log1p(t**2 / freedom) - log_norm)
    return density


def _normal_pdf(z: Array) -> Array:
    density: Array = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return density
