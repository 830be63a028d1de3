"""The prior that labels speak for, against the Gaussian density itself."""

import pytest
import torch

from gpn.core.priors.evidence import fit_prior_by_evidence, log_evidence
from gpn.core.priors.prior import MLPPrior


def rows(n: int, d: int, seed: int = 0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(n, d, generator=rng, dtype=torch.float64) - 1) * 3**0.5


def labels(prior: MLPPrior, x: torch.Tensor, noise_std: float, seed: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    gram = prior.kernel(x, x) + noise_std**2 * torch.eye(len(x), dtype=x.dtype)
    white = torch.randn(len(x), 1, generator=rng, dtype=x.dtype)
    return torch.linalg.cholesky(gram) @ white


def test_the_evidence_is_the_log_density_of_the_labels() -> None:
    prior, x = MLPPrior(prior_variance=(10.0, 2.0), bias_variance=(10.0, 0.0)), rows(12, 2)
    y, noise = rows(12, 3, seed=1), torch.tensor([0.05, 0.4], dtype=torch.float64).square()
    found = log_evidence(prior, x, y, noise)
    for value, noise_variance in zip(found, noise, strict=True):
        gram = prior.kernel(x, x) + noise_variance * torch.eye(12, dtype=torch.float64)
        law = torch.distributions.MultivariateNormal(torch.zeros(12, dtype=x.dtype), gram)
        assert float(value) == pytest.approx(float(law.log_prob(y.T).sum()), rel=1e-9)


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
