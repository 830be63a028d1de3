"""A GPN as a BoTorch model finds maxima, in the units of the table."""

import pytest
import torch
from botorch.acquisition import (
    AcquisitionFunction,
    qLogExpectedImprovement,
)
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.test_functions import Branin
from torch import Tensor

import gpn
from gpn.botorch import GPNModel, quick_config
from tests.small_posteriors import FEW, points

BOUNDS = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.float64)


def test_units_are_those_of_the_table() -> None:
    x = (points(30) + 3) * 100
    y = 1000 + 50 * (x[:, 0] / 100).sin()
    config = gpn.GPNConfig(train=FEW, n_axes=12, noise_std=0.1)
    fitted = gpn.GPNRegressor(config, random_state=0).fit(x.numpy(), y.numpy(), x.numpy())
    at_x = GPNModel.of(fitted).posterior(x)
    torch.testing.assert_close(at_x.mean[:, 0], torch.from_numpy(fitted.predict(x.numpy())))
    std = fitted.posterior_.std(fitted._inputs(x.numpy()))[:, 0] * float(fitted.y_scale_.scale[0])
    torch.testing.assert_close(at_x.variance[:, 0].sqrt(), std)


def test_a_frozen_module_gets_inputs_without_scaling() -> None:
    x = points(30)
    module = torch.nn.Linear(2, 8).requires_grad_(False)
    config = gpn.GPNConfig(train=FEW, beta=0.1, noise_std=0.1, n_axes=12)
    fitted = gpn.GPNRegressor(config, module=module, random_state=0)
    fitted.fit(x.numpy(), x[:, 0].numpy(), x.numpy())
    found = GPNModel.of(fitted).posterior(x).mean[:, 0]
    torch.testing.assert_close(found, torch.from_numpy(fitted.predict(x.numpy())))


def test_a_fit_in_two_seconds_is_close_to_the_exact_posterior() -> None:
    """Of its own prior and noise: in posterior standard deviations, at points all over the box."""
    from gpn.methods.gp import GP, GPConfig

    x = BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * (points(20) + 2) / 4
    y = Branin(negate=True, dtype=torch.float64)(x)[:, None]
    centre, width = (BOUNDS[0] + BOUNDS[1]) / 2, (BOUNDS[1] - BOUNDS[0]) / 12**0.5
    scaled, y_scaled = (x - centre) / width, (y - y.mean()) / y.std(correction=0)
    config = quick_config(gpn.Task(scaled, y_scaled))
    model = GPNModel.fit(x, y, BOUNDS, rng=0, config=config)
    exact = GP(GPConfig(prior=config.prior, noise_std=config.noise_std)).fit(
        gpn.Task(scaled, y_scaled)
    )
    new = points(200, seed=5) / 2 * 3**0.5
    gap = (model.gpn.mean(new) - exact.mean(new)) / exact.std(new)
    assert float(gap.square().mean().sqrt()) < 0.3
    ratio = model.gpn.std(new) / exact.std(new)
    assert float(ratio.mean()) == pytest.approx(1.0, abs=0.1)
    original = model.x_shift + new * model.x_scale
    back = y.mean() + y.std(correction=0) * model.gpn.mean(new)
    torch.testing.assert_close(model.posterior(original).mean, back.double(), rtol=1e-3, atol=1e-2)


def best_after(acquisition: object, steps: int) -> float:
    """The regret on Branin after 6 Sobol points and `steps` more."""
    torch.manual_seed(0)
    target = Branin(negate=True, dtype=torch.float64)
    unit = torch.quasirandom.SobolEngine(2, scramble=True, seed=0)

    def sobol(n: int) -> Tensor:
        return BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * unit.draw(n, dtype=torch.float64)

    x = sobol(6)
    for step in range(steps):
        y = target(x)[:, None]
        if acquisition is None:
            new = sobol(1)
        else:
            model = GPNModel.fit(x, y, BOUNDS, rng=step)
            search = {"q": 1, "num_restarts": 2, "raw_samples": 64}
            new = optimize_acqf(acquisition(model, y), BOUNDS, **search)[0]
        x = torch.cat([x, new])
    return float(target.optimal_value - target(x).max())


def improvement(model: Model, y: Tensor) -> AcquisitionFunction:
    return qLogExpectedImprovement(model, best_f=y.max())


def thompson(model: Model, y: Tensor) -> AcquisitionFunction:
    return PathwiseThompsonSampling(model)


@pytest.mark.parametrize(
    ("acquisition", "steps"),
    [(improvement, 8), pytest.param(thompson, 16, marks=pytest.mark.slow)],
)
def test_a_few_steps_on_branin_beat_thirty_of_random_search(
    acquisition: object, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even with a third of the usual training."""
    monkeypatch.setattr("gpn.botorch.model.QUICK_STEPS", 100)
    assert best_after(acquisition, steps) < best_after(None, 30)
