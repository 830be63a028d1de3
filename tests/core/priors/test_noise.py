"""The labels' noise, by marginal likelihood or held-out labels, against a known noise."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

import gpn
from gpn.core.priors.evidence import feature_noise_std, held_out_noise_std
from gpn.core.priors.spectral import KernelAxes


def problem(n_outputs: int = 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Sixty labels of a smooth function with noise 0.2."""
    rng = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(60, 1, generator=rng, dtype=torch.float64) - 2
    y = torch.cat([(2 * x + k).sin() for k in range(n_outputs)], dim=1)
    return x, y + 0.2 * torch.randn(60, n_outputs, generator=rng, dtype=torch.float64)


def log_evidence(features: Tensor, y: Tensor, noise_std: float) -> float:
    """log N(y; 0, Ψ Ψᵀ + σ² I), summed over outputs."""
    covariance = features @ features.T + noise_std**2 * torch.eye(len(y), dtype=y.dtype)
    law = MultivariateNormal(torch.zeros(len(y), dtype=y.dtype), covariance)
    return float(law.log_prob(y.T).sum())


@pytest.mark.parametrize("n_features", [60, 7], ids=["features span y", "they do not"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_no_noise_near_it_is_more_likely(n_features: int, n_outputs: int) -> None:
    x, y = problem(n_outputs)
    features = KernelAxes(gpn.MLPPrior(), x, n_features, 1.0)(x)
    found = feature_noise_std(features, y)
    at = log_evidence(features, y, found)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert log_evidence(features, y, factor * found) < at


@pytest.mark.parametrize("seed", range(3))
def test_a_known_noise_is_found(seed: int) -> None:
    x, y = problem(seed=seed)
    features = KernelAxes(gpn.MLPPrior(), x, 60, 1.0)(x)
    assert feature_noise_std(features, y) == pytest.approx(0.2, rel=0.3)


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
