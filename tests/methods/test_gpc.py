"""Gaussian processes of two classes: limits, exact integrals, and the moments of draws."""

import pytest
import torch
from torch import Tensor

import gpn
from gpn.core.priors.laplace import FullCovariance, find_mode
from gpn.core.types import as_generator
from gpn.methods.gpc import GPC, GPCConfig, GPCPosterior

PRIOR = gpn.MLPPrior(prior_variance=(4.0, 9.0), bias_variance=(1.0, 0.0), activation="erf")
CONFIG = GPCConfig(prior=PRIOR)
X = torch.linspace(-2, 2, 7, dtype=torch.float64)[:, None]


def task(n: int = 12, seed: int = 0) -> gpn.Task:
    rng = as_generator(seed)
    x = torch.randn(n, 1, generator=rng, dtype=torch.float64)
    return gpn.Task(x, (x[:, 0] + 0.3 * torch.randn(n, generator=rng) > 0).long(), n_classes=2)


def exact_moments(x: Tensor, y: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of the difference of logits, by importance sampling from the prior at labels and rows."""
    both = torch.cat([x, rows])
    gram = 2 * PRIOR.kernel(both, both)
    gram.diagonal().add_(1e-9)
    noise = torch.randn(len(both), 400_000, generator=as_generator(1), dtype=torch.float64)
    g = torch.linalg.cholesky(gram) @ noise
    sign = 2.0 * y[:, None] - 1
    weights = torch.nn.functional.logsigmoid(sign * g[: len(x)]).sum(0).softmax(0)
    mean = g[len(x) :] @ weights
    return mean, (g[len(x) :] - mean[:, None]).square() @ weights


@pytest.fixture(scope="module")
def posterior() -> GPCPosterior:
    return GPC(CONFIG).fit(task())


def laplace_mean(x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    """The most probable difference of logits."""
    mode = find_mode(FullCovariance(PRIOR.kernel(x, x)), y, x.new_zeros(len(x), 2))
    logits = PRIOR.kernel(rows, x) @ mode.weights
    return logits[:, 1] - logits[:, 0]


def test_moments_are_nearly_those_of_the_exact_posterior() -> None:
    """And far closer to them than the most probable function is."""
    few = task(5)
    mean, variance = exact_moments(few.x_obs, few.y_obs, X)
    logits, logit_variance = GPC(CONFIG).fit(few).moments(X)
    found = logits[:, 1] - logits[:, 0]
    torch.testing.assert_close(found, mean, atol=0.1, rtol=0.02)
    torch.testing.assert_close(4 * logit_variance[:, 0], variance, atol=0.1, rtol=0.1)
    missed = laplace_mean(few.x_obs, few.y_obs, X) - mean
    assert (found - mean).abs().mean() < 0.2 * missed.abs().mean()


def test_far_from_labels_and_without_much_height_the_posterior_is_the_prior() -> None:
    flat = PRIOR.replace(prior_variance=(4.0, 1e-4))
    found = GPC(CONFIG.replace(prior=flat)).fit(task())
    variance = found.moments(X)[1][:, 0]
    torch.testing.assert_close(variance, flat.variance(X) / 2, rtol=1e-3, atol=0)


def test_joint_draws_have_the_posterior_moments(posterior: GPCPosterior) -> None:
    draws = posterior.sample(X, 40_000, rng=0)
    mean, variance = posterior.moments(X)
    torch.testing.assert_close(draws.mean(0), mean, atol=0.05, rtol=0)
    torch.testing.assert_close(draws.var(0), variance, atol=0.05, rtol=0.05)
    between = torch.cov(draws[..., 1].T)
    torch.testing.assert_close(between, posterior.covariance(X)[1], atol=0.06, rtol=0.05)


def test_functions_have_the_posterior_moments(posterior: GPCPosterior) -> None:
    wide = GPCPosterior(
        **{name: posterior.tensors()[name] for name in ("landmarks", "weights", "factor")},
        signature=posterior.signature,
        config=posterior.config.replace(path_width=512),
    )
    draws = wide.draw_many(3000, rng=0)(X)
    mean, variance = posterior.moments(X)
    torch.testing.assert_close(draws.mean(0), mean, atol=0.15, rtol=0)
    torch.testing.assert_close(draws.var(0), variance, atol=0.1, rtol=0.1)


def test_swapped_classes_swap_the_logits() -> None:
    once = task()
    swapped = gpn.Task(once.x_obs, 1 - once.y_obs, n_classes=2)
    mean, other = (GPC(CONFIG).fit(each).mean(X) for each in (once, swapped))
    torch.testing.assert_close(mean, other.flip(1))


def test_with_all_labels_as_landmarks_and_with_most_of_them_the_answers_agree() -> None:
    many = task(200)
    whole, part = (
        GPC(CONFIG.replace(landmarks=count)).fit(many, rng=0).moments(X) for count in (200, 100)
    )
    for left, right in zip(whole, part, strict=True):
        torch.testing.assert_close(left, right, atol=0.05, rtol=0.01)


def test_steep_labels_are_predicted() -> None:
    """A prior a thousand times as high: labels are the sign of a function, without noise."""
    steep = PRIOR.replace(prior_variance=(4.0, 9e6))
    x = torch.linspace(-2, 2, 60, dtype=torch.float64)[:, None]
    y = ((3 * x[:, 0]).sin() > 0).long()
    found = GPC(CONFIG.replace(prior=steep)).fit(gpn.Task(x, y, n_classes=2))
    assert torch.equal(found.mean(x).argmax(1), y)


def test_a_search_that_is_cut_short_warns() -> None:
    with pytest.warns(UserWarning, match="should have converged"):
        GPC(CONFIG.replace(max_sweeps=1)).fit(task())


def test_a_prior_without_a_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="prior must have a kernel"):
        GPCConfig(prior=gpn.MLPPrior(activation="gelu"))


def test_no_rows_give_no_draws(posterior: GPCPosterior) -> None:
    assert posterior.sample(X[:0], 3, rng=0).shape == (3, 0, 2)
