"""A network that follows the posterior in closed form: `GPNConfig(generator="affine")`."""

from pathlib import Path

import numpy as np
import pytest
import torch

import gpn
from gpn import ARDPrior, GPNConfig, GPNRegressor, TrainConfig
from gpn.core.types import as_generator
from gpn.methods.gpn.model.conditioned import KernelPosterior
from gpn.methods.gpn.model.kernel_generator import condition_exactly

FOLLOWER = GPNConfig(generator="affine", train=TrainConfig(steps=800, learning_rate=3e-3))


def rows_and_targets(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two of five columns matter, one of them much less."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5))
    return x, np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.normal(size=n)


def test_the_functions_to_follow_have_the_posteriors_mean_variance_and_covariance() -> None:
    rng = as_generator(0)
    x, new = torch.randn(2, 60, 2, generator=rng, dtype=torch.float64)
    prior = ARDPrior(column_scales=(1.0, 3.0))
    exact = condition_exactly(prior, x[:20], x[:20, :1].sin(), 0.1)
    mean, axes = KernelPosterior(exact, torch.cat([x, new]), 120).targets(new)
    wanted, variance = exact.moments(new)
    torch.testing.assert_close(mean, wanted)
    torch.testing.assert_close(axes.square().sum(1, keepdim=True), variance)
    torch.testing.assert_close(axes @ axes.T, exact.covariance(new), atol=0.02, rtol=0.0)
    few = KernelPosterior(exact, x, 3).targets(new)[1]
    assert few.shape == (60, 3)
    torch.testing.assert_close(few.square().sum(1, keepdim=True), variance)


def test_a_follower_predicts_as_the_closed_form_does() -> None:
    x, y = rows_and_targets(150, 0)
    new, labels = rows_and_targets(500, 1)
    exact = GPNRegressor(random_state=0).fit(x, y)
    follower = GPNRegressor(FOLLOWER, random_state=0).fit(x, y, new[:200])
    assert follower.posterior_.config.generator == "affine"
    assert follower.posterior_.config.prior == exact.posterior_.config.prior
    errors = [np.sqrt(np.mean((m.predict(new) - labels) ** 2)) for m in (exact, follower)]
    assert errors[1] < errors[0] + 0.03
    scores = [m.predict_distribution(new).logpdf(labels).mean() for m in (exact, follower)]
    assert scores[1] > scores[0] - 0.15
    low, high = follower.predict_interval(new)
    assert 0.9 < np.mean((low <= labels) & (labels <= high)) < 0.99


def test_a_follower_is_saved_with_its_scales_and_its_mean_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 4))
    y = np.where(x[:, 0] > 0.3, 3.0, -1.0) + np.where(x[:, 1] > -0.7, 2.0, 0.0)
    quick = FOLLOWER.replace(train=TrainConfig(steps=50))
    model = GPNRegressor(quick, random_state=0).fit(x, y)
    assert model.mean_ is not None
    model.save(tmp_path / "model.gpn")
    again = gpn.load(tmp_path / "model.gpn")
    assert again.mean_ is not None
    np.testing.assert_allclose(again.predict(x), model.predict(x), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(again.ood_score(x), model.ood_score(x), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_a_follower_does_not_depend_on_units(scale: float) -> None:
    x, y = rows_and_targets(60, 3)
    quick = FOLLOWER.replace(train=TrainConfig(steps=30))
    found = [
        GPNRegressor(quick, random_state=0, mean=None).fit(x * s, y).predict(x[:5] * s)
        for s in (1.0, scale)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-3)


def test_scales_must_be_as_many_as_columns() -> None:
    trunk = gpn.MLPTrunk(column_scales=(1.0, 2.0))
    with pytest.raises(ValueError, match="column_scales must be a number for each of 3 columns"):
        trunk.features((3,), as_generator(0))
    with pytest.raises(ValueError, match="column_scales must be positive numbers"):
        gpn.MLPTrunk(column_scales=(0.0, 1.0))
