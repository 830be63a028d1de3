"""A trained default GPN against exact posteriors."""

import pytest
import torch

import gpn
from gpn.data import six_points
from gpn.methods.gp import GP, GPConfig, GPPosterior
from gpn.methods.gpn import AffinePosterior
from gpn.metrics import covariance_error, marginal_w2

GRID = torch.linspace(-2, 2, 81, dtype=torch.float64)[:, None]


@pytest.fixture(scope="module")
def six() -> tuple[AffinePosterior, GPPosterior]:
    task = six_points()
    posterior = gpn.GPN(gpn.GPNConfig(noise_std=0.1)).fit(task, rng=0)
    assert isinstance(posterior, AffinePosterior)
    return posterior, GP(GPConfig(noise_std=0.1)).fit(task)


def test_six_points_are_exact_by_closed_form_moments(
    six: tuple[AffinePosterior, GPPosterior],
) -> None:
    posterior, truth = six
    assert posterior.config.anchor == "joint"
    distance = marginal_w2(
        posterior.mean(GRID).double(),
        posterior.std(GRID).double(),
        truth.mean(GRID),
        truth.std(GRID),
    )
    assert float(distance) < 0.01
    error = covariance_error(posterior.covariance(GRID).double(), truth.covariance(GRID))
    assert float(error) < 0.01


def test_variance_at_the_labels_is_exact(six: tuple[AffinePosterior, GPPosterior]) -> None:
    posterior, truth = six
    x = six_points().x_obs
    ratio = posterior.variance(x).double() / truth.variance(x)
    assert float((ratio - 1).abs().max()) < 0.05


def test_without_target_noise_the_variance_at_the_labels_is_lost() -> None:
    """The same fit without the correction, as the paper's approximation."""
    task = six_points()
    posterior = gpn.GPN(gpn.GPNConfig(noise_std=0.1, target_noise=False)).fit(task, rng=0)
    truth = GP(GPConfig(noise_std=0.1)).fit(task)
    ratio = posterior.variance(task.x_obs).double() / truth.variance(task.x_obs)
    assert float(ratio.max()) < 0.1


def test_band_returns_to_the_prior_far_from_the_labels() -> None:
    """Labels in one corner of a wide pool: at the other end the posterior is the prior again."""
    x = torch.tensor([[-7.0], [-6.5], [-6.0]])
    prior = gpn.MLPPrior(bias_variance=(400.0, 0.0))
    task = gpn.Task(x, torch.sin(x), pool=gpn.box([-8.0], [8.0]))
    config = gpn.GPNConfig(noise_std=0.1, prior=prior)
    posterior = gpn.GPN(config).fit(task, rng=0)
    far, near = torch.tensor([[7.0], [6.0]]), x
    truth = GP(GPConfig(noise_std=0.1, prior=prior)).fit(task)
    prior_std = prior.kernel(far.double(), far.double()).diagonal().sqrt()
    torch.testing.assert_close(
        posterior.std(far)[:, 0].double(), truth.std(far)[:, 0], rtol=0.03, atol=0.0
    )
    assert float((posterior.std(far)[:, 0].double() / prior_std).min()) > 0.6
    assert float(posterior.std(near).max()) < 0.15


def test_linear_gaussian_model_is_exact() -> None:
    """f(x) = w·x + c with Gaussian w, c: the trained covariance is the closed form within 1 %."""
    rng = torch.Generator().manual_seed(0)
    x, grid = torch.randn(8, 2, generator=rng), torch.randn(40, 2, generator=rng)
    y = x @ torch.tensor([[1.0], [-0.5]]) + 0.3 * torch.randn(8, 1, generator=rng)
    linear = gpn.MLPPrior(widths=(), prior_variance=(2.0,), bias_variance=(1.0,))
    task = gpn.Task(x, y, pool=gpn.box([-3.0, -3.0], [3.0, 3.0]))
    posterior = gpn.GPN(gpn.GPNConfig(noise_std=0.3, prior=linear)).fit(task, rng=0)
    features = torch.cat([x, torch.ones(8, 1)], dim=1).double()
    precision = torch.diag(torch.tensor([1.0, 1.0, 1.0]).double())
    precision += features.T @ features / 0.09
    at = torch.cat([grid, torch.ones(40, 1)], dim=1).double()
    exact = at @ torch.linalg.inv(precision) @ at.T
    error = covariance_error(posterior.covariance(grid).double(), exact[None])
    assert float(error) < 0.01
    mean = at @ torch.linalg.solve(precision, features.T @ y.double() / 0.09)
    torch.testing.assert_close(posterior.mean(grid).double(), mean, rtol=0.02, atol=0.02)
