"""The exact GP against its textbook formula, and both kinds of draws against its moments."""

from statistics import NormalDist

import pytest
import torch
from torch import Tensor

import gpn
from gpn.methods.gp import GP, GPConfig, GPPosterior

SIGMA = 0.2
N = 6000
PRIOR = gpn.MLPPrior(prior_variance=(3.0, 2.0), bias_variance=(1.0, 0.5), activation="erf")
X_OBS = torch.tensor([[-1.0], [-0.2], [0.5], [1.1]], dtype=torch.float64)
Y_OBS = torch.cat([X_OBS.sin(), X_OBS.square()], dim=1)
X = torch.tensor([[-1.5], [-0.2], [0.0], [0.8], [3.0]], dtype=torch.float64)


@pytest.fixture
def posterior() -> GPPosterior:
    """Prior networks of 64 units: their second moments are exactly the kernel's."""
    config = GPConfig(noise_std=SIGMA, prior=PRIOR, path_width=64)
    return GP(config).fit(gpn.Task(X_OBS, Y_OBS))


def textbook() -> tuple[Tensor, Tensor]:
    """μ = K_xo (K_oo + σ² I)⁻¹ y and Σ = K_xx − K_xo (K_oo + σ² I)⁻¹ K_ox, by an inverse."""
    inverse = torch.linalg.inv(PRIOR.kernel(X_OBS, X_OBS) + SIGMA**2 * torch.eye(4).double())
    cross = PRIOR.kernel(X, X_OBS)
    return cross @ inverse @ Y_OBS, PRIOR.kernel(X, X) - cross @ inverse @ cross.T


def test_moments_are_the_textbook_formula(posterior: GPPosterior) -> None:
    mean, covariance = textbook()
    torch.testing.assert_close(posterior.mean(X), mean)
    torch.testing.assert_close(posterior.covariance(X), covariance.expand(2, 5, 5))
    variance = covariance.diagonal()[:, None].expand(5, 2)
    torch.testing.assert_close(posterior.variance(X), variance)
    torch.testing.assert_close(posterior.std(X), variance.sqrt())


def test_one_label_by_hand() -> None:
    """With one label at x: μ = k y / (k + σ²) and variance k σ² / (k + σ²)."""
    x = torch.tensor([[0.7]], dtype=torch.float64)
    posterior = GP(GPConfig(noise_std=SIGMA, prior=PRIOR)).fit(gpn.Task(x, torch.full_like(x, 2.0)))
    k = float(PRIOR.kernel(x, x))
    assert float(posterior.mean(x)) == pytest.approx(2 * k / (k + SIGMA**2))
    assert float(posterior.variance(x)) == pytest.approx(k * SIGMA**2 / (k + SIGMA**2))


def test_labels_only_remove_variance(posterior: GPPosterior) -> None:
    grid = torch.linspace(-3, 3, 700, dtype=torch.float64)[:, None]
    variance, prior = posterior.variance(grid)[:, 0], PRIOR.kernel(grid, grid).diagonal()
    assert (variance < prior).all()
    assert (variance > 0).all()
    assert (posterior.variance(X_OBS) < SIGMA**2).all(), "below the variance of the noise"


def test_small_noise_interpolates() -> None:
    task = gpn.Task(X_OBS, Y_OBS)
    posterior = GP(GPConfig(noise_std=1e-3, prior=PRIOR)).fit(task)
    torch.testing.assert_close(posterior.mean(X_OBS), Y_OBS, rtol=0.0, atol=1e-3)
    assert (posterior.std(X_OBS) < 1.01e-3).all()


def assert_moments(draws: Tensor, mean: Tensor, covariance: Tensor) -> None:
    """Mean and covariance of each output within five Monte-Carlo errors; outputs independent."""
    variance = covariance.diagonal()
    assert ((draws.mean(0) - mean).abs() < 5 * (variance / N).sqrt()[:, None]).all()
    # draws of a finite network have heavier tails than Gaussian ones, so the error comes from them
    centred = draws - mean
    products = centred[:, :, None, :] * centred[:, None, :, :]
    error = products.std(0) / N**0.5
    assert ((products.mean(0) - covariance[:, :, None]).abs() < 5 * error).all()
    across = centred[..., 0] * centred[..., 1]
    assert (across.mean(0).abs() < 5 * across.std(0) / N**0.5).all()


def test_joint_draws_have_the_exact_moments(posterior: GPPosterior) -> None:
    draws = posterior.sample(X, N, rng=0)
    assert draws.shape == (N, 5, 2)
    assert_moments(draws, *textbook())


