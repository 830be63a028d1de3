"""Scores against closed forms and integrals."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from experiments.tables.predictive import Prediction, gaussian, measure, prediction


@pytest.mark.parametrize("y", [-1.0, 0.3, 4.0])
def test_gaussian_crps_is_its_integral(y: float) -> None:
    """CRPS = ∫ (F(t) − 1[y ≤ t])² dt."""
    below, _ = quad(lambda t: norm.cdf(t, 0.5, 2.0) ** 2, -40, y)
    above, _ = quad(lambda t: norm.sf(t, 0.5, 2.0) ** 2, y, 40)
    crps = gaussian(np.array([0.5]), np.array([2.0])).crps(np.array([y]))
    assert crps == pytest.approx(below + above, abs=1e-6)


def test_scores_of_the_truth_are_its_expected_scores() -> None:
    """E NLL = ½ log 2πe σ², E CRPS = σ/√π, width = 3.92 σ."""
    n, std = 200_000, 3.0
    y = 5 + std * np.random.default_rng(0).standard_normal(n)
    measured = measure(prediction(gaussian(np.full(n, 5.0), np.full(n, std))), y)
    assert measured == pytest.approx(
        {
            "rmse": std,
            "nll": 0.5 * np.log(2 * np.pi * np.e * std**2),
            "crps": std / np.sqrt(np.pi),
            "coverage_95": 0.95,
            "width_95": 2 * norm.ppf(0.975) * std,
        },
        rel=5e-3,
    )


def test_units_of_y_move_every_score_as_they_must() -> None:
    rng = np.random.default_rng(1)
    mean, std, y = rng.normal(size=9), rng.uniform(1, 2, 9), rng.normal(size=9)
    one = measure(prediction(gaussian(mean, std)), y)
    ten = measure(prediction(gaussian(10 * mean, 10 * std)), 10 * y)
    assert ten["nll"] == pytest.approx(one["nll"] + np.log(10))
    assert ten["coverage_95"] == one["coverage_95"]
    for name in ("rmse", "crps", "width_95"):
        assert ten[name] == pytest.approx(10 * one[name])


def test_the_interval_that_is_tested_is_the_methods_own() -> None:
    said = gaussian(np.zeros(2), np.ones(2))
    measured = measure(Prediction(said, np.array([0.0, -9.0]), np.ones(2)), np.array([0.5, 2.0]))
    assert (measured["coverage_95"], measured["width_95"]) == (0.5, 5.5)
