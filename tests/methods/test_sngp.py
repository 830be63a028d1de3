"""SNGP's head against Bayesian linear regression, its layers against their bound."""

import math

import pytest
import torch
from torch import Tensor, nn

import gpn
from gpn.core.types import as_generator
from gpn.methods.sngp import (
    SNGP,
    ResidualTrunk,
    SNGPConfig,
    SNGPNetwork,
    SNGPPosterior,
    SpectralBound,
    bound_layers,
    regression_head,
    unbind_layers,
)

TRUNK = gpn.MLPTrunk(widths=(32, 32))
QUICK = SNGPConfig(n_features=64, trunk=TRUNK, train=gpn.TrainConfig(steps=60, weight_decay=1e-2))
GRID = torch.linspace(-2, 2, 9)[:, None]


@pytest.fixture
def precise() -> SNGPPosterior:
    """Four labels of a line in float64, noise known."""
    x = torch.tensor([[-1.0], [-0.3], [0.4], [1.0]], dtype=torch.float64)
    return SNGP(QUICK.replace(noise_std=0.2)).fit(gpn.Task(x, 0.5 * x), rng=0)


def test_head_is_bayesian_linear_regression(precise: SNGPPosterior) -> None:
    """ŵ = (ΦᵀΦ/σ² + I)⁻¹ Φᵀy/σ² and covariance (ΦᵀΦ/σ² + I)⁻¹, on the features of the posterior."""
    x = torch.tensor([[-1.0], [-0.3], [0.4], [1.0]], dtype=torch.float64)
    features, rows = precise.network.features(x), precise.network.features(GRID.double())
    covariance = torch.linalg.inv(features.T @ features / 0.2**2 + torch.eye(64).double())
    mean = rows @ covariance @ features.T @ (0.5 * x) / 0.2**2
    torch.testing.assert_close(precise.mean(GRID), mean)
    torch.testing.assert_close(precise.covariance(GRID)[0], rows @ covariance @ rows.T)
    torch.testing.assert_close(precise.variance(GRID)[:, 0], precise.covariance(GRID)[0].diagonal())


def test_draws_have_the_closed_form_moments(precise: SNGPPosterior) -> None:
    draws = precise.sample(GRID, 20_000, rng=0)[..., 0]
    spread = precise.std(GRID)[:, 0]
    assert ((draws.mean(0) - precise.mean(GRID)[:, 0]).abs() / spread).max() < 5 / 20_000**0.5
    torch.testing.assert_close(draws.T.cov(), precise.covariance(GRID)[0], rtol=0.1, atol=0.05)


def test_noise_is_learnt_from_residuals() -> None:
    """With the true features, σ_ε is recovered, even with many weights."""
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(400, 100, generator=rng)
    weights = torch.randn(100, 2, generator=rng)
    y = features @ weights + 0.3 * torch.randn(400, 2, generator=rng)
    assert regression_head(features, y)[2] == pytest.approx(0.3, rel=0.1)


def test_random_features_have_the_rbf_kernel() -> None:
    """φ(x)·φ(x') ≈ τ² exp(−‖h − h'‖² / (2 ℓ² width))."""
    config = QUICK.replace(n_features=20_000, prior_std=2.0)
    network = SNGPNetwork(config, gpn.Task(GRID, GRID).signature, as_generator(0))
    hidden, features = network.trunk(GRID), network.features(GRID)
    scale = config.length_scale * math.sqrt(32)
    exact = 4.0 * (-torch.cdist(hidden, hidden).square() / (2 * scale**2)).exp()
    torch.testing.assert_close(features @ features.T, exact, rtol=0.0, atol=0.2)


@pytest.mark.parametrize("bound", [0.3, 0.95])
def test_every_trained_layer_satisfies_the_bound(bound: float, classes: gpn.Task) -> None:
    posterior = SNGP(QUICK.replace(spectral_bound=bound)).fit(classes, rng=0)
    layers = [part for part in posterior.network.trunk.modules() if isinstance(part, nn.Linear)]
    norms = torch.stack([torch.linalg.matrix_norm(layer.weight, 2) for layer in layers])
    assert len(norms) == 3
    assert norms.max() <= bound * 1.01