def test_functions_by_matheron_have_the_exact_moments(posterior: GPPosterior) -> None:
    batch = posterior.functions(N, torch.Generator().manual_seed(0))
    draws = batch(X)
    assert_moments(draws, *textbook())
    torch.testing.assert_close(batch(X[1:3]), draws[:, 1:3])


def test_a_draw_is_a_fixed_function(posterior: GPPosterior) -> None:
    f = posterior.draw(rng=0)
    torch.testing.assert_close(f(X)[2:3], f(X[2:3]))
    assert torch.equal(f(X), posterior.draw(rng=0)(X))
    assert not torch.equal(f(X), posterior.draw(rng=1)(X))


def test_gradients_equal_finite_differences(posterior: GPPosterior) -> None:
    f = posterior.draw(rng=0)
    (gradient,) = torch.autograd.grad(f(at := X.clone().requires_grad_()).sum(), at)
    step = 1e-6
    differences = (f(X + step) - f(X - step)).sum(1, keepdim=True) / (2 * step)
    torch.testing.assert_close(gradient, differences, rtol=1e-4, atol=1e-6)


def test_seeds_determine_the_draws(posterior: GPPosterior) -> None:
    before = torch.get_rng_state()
    draws = posterior.sample(X, 5, rng=0)
    assert torch.equal(draws, posterior.sample(X, 5, rng=0))
    assert not torch.equal(draws, posterior.sample(X, 5, rng=1))
    assert torch.equal(torch.get_rng_state(), before)


def test_intervals_agree_with_the_normal_quantiles(posterior: GPPosterior) -> None:
    """The central 95 % of a normal distribution is μ ± 1.96 σ."""
    low, high = posterior.interval(X, 0.95, n=N)
    mean, std = posterior.mean(X), posterior.std(X)
    error = 5 * std * (0.025 * 0.975 / N) ** 0.5 / 0.0584
    assert ((low - (mean - 1.96 * std)).abs() < error + 0.1 * std).all()
    assert ((high - (mean + 1.96 * std)).abs() < error + 0.1 * std).all()


def test_intervals_are_exactly_gaussian(posterior: GPPosterior) -> None:
    """μ ± z √(Σ_xx + σ_ε²), with the noise if requested, for any number of draws."""
    mean, z = posterior.mean(X), NormalDist().inv_cdf(0.95)
    for noisy, added in ((False, 0.0), (True, SIGMA**2)):
        low, high = posterior.interval(X, 0.9, n=2, observation_noise=noisy)
        half = z * (posterior.variance(X) + added).sqrt()
        torch.testing.assert_close(low, mean - half)
        torch.testing.assert_close(high, mean + half)


def test_everything_is_float64_and_no_pool_is_needed() -> None:
    posterior = GP().fit(gpn.Task(X_OBS.float(), Y_OBS.float()))
    assert posterior.mean(X.float()).dtype == torch.float64
    assert posterior.sample(X.float(), 2, rng=0).dtype == torch.float64


def test_classes_are_an_error(classes: gpn.Task) -> None:
    with pytest.raises(TypeError, match=r"regression task, got integer y"):
        GP().fit(classes)


def test_a_prior_without_kernel_is_an_error() -> None:
    config = GPConfig(prior=gpn.MLPPrior(activation="silu"))
    with pytest.raises(NotImplementedError, match="no closed form"):
        GP(config).fit(gpn.Task(X_OBS, Y_OBS))


def test_rows_of_another_shape_are_an_error(posterior: GPPosterior) -> None:
    for call in (posterior.mean, posterior.variance, posterior.sample):
        with pytest.raises(ValueError, match=r"shape \(n, 1\), got \(3, 2\)"):
            call(torch.zeros(3, 2))


def test_samples_carry_no_graph(posterior: GPPosterior) -> None:
    assert not posterior.sample(X.clone().requires_grad_(), 3, rng=0).requires_grad


def test_zero_draws_are_an_error(posterior: GPPosterior) -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        posterior.sample(X, 0)


@pytest.mark.filterwarnings("ignore:.*should be positive definite")
def test_a_variance_is_never_negative() -> None:
    x = torch.linspace(-1, 1, 60, dtype=torch.float64)[:, None]
    posterior = GP(GPConfig(noise_std=1e-8, prior=PRIOR)).fit(gpn.Task(x, x.sin()))
    assert bool((posterior.variance(x) >= 0).all())
    assert bool(posterior.interval(x)[0].isfinite().all())


def test_no_rows_have_no_draws(posterior: GPPosterior) -> None:
    assert posterior.sample(X[:0], 3, rng=0).shape == (3, 0, 2)
