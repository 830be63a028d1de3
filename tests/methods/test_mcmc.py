"""Both samplers against the closed-form posterior of a linear model with Gaussian weights."""

import functools

import pytest
import torch
from torch import Tensor, nn

import gpn
from gpn.methods.mcmc import MCMC, MCMCConfig, MCMCPosterior
from gpn.methods.mcmc.convergence import split_rhat

SIGMA = 0.5
PRIOR = gpn.ModulePrior(module=nn.utils.skip_init(nn.Linear, 2, 1, bias=False), prior_variance=2.0)
X = torch.tensor([[1.0, 0.5], [-0.5, 1.0], [0.3, -1.2], [1.5, 1.0]])
Y = torch.tensor([[1.0], [0.2], [-0.5], [2.0]])
GRID = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]])
SETTINGS = {
    "mh": {"warmup": 300, "draws": 60, "thin": 10},
    "hmc": {"warmup": 40, "draws": 40, "thin": 1, "max_leapfrog": 8},
}


def exact() -> tuple[Tensor, Tensor]:
    """S = (XᵀX/σ² + I/v)⁻¹, w = S Xᵀy/σ²: mean and covariance of f on the grid."""
    precision = X.T @ X / SIGMA**2 + torch.eye(2) / 2.0
    covariance = torch.linalg.inv(precision)
    return GRID @ covariance @ X.T @ Y / SIGMA**2, GRID @ covariance @ GRID.T


@functools.cache
def linear(sampler: str) -> MCMCPosterior:
    return fit(sampler, seed=0)


def fit(sampler: str, seed: int) -> MCMCPosterior:
    config = MCMCConfig(
        sampler=sampler, n_chains=64, noise_std=SIGMA, prior=PRIOR, **SETTINGS[sampler]
    )
    return MCMC(config).fit(gpn.Task(X, Y, pool=gpn.box([-2.0, -2.0], [2.0, 2.0])), rng=seed)


@pytest.mark.parametrize("sampler", ["mh", "hmc"])
def test_a_linear_model_has_its_closed_form_posterior(sampler: str) -> None:
    """Mean and covariance agree within five Monte-Carlo errors."""
    posterior = linear(sampler)
    values = posterior.chain_values(GRID)[..., 0].flatten(0, 1)
    mean, covariance = exact()
    ess = float(posterior.ess.min())
    assert ess > 300
    error = covariance.diagonal().sqrt() / ess**0.5
    assert ((values.mean(0) - mean[:, 0]).abs() / error).max() < 5
    torch.testing.assert_close(values.T.cov(), covariance, rtol=0.25, atol=0.03)
    assert posterior.rhat.max() < 1.05


def test_both_samplers_agree() -> None:
    chains = [linear(sampler).chain_values(GRID)[:, :40, :, 0] for sampler in ("mh", "hmc")]
    assert split_rhat(torch.cat(chains)).max() < 1.05


@pytest.mark.parametrize("sampler", ["mh", "hmc"])
def test_the_posterior_of_classes_agrees_with_quadrature(sampler: str) -> None:
    """One weight, three labels of one class: E[w] by quadrature."""
    module = nn.utils.skip_init(nn.Linear, 1, 2, bias=False)
    task = gpn.Task(torch.ones(3, 1), torch.zeros(3, dtype=torch.int64), n_classes=2)
    settings = SETTINGS[sampler]
    prior = gpn.ModulePrior(module=module, prior_variance=1.0)
    config = MCMCConfig(sampler=sampler, n_chains=64, prior=prior, **settings)
    gap = torch.linspace(-12, 12, 4001)
    density = torch.sigmoid(gap) ** 3 * (-(gap**2) / 4).exp()
    values = MCMC(config).fit(task, rng=0).sample(torch.ones(1, 1), 2560, rng=0)[:, 0]
    mean = float((values[:, 0] - values[:, 1]).mean())
    assert mean == pytest.approx(float((gap * density).sum() / density.sum()), abs=0.15)


def test_the_seed_determines_the_chains() -> None:
    first, second = fit("hmc", seed=3), fit("hmc", seed=3)
    assert torch.equal(first.states, second.states)
    assert not torch.equal(first.states, linear("hmc").states)


def test_the_global_random_state_does_not_change() -> None:
    before = torch.get_rng_state()
    fit("hmc", seed=1).sample(GRID, 5)
    assert torch.equal(before, torch.get_rng_state())


def test_unconverged_chains_warn() -> None:
    config = MCMCConfig(sampler="mh", n_chains=4, warmup=1, draws=4, thin=1, noise_std=0.05)
    with pytest.warns(UserWarning, match="R-hat"):
        MCMC(config).fit(gpn.Task(X, Y), rng=0)


def test_a_draw_is_a_fixed_function_with_gradients() -> None:
    posterior = linear("hmc")
    function = posterior.draw(rng=1)
    x = GRID.clone().requires_grad_()
    function(x).sum().backward()
    assert torch.equal(function(GRID), function(GRID))
    torch.testing.assert_close(x.grad, x.grad[:1].expand(3, 2))


def test_round_trip_keeps_draws() -> None:
    posterior = linear("hmc")
    again = MCMCPosterior.restore(posterior.config, posterior.signature, posterior.tensors())
    assert torch.equal(posterior.sample(GRID, 7, rng=1), again.sample(GRID, 7, rng=1))
    assert torch.equal(posterior.rhat, again.rhat)


def test_an_unknown_sampler_is_an_error() -> None:
    with pytest.raises(ValueError, match="sampler must be one of mh, hmc"):
        MCMCConfig(sampler="nuts")


def test_an_unknown_device_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"device must be .*got 'abacus'"):
        MCMC(MCMCConfig(device="abacus")).fit(gpn.Task(X, Y), rng=0)
