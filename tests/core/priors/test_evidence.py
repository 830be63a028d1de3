"""Priors and label noise by marginal likelihood, against the Gaussian density and known noise."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

import gpn
from gpn.core.priors.evidence import (
    feature_noise_std,
    fit_prior_by_evidence,
    gram_noise_std,
    held_out_noise_std,
    log_evidence,
)
from gpn.core.priors.prior import MLPPrior
from gpn.core.priors.spectral import KernelAxes


def rows(n: int, d: int, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(n, d, generator=rng, dtype=torch.float64) - 1) * 3**0.5


def labels(prior: MLPPrior, x: Tensor, noise_std: float, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    gram = prior.kernel(x, x) + noise_std**2 * torch.eye(len(x), dtype=x.dtype)
    white = torch.randn(len(x), 1, generator=rng, dtype=x.dtype)
    return torch.linalg.cholesky(gram) @ white


def log_density(y: Tensor, covariance: Tensor) -> float:
    """log N(y; 0, covariance), summed over outputs."""
    normal = MultivariateNormal(torch.zeros(len(y), dtype=y.dtype), covariance)
    return float(normal.log_prob(y.T).sum())


def test_the_evidence_is_the_log_density_of_the_labels() -> None:
    prior, x = MLPPrior(prior_variance=(10.0, 2.0), bias_variance=(10.0, 0.0)), rows(12, 2)
    y, noise = rows(12, 3, seed=1), torch.tensor([0.05, 0.4], dtype=torch.float64).square()
    found = log_evidence(prior, x, y, noise)
    for value, noise_variance in zip(found, noise, strict=True):
        gram = prior.kernel(x, x) + noise_variance * torch.eye(12, dtype=torch.float64)
        assert float(value) == pytest.approx(log_density(y, gram), rel=1e-9)


@pytest.mark.parametrize("variance", [1.0, 40.0])
def test_smooth_labels_ask_for_a_smooth_prior_and_wild_ones_for_a_wild_one(variance: float) -> None:
    """Averaged over eight draws of labels, within a factor of four of the truth."""
    x, chosen, noises = rows(40, 2), [], []
    truth = MLPPrior(prior_variance=(variance, 3.0), bias_variance=(variance, 0.0))
    for seed in range(8):
        prior, noise_std = fit_prior_by_evidence(x, labels(truth, x, 0.1, seed))
        chosen.append(prior.prior_variance[0])
        noises.append(noise_std)
    centre = float(torch.tensor(chosen).log().mean().exp())
    assert variance / 4 < centre < variance * 4
    assert sum(noises) / 8 == pytest.approx(0.1, rel=0.5)


def test_three_labels_are_not_called_noise() -> None:
    x = rows(3, 2)
    assert fit_prior_by_evidence(x, torch.tensor([[-1.0], [0.0], [1.0]], dtype=x.dtype))[1] < 0.3


def problem(n_outputs: int = 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Sixty labels of a smooth function with noise 0.2."""
    rng = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(60, 1, generator=rng, dtype=torch.float64) - 2
    y = torch.cat([(2 * x + k).sin() for k in range(n_outputs)], dim=1)
    return x, y + 0.2 * torch.randn(60, n_outputs, generator=rng, dtype=torch.float64)


def exact_evidence(features: Tensor, y: Tensor, noise_std: float) -> float:
    """log N(y; 0, Ψ Ψᵀ + σ² I)."""
    covariance = features @ features.T + noise_std**2 * torch.eye(len(y), dtype=y.dtype)
    return log_density(y, covariance)


@pytest.mark.parametrize("n_features", [60, 7], ids=["features span y", "they do not"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_no_noise_near_it_is_more_likely(n_features: int, n_outputs: int) -> None:
    x, y = problem(n_outputs)
    features = KernelAxes(gpn.MLPPrior(), x, n_features, 1.0)(x)
    found = feature_noise_std(features, y)
    at = exact_evidence(features, y, found)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert exact_evidence(features, y, factor * found) < at


@pytest.mark.parametrize("seed", range(3))
def test_a_known_noise_is_found(seed: int) -> None:
    x, y = problem(seed=seed)
    features = KernelAxes(gpn.MLPPrior(), x, 60, 1.0)(x)
    found = feature_noise_std(features, y)
    assert found == pytest.approx(0.2, rel=0.3)
    assert gram_noise_std(features @ features.T, y) == pytest.approx(found, rel=1e-6)


def test_noise_scales_with_features_and_labels() -> None:
    x, y = problem()
    features = KernelAxes(gpn.MLPPrior(), x, 60, 1.0)(x)
    found = feature_noise_std(features, y)
    assert feature_noise_std(100 * features, 100 * y) == pytest.approx(100 * found, rel=1e-6)


@pytest.mark.parametrize("anchor", ["joint", "conditioned"])
def test_a_default_fit_finds_it_too(anchor: str) -> None:
    """Before the first step, from the labels alone: the noise stands on posterior and config."""
    x, y = problem()
    train = gpn.TrainConfig(steps=1, pool_batch=8)
    config = gpn.GPNConfig(train=train, trunk=gpn.MLPTrunk(widths=(8,)), reference_rows=64)
    task = gpn.Task(x, y, pool=gpn.box([-2.0], [2.0]))
    posterior = gpn.GPN(config.replace(anchor=anchor)).fit(task, rng=0)
    assert posterior.noise_std == posterior.config.noise_std
    assert posterior.noise_std == pytest.approx(0.2, rel=0.3)


def test_labels_that_are_all_zero_have_a_usable_noise() -> None:
    rows = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    task = gpn.Task(rows[:12], torch.zeros(12, 1), pool=rows)
    config = gpn.GPNConfig(anchor="conditioned", train=gpn.TrainConfig(steps=1), reference_rows=64)
    assert gpn.GPN(config).fit(task, rng=0).mean(rows).isfinite().all()


def test_held_out_noise_is_the_likeliest() -> None:
    """Residuals of N(0, v + σ²) with a few huge v: squares less variances would be far off."""
    rng = torch.Generator().manual_seed(0)
    variance = torch.full((4000, 1), 0.01)
    variance[:40] = 100.0
    drawn = torch.randn(4000, 1, generator=rng)
    squared = (variance + 0.25) * drawn.square()
    squared[:40] = 0.25
    assert held_out_noise_std(squared, variance) == pytest.approx(0.5, rel=0.05)
    assert float((squared - variance).mean()) < 0
