"""Quantiles and deviations of a label's distribution, against scipy and their definition."""

import numpy as np
import pytest
from scipy import stats

from gpn.estimators.intervals.distribution import LabelDistribution

RNG = np.random.default_rng(0)
N = 400


def mixture(freedom: float, known: np.ndarray) -> LabelDistribution:
    scale = np.exp(RNG.normal(size=N) * 3)
    return LabelDistribution(
        RNG.normal(size=N),
        scale,
        np.full(N, freedom),
        known,
        scale * np.exp(np.abs(RNG.normal(size=N)) * 3),
    )


@pytest.mark.parametrize("freedom", [2.5, 4.0, 30.0, np.inf])
@pytest.mark.parametrize("q", [0.5, 0.975, 0.9999, 0.025, 1e-6])
def test_the_cdf_of_a_quantile_is_its_share(freedom: float, q: float) -> None:
    """Newton's method ends where bisection would, also where nearly all rows are of one part."""
    known = np.concatenate([RNG.random(N - 5), [0.0, 1.0, 1e-12, 1 - 1e-12, 0.5]])
    found = mixture(freedom, known)
    # a million degrees of freedom stand in for infinitely many
    rtol = 1e-3 if np.isinf(freedom) else 1e-7
    np.testing.assert_allclose(found.cdf(found.ppf(q)), q, rtol=rtol, atol=0)


def test_quantiles_of_known_rows_are_those_of_student() -> None:
    found = mixture(4.0, np.ones(N))
    np.testing.assert_array_equal(found.ppf(0.9), found.location + found._standard_ppf(0.9))
    expected = stats.t.ppf(0.9, 4.0, found.location, found.scale)
    np.testing.assert_allclose(found.ppf(0.9), expected)


def test_each_target_may_have_a_freedom_of_its_own() -> None:
    freedom = np.broadcast_to(np.array([3.0, np.inf]), (5, 2))
    found = LabelDistribution(np.zeros((5, 2)), np.ones((5, 2)), freedom)
    expected = [stats.t.ppf(0.9, 3.0), stats.norm.ppf(0.9)]
    np.testing.assert_allclose(found.ppf(0.9), np.tile(expected, (5, 1)), rtol=1e-5)
    np.testing.assert_allclose(found.std(), np.tile([3**0.5, 1.0], (5, 1)))


@pytest.mark.parametrize("freedom", [1.5, 2.5, 10.0, np.inf])
def test_the_deviation_is_that_of_scipy(freedom: float) -> None:
    found = LabelDistribution(np.zeros(3), np.array([1.0, 2.0, 3.0]), np.full(3, freedom))
    np.testing.assert_allclose(found.std(), stats.t.std(freedom, scale=found.scale))
