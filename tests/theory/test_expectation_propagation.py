"""Expectation propagation: the logistic integral, and moments of exact posteriors by quadrature."""

import numpy as np
import pytest
import torch
from scipy import integrate
from scipy.special import expit

from gpn.core.priors.expectation_propagation import (
    LabelFeatures,
    Sites,
    find_sites,
    log_likelihood_slopes,
)

ONE = torch.ones(1, dtype=torch.float64)


def moments(mean: float, variance: float, sign: float = 1.0) -> tuple[float, float, float]:
    """Normaliser, mean and variance of σ(± g) N(g; mean, variance), by quadrature."""
    std = variance**0.5
    points = np.unique(np.clip([0.0, -sign * 3, sign * 3], mean - 12 * std, mean + 12 * std))

    def integral(power: int) -> float:
        def integrand(g: float) -> float:
            return g**power * expit(sign * g) * np.exp(-0.5 * ((g - mean) / std) ** 2)

        ends = mean - 12 * std, mean + 12 * std
        return integrate.quad(integrand, *ends, points=points, limit=400)[0]

    z = integral(0)
    first = integral(1) / z
    return z, first, integral(2) / z - first**2


@pytest.mark.parametrize("mean", [-3.0, 0.0, 2.0])
@pytest.mark.parametrize("variance", [0.1, 4.0, 2500.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_slopes_are_those_of_the_exact_moments(mean: float, variance: float, sign: float) -> None:
    """The tilted mean is μ + v ∂log Z, its variance v − v² (−∂² log Z)."""
    slope, curvature = log_likelihood_slopes(sign * ONE, mean * ONE, variance * ONE)
    _, exact_mean, exact_variance = moments(mean, variance, sign)
    std = variance**0.5
    assert float(mean + variance * slope) == pytest.approx(exact_mean, abs=2e-3 * std)
    found = float(variance - variance**2 * curvature)
    assert found == pytest.approx(exact_variance, rel=5e-3)


@pytest.mark.parametrize("variance", [1.0, 2500.0])
def test_one_label_has_exact_moments(variance: float) -> None:
    labels = LabelFeatures((variance**0.5 * ONE)[:, None], 0 * ONE)
    sites = find_sites(labels, ONE)
    mean, found = labels.posterior(sites)
    _, exact_mean, exact_variance = moments(0.0, variance)
    assert sites.has_converged
    assert float(mean) == pytest.approx(exact_mean, rel=0.01)
    assert float(found) == pytest.approx(exact_variance, rel=0.02)


def test_a_rest_is_as_good_as_a_feature_of_its_own() -> None:
    """K = ΦᵀΦ + diag(r): the same sites and moments by features and rest, or by features alone."""
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(3, 8, generator=rng, dtype=torch.float64)
    rest = torch.rand(8, generator=rng, dtype=torch.float64)
    y = torch.randn(8, generator=rng, dtype=torch.float64).sign()
    split = LabelFeatures(features, rest)
    joined = LabelFeatures(torch.cat([features, rest.sqrt().diag()]), torch.zeros_like(rest))
    sites, other = find_sites(split, y), find_sites(joined, y)
    torch.testing.assert_close(sites.precision, other.precision)
    for found, wanted in zip(split.posterior(sites), joined.posterior(other), strict=True):
        torch.testing.assert_close(found, wanted)


def test_without_sites_the_posterior_is_the_prior() -> None:
    rng = torch.Generator().manual_seed(0)
    labels = LabelFeatures(torch.randn(4, 6, generator=rng, dtype=torch.float64), ONE.expand(6))
    zero = torch.zeros(6, dtype=torch.float64)
    mean, variance = labels.posterior(Sites(zero, zero))
    assert torch.equal(mean, zero)
    torch.testing.assert_close(variance, labels.features.square().sum(0) + 1)


def test_correlated_steep_labels_converge() -> None:
    """Two hundred labels that are the sign of a smooth function, with logits of sixty."""
    x = torch.linspace(-1, 1, 200, dtype=torch.float64)
    features = 60 * torch.stack([torch.ones_like(x), x, x**2, x**3])
    sites = find_sites(LabelFeatures(features, torch.zeros_like(x)), (x - 0.2).sign())
    assert sites.has_converged
    mean, _ = LabelFeatures(features, torch.zeros_like(x)).posterior(sites)
    assert torch.equal(mean.sign(), (x - 0.2).sign())
