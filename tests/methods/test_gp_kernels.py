"""The exact GP's RBF kernel, what it learns by marginal likelihood, and its limits."""

import math

import pytest
import torch
from torch import Tensor

import gpn
from gpn.core.types import as_generator
from gpn.methods.gp import GP, GPConfig, GPPosterior, check_memory, prior_functions

X = torch.tensor([[-1.2], [-0.4], [0.3], [1.1]], dtype=torch.float64)
Y = torch.cat([X.sin(), X.cos()], dim=1)
GRID = torch.linspace(-2, 2, 7, dtype=torch.float64)[:, None]
FIXED = GPConfig(kernel="rbf", noise_std=0.2, length_scale=0.7, output_scale=1.5)


def rbf(left: Tensor, right: Tensor) -> Tensor:
    return 1.5**2 * (-((left - right.T) ** 2) / (2 * 0.7**2)).exp()


def sine(noise_std: float, n: int = 80) -> gpn.Task:
    rng = torch.Generator().manual_seed(0)
    x = torch.linspace(-3, 3, n, dtype=torch.float64)[:, None]
    noise = noise_std * torch.randn(n, 1, generator=rng, dtype=torch.float64)
    return gpn.Task(x, (2 * x).sin() + noise)


def test_rbf_moments_are_the_textbook_formula() -> None:
    posterior = GP(FIXED).fit(gpn.Task(X, Y))
    inverse = torch.linalg.inv(rbf(X, X) + 0.2**2 * torch.eye(4).double())
    cross = rbf(GRID, X)
    torch.testing.assert_close(posterior.mean(GRID), cross @ inverse @ Y)
    exact = rbf(GRID, GRID) - cross @ inverse @ cross.T
    torch.testing.assert_close(posterior.covariance(GRID), exact.expand(2, 7, 7))


def test_rbf_paths_have_the_kernel() -> None:
    config, signature = FIXED.replace(path_width=2000), gpn.Task(X, Y).signature
    values = prior_functions(config, signature, 20_000, as_generator(0))(GRID[::3])[..., 0]
    torch.testing.assert_close(values.T.cov(), rbf(GRID[::3], GRID[::3]), rtol=0.0, atol=0.2)


def test_rbf_functions_follow_the_posterior() -> None:
    posterior = GP(FIXED).fit(gpn.Task(X, Y))
    draws = posterior.functions(8000, as_generator(0))(GRID)
    mean, std = posterior.mean(GRID), posterior.std(GRID)
    assert ((draws.mean(0) - mean).abs() / std).max() < 5 / 8000**0.5
    torch.testing.assert_close(draws.std(0), std, rtol=0.1, atol=0.01)


@pytest.mark.parametrize("kernel", ["prior", "rbf"])
@pytest.mark.parametrize("noise_std", [0.1, 0.5])
def test_noise_is_learnt(kernel: str, noise_std: float) -> None:
    prior = gpn.MLPPrior(prior_variance=(9.0, 4.0), bias_variance=(9.0, 0.0), activation="erf")
    posterior = GP(GPConfig(kernel=kernel, noise_std=None, prior=prior)).fit(sine(noise_std))
    assert posterior.noise_std == pytest.approx(noise_std, rel=0.3)
    assert posterior.config.noise_std == posterior.noise_std


def test_rbf_learns_by_marginal_likelihood() -> None:
    """No neighbour of the learnt hyperparameters has a larger evidence."""
    task = sine(0.2)
    learnt = GP(GPConfig(kernel="rbf", noise_std=None)).fit(task)

    def evidence(posterior: GPPosterior) -> float:
        fit = (task.y_obs * posterior.alpha).sum() / 2
        return -float(fit + posterior.cholesky.diagonal().log().sum())

    best = evidence(learnt)
    for name in ("length_scale", "output_scale", "noise_std"):
        for factor in (0.9, 1.1):
            value = getattr(learnt.config, name) * factor
            assert evidence(GP(learnt.config.replace(**{name: value})).fit(task)) < best


def test_settings_that_are_not_none_stay() -> None:
    config = GPConfig(kernel="rbf", noise_std=0.3, length_scale=0.9)
    learnt = GP(config).fit(sine(0.2)).config
    assert (learnt.noise_std, learnt.length_scale) == (pytest.approx(0.3), pytest.approx(0.9))
    assert learnt.output_scale is not None


@pytest.mark.parametrize("config", [FIXED, GPConfig(noise_std=None)])
def test_round_trip_keeps_draws(config: GPConfig) -> None:
    posterior = GP(config).fit(gpn.Task(X, Y))
    again = GPPosterior.restore(posterior.config, posterior.signature, posterior.tensors())
    assert torch.equal(posterior.sample(GRID, 5, rng=1), again.sample(GRID, 5, rng=1))
    first, second = (p.functions(3, as_generator(2))(GRID) for p in (posterior, again))
    assert torch.equal(first, second)


def test_too_many_labels_are_an_error_with_the_number_that_fits() -> None:
    with pytest.raises(MemoryError, match=r"fit at most \d+ labels"):
        check_memory(10_000_000, torch.device("cpu"))
    check_memory(1000, torch.device("cpu"))


def test_the_global_random_state_does_not_change() -> None:
    before = torch.get_rng_state()
    GP(GPConfig(kernel="rbf", noise_std=None)).fit(sine(0.2)).draw(rng=0)(GRID)
    assert torch.equal(before, torch.get_rng_state())


def test_wrong_settings_are_errors() -> None:
    with pytest.raises(ValueError, match="kernel must be one of prior, rbf"):
        GPConfig(kernel="matern")
    with pytest.raises(ValueError, match="length_scale must be positive"):
        GPConfig(length_scale=-math.pi)
