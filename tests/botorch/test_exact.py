"""A posterior in closed form as BoTorch sees it: the regressor's own moments, with gradients."""

import copy

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform

from gpn import GPNRegressor
from gpn.botorch import GPNModel
from gpn.estimators.closed_form.mean import MeanModel

RNG = np.random.default_rng(0)
X = np.c_[RNG.uniform(0, 10, (40, 2)), np.exp(3 * RNG.normal(size=40))]  # the last one is bent
Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], axis=1) + 0.05 * RNG.normal(size=(40, 2))
NEW = torch.from_numpy(np.concatenate([X[:6] + 0.3, 3 * X[:6]])).reshape(4, 3, 3)


@pytest.fixture(scope="module")
def regressor() -> GPNRegressor:
    """Without the gate, which BoTorch does not see."""
    model = GPNRegressor(mean=None, random_state=0).fit(X, Y)
    model.detector_ = None
    return model


def test_moments_are_the_regressors(regressor: GPNRegressor) -> None:
    found = GPNModel.of(regressor).posterior(NEW)
    mean, std = regressor.predict(NEW.flatten(0, 1).numpy(), return_std=True)
    assert found.mean.shape == (4, 3, 2)
    np.testing.assert_allclose(found.mean.detach().flatten(0, 1), mean)
    np.testing.assert_allclose(found.variance.detach().flatten(0, 1), std**2, rtol=1e-5)
    _, joint = regressor.predict(NEW[0].numpy(), return_cov=True)
    matrix = found.distribution.covariance_matrix[0].detach().reshape(2, 3, 2, 3)
    np.testing.assert_allclose(matrix[0, :, 0], joint[..., 0], rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(matrix[0, :, 1], 0.0, atol=1e-12)


def test_noise_widens_and_outputs_mix(regressor: GPNRegressor) -> None:
    model = GPNModel.of(regressor)
    plain, noisy = (model.posterior(NEW, observation_noise=on) for on in (False, True))
    noise = (regressor.posterior_.noise_std * regressor.y_scale_.scale) ** 2
    gap = (noisy.variance - plain.variance).detach().flatten(0, 1).numpy()
    np.testing.assert_allclose(gap, np.broadcast_to(noise, gap.shape), rtol=1e-6)
    weights = torch.tensor([2.0, -1.0], dtype=torch.float64)
    mixed = model.posterior(NEW, posterior_transform=ScalarizedPosteriorTransform(weights))
    np.testing.assert_allclose(mixed.mean[..., 0].detach(), (plain.mean @ weights).detach())
    alone = model.posterior(NEW, output_indices=[1])
    np.testing.assert_allclose(alone.mean[..., 0].detach(), plain.mean[..., 1].detach())


def test_an_acquisition_function_has_gradients() -> None:
    bounds = torch.tensor([[0.0, 0.0], [10.0, 10.0]], dtype=torch.float64)
    model = GPNModel.fit(torch.from_numpy(X[:, :2]), torch.from_numpy(Y[:, :1]), bounds, rng=0)
    rows = torch.tensor([[[2.0, 3.0]], [[7.0, 1.0]]], dtype=torch.float64, requires_grad=True)
    LogExpectedImprovement(model, best_f=0.5)(rows).sum().backward()
    assert rows.grad is not None
    assert bool((rows.grad != 0).any(-1).all())


def test_a_mean_without_gradients_is_refused(regressor: GPNRegressor) -> None:
    with_trees = copy.copy(regressor)
    with_trees.mean_ = MeanModel()
    with pytest.raises(ValueError, match=r"need gradients.*fit it with mean=None"):
        GPNModel.of(with_trees)