def test_layers_below_the_bound_do_not_change() -> None:
    weight = 0.01 * torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(SpectralBound(weight, 0.95, as_generator(0))(weight), weight)


def test_convolutions_are_bounded_and_frozen_layers_are_not() -> None:
    rng = as_generator(0)
    trunk = ResidualTrunk(gpn.ConvTrunk(channels=(4,), widths=(8,)), (1, 8, 8), rng)
    trunk.project.requires_grad_(False)
    frozen = trunk.project.weight.clone()
    bound_layers(trunk, 0.05, rng)
    unbind_layers(trunk)
    convolution = next(part for part in trunk.modules() if isinstance(part, nn.Conv2d))
    assert torch.linalg.matrix_norm(convolution.weight.flatten(1), 2) <= 0.0501
    assert torch.equal(trunk.project.weight, frozen)


def test_class_precision_is_the_curvature_of_the_likelihood(classes: gpn.Task) -> None:
    """P_c − I is the Hessian of the cross-entropy in the weights of class c."""
    posterior = SNGP(QUICK.replace(n_features=8)).fit(
        gpn.Task(classes.x_obs.double(), classes.y_obs), rng=0
    )
    features = posterior.network.features(classes.x_obs.double())

    def loss(column: Tensor) -> Tensor:
        weights = torch.cat([column[:, None], posterior.weights[:, 1:]], dim=1)
        return nn.functional.cross_entropy(features @ weights, classes.y_obs, reduction="sum")

    hessian = torch.func.hessian(loss)(posterior.weights[:, 0])
    precision = torch.linalg.inv(posterior.root[0] @ posterior.root[0].T)
    torch.testing.assert_close(precision, hessian + torch.eye(8).double())


def test_shared_precision_has_one_matrix(classes: gpn.Task) -> None:
    posterior = SNGP(QUICK.replace(precision="shared")).fit(classes, rng=0)
    assert posterior.root.shape == (1, 64, 64)
    assert posterior.sample(classes.x_obs, 5, rng=0).shape == (5, 30, 3)


def test_mean_field_is_close_to_many_draws(classes: gpn.Task) -> None:
    by_draws = SNGP(QUICK).fit(classes, rng=0)
    by_rule = SNGP(QUICK.replace(mean_field=math.pi / 8)).fit(classes, rng=0)
    gap = by_rule.probabilities(classes.x_obs) - by_draws.probabilities(classes.x_obs, 4000)
    assert gap.abs().max() < 0.1


def test_the_standard_deviation_grows_away_from_the_data(line: gpn.Task) -> None:
    config = QUICK.replace(n_features=512)
    posterior = SNGP(config).fit(line, rng=0)
    near, far = (
        posterior.std(line.x_obs).mean(),
        posterior.std(torch.tensor([[8.0], [-8.0]])).mean(),
    )
    assert far > 2 * near


def test_round_trip_keeps_draws(classes: gpn.Task) -> None:
    posterior = SNGP(QUICK).fit(classes, rng=0)
    again = SNGPPosterior.restore(posterior.config, posterior.signature, posterior.tensors())
    x = classes.x_obs
    assert torch.equal(posterior.sample(x, 7, rng=1), again.sample(x, 7, rng=1))


def test_the_global_random_state_does_not_change(line: gpn.Task) -> None:
    before = torch.get_rng_state()
    SNGP(QUICK).fit(line, rng=0).sample(GRID, 5)
    assert torch.equal(before, torch.get_rng_state())


def test_unequal_widths_are_an_error(line: gpn.Task) -> None:
    config = QUICK.replace(trunk=gpn.MLPTrunk(widths=(16, 32)))
    with pytest.raises(ValueError, match=r"one width.*try widths=\(16, 16\)"):
        SNGP(config).fit(line, rng=0)
