"""Laplace's Gaussian over logits against optimisers, quadrature and refitting."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

import gpn
from gpn.core.posterior.softmax import softmax_moments
from gpn.core.priors.ard import ARDPrior
from gpn.core.priors.class_evidence import learn_class_prior
from gpn.core.priors.laplace import (
    FeatureCovariance,
    FullCovariance,
    find_mode,
    laplace_root,
    log_evidence_and_gradient,
)
from gpn.core.types import as_generator
from gpn.methods.gpn.model.class_generator import (
    condition_on_classes,
    condition_on_classes_by_landmarks,
    tempered,
)

PRIOR = ARDPrior(column_scales=(0.5, 2.0, 1.0), height=4.0, bias=0.7, linear=2.0)


def labels(n: int, n_classes: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 3, generator=as_generator(0), dtype=torch.float64)
    score = torch.stack([x[:, 0].sin(), 0.7 * x[:, 2], x[:, 1] * x[:, 0], x[:, 1]], dim=1)
    noise = torch.randn(n, 4, generator=as_generator(1), dtype=torch.float64)
    return x, (2 * score + 0.5 * noise)[:, :n_classes].argmax(1)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_mode_is_that_of_an_independent_optimiser(n_classes: int) -> None:
    x, y = labels(25, n_classes)
    factor = torch.linalg.cholesky(PRIOR.kernel(x, x) + 1e-10 * torch.eye(25, dtype=x.dtype))

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        u = torch.tensor(point.reshape(25, n_classes), requires_grad=True)
        fit = torch.nn.functional.cross_entropy(factor @ u, y, reduction="sum")
        total = fit + 0.5 * u.square().sum()
        total.backward()
        assert u.grad is not None
        return float(total.detach()), u.grad.numpy().ravel()

    found = minimize(loss, np.zeros(25 * n_classes), jac=True, options={"gtol": 1e-9})
    expected = factor @ torch.tensor(found.x.reshape(25, n_classes))
    mode = find_mode(FullCovariance(PRIOR.kernel(x, x)), y, x.new_zeros(25, n_classes))
    assert mode.logits == pytest.approx(expected, abs=2e-3)
    assert mode.log_posterior == pytest.approx(-found.fun, abs=1e-4)
    assert mode.weights.sum(1) == pytest.approx(torch.zeros(25, dtype=x.dtype), abs=1e-9)


def test_one_label_of_two_classes_is_close_to_quadrature() -> None:
    """The difference of logits d ~ N(0, 2k), with likelihood σ(d): one number to integrate."""
    prior = PRIOR.replace(height=0.5, linear=0.0)
    x, y = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([1])
    generator = condition_on_classes(prior, x, y, 2, 1.0).generator
    mean, variance = generator.moments(x)
    k = float(prior.kernel(x, x))
    d = torch.linspace(-12, 12, 20_001, dtype=torch.float64) * (2 * k) ** 0.5
    density = torch.sigmoid(d) * torch.exp(-d.square() / (4 * k))
    density /= density.sum()
    expected = float((density * d).sum())
    spread = float((density * d.square()).sum()) - expected**2
    assert float(mean[0, 1] - mean[0, 0]) == pytest.approx(expected, rel=0.05)
    assert float(variance.sum()) == pytest.approx(spread, rel=0.05)  # Var[f₁ − f₀]


def test_the_shared_precision_is_exact_for_two_classes() -> None:
    """Cov[f₁ − f₀] by the full Hessian of both logits."""
    x, y = labels(20, 2)
    gram = PRIOR.kernel(x, x)
    mode = find_mode(FullCovariance(gram), y, x.new_zeros(20, 2))
    p = mode.logits.softmax(1)[:, 1]
    precision = 1 / (p * (1 - p))  # of the difference, whose prior is 2K
    exact = 2 * gram - 2 * gram @ torch.linalg.inv(2 * gram + torch.diag(precision)) @ (2 * gram)
    root = laplace_root(gram, mode.precision)
    ours = 2 * (gram - gram @ root.T @ root @ gram)
    assert ours == pytest.approx(exact, abs=1e-9)


def test_left_out_logits_are_about_those_of_a_refit() -> None:
    x, y = labels(60, 3)
    prior = PRIOR.replace(height=1.0, linear=0.5)
    found = condition_on_classes(prior, x, y, 3, 1.0)
    for row in range(0, 60, 7):
        others = torch.arange(60) != row
        refit = condition_on_classes(prior, x[others], y[others], 3, 1.0).generator
        mean, variance = refit.moments(x[row : row + 1])
        assert found.left_out_mean[row] == pytest.approx(mean[0], abs=0.12)
        assert float(found.left_out_variance[row]) == pytest.approx(float(variance[0, 0]), rel=0.12)


def test_the_evidence_has_its_gradient() -> None:
    x, y = labels(30, 2)
    gram, mean = PRIOR.kernel(x, x), x.new_zeros(30, 2)
    _, gradient, _ = log_evidence_and_gradient(gram, y, mean)
    half = torch.randn(30, 3, generator=as_generator(2), dtype=torch.float64)
    change = 1e-4 * half @ half.T
    above, below = (log_evidence_and_gradient(gram + s * change, y, mean)[0] for s in (1, -1))
    assert (above - below) / 2 == pytest.approx(float((gradient * change).sum()), rel=1e-3)


def test_features_of_all_labels_are_the_full_covariance() -> None:
    x, y = labels(40, 3)
    few = condition_on_classes(PRIOR, x, y, 3, 0.3)
    many = condition_on_classes_by_landmarks(PRIOR, x, y, 3, 0.3, x)
    new = torch.randn(9, 3, generator=as_generator(5), dtype=torch.float64)
    for ours, exact in zip(many.generator.moments(new), few.generator.moments(new), strict=True):
        assert ours == pytest.approx(exact, abs=2e-3)
    assert many.left_out_mean == pytest.approx(few.left_out_mean, abs=2e-3)
    assert many.left_out_variance == pytest.approx(few.left_out_variance, rel=1e-2)
    feature = FeatureCovariance(torch.linalg.cholesky(PRIOR.kernel(x, x)).T)
    assert feature.times(x) == pytest.approx(PRIOR.kernel(x, x) @ x)


def test_a_cold_posterior_has_the_mean_of_a_higher_prior_and_less_variance() -> None:
    x, y = labels(30, 3)
    warm = condition_on_classes(PRIOR, x, y, 3, 1.0)
    cold = condition_on_classes(tempered(PRIOR, 0.1), x, y, 3, 0.1)
    new = torch.randn(9, 3, generator=as_generator(5), dtype=torch.float64)
    (mean, variance), (cold_mean, cold_variance) = (
        one.generator.moments(new) for one in (warm, cold)
    )
    assert cold_mean == pytest.approx(mean, abs=1e-6)
    assert cold_variance == pytest.approx(0.1 * variance, rel=1e-5)


def test_expected_softmax_is_that_of_many_draws() -> None:
    mean = torch.tensor([[0.0, 1.0, -2.0], [3.0, 0.0, 0.5]], dtype=torch.float64)
    variance = torch.tensor([[1.0], [4.0]], dtype=torch.float64).expand_as(mean)
    noise = torch.randn(400_000, 2, 3, generator=as_generator(0), dtype=torch.float64)
    p = torch.softmax(mean + variance.sqrt() * noise, -1)
    ours, entropy = softmax_moments(mean, variance)
    assert ours == pytest.approx(p.mean(0), abs=4e-3)
    assert entropy == pytest.approx(torch.special.entr(p).sum(-1).mean(0), abs=8e-3)


def test_the_evidence_finds_the_column_that_matters() -> None:
    x = torch.randn(200, 4, generator=as_generator(0), dtype=torch.float64)
    y = (x[:, 1].abs() > 0.7).long()
    zeros = x.new_zeros(200, 2)
    shared = learn_class_prior(x, y, zeros, kind="shared")
    scales = learn_class_prior(x, y, zeros, start=shared).column_scales
    assert min(scales) == scales[1]
    assert sorted(scales)[1] > 2 * scales[1]
    assert len(set(shared.column_scales)) == 1


def test_a_linear_prior_has_linear_functions_with_an_intercept() -> None:
    x, y = labels(80, 2)
    prior = learn_class_prior(x, y, x.new_zeros(80, 2), kind="linear")
    generator = condition_on_classes(prior, x, y, 2, 1.0).generator
    at = [generator.mean(torch.full((1, 3), v, dtype=torch.float64))[0, 0] for v in (0.0, 1.0, 2.0)]
    assert float(at[2] - at[1]) == pytest.approx(float(at[1] - at[0]), rel=1e-3)
    assert abs(float(at[0])) > 1e-3


def test_a_gpn_of_classes_in_closed_form() -> None:
    x, y = labels(60, 3)
    config = gpn.GPNConfig(generator="closed-form")
    posterior = gpn.GPN(config).fit(gpn.Task(x, y), rng=0)
    p = posterior.probabilities(x)
    assert p.sum(1) == pytest.approx(torch.ones(60, dtype=x.dtype))
    assert float((p.argmax(1) == y).double().mean()) > 0.7
    draws = posterior.draw_many(4000, rng=0)(x[:10]).softmax(-1)
    assert p[:10] == pytest.approx(draws.mean(0), abs=0.03)
    assert math.isfinite(float(posterior.mutual_information(x).sum()))
    assert posterior.config.temperature is not None
