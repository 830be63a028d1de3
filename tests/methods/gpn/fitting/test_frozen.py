"""A frozen trunk: its features are computed once, and only the head is trained."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gpn
from gpn.methods import registry

SEEN: list[Tensor] = []  # not in the module, which every fit copies
TINY: dict[str, Any] = {"train": gpn.TrainConfig(steps=30, pool_batch=8)}
VARIANTS: dict[str, dict[str, Any]] = {
    "joint": {"anchor": "joint"},
    "independent": {"anchor": "independent"},
    "paper": {"codes": "learnt", "generator": "concat", "anchor": "independent", "beta": 0.1},
}


class Spy(nn.Module):
    """Six features of the plane, with batch norm and dropout; records every row that it sees."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        SEEN.append(x.detach().clone())
        return self.layers(x)


@pytest.fixture
def body() -> Spy:
    SEEN.clear()
    return Spy().requires_grad_(False)


@pytest.fixture
def bowl() -> gpn.Task:
    """Twelve labels of a bowl over the plane, and 40 pool rows around them."""
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(12, 2, generator=rng)
    return gpn.Task(x, x.square().sum(1), pool=3 * torch.rand(40, 2, generator=rng) - 1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_features_are_computed_once_and_the_module_does_not_change(
    variant: str, body: Spy, bowl: gpn.Task
) -> None:
    before = copy.deepcopy(body.state_dict())
    config = gpn.GPNConfig(trunk=gpn.ModuleTrunk(module=body), **VARIANTS[variant], **TINY)
    posterior = gpn.GPN(config).fit(bowl, rng=0)
    probe, *rest = SEEN  # two rows of zeros show the number of features
    assert len(probe) == 2
    assert sum(map(len, rest)) == 12 + 40
    after = posterior.generator.features.state_dict()
    for name, value in before.items():
        assert torch.equal(after[f"module.{name}"], value), name
        assert torch.equal(body.state_dict()[name], value), name
    assert posterior.config.trunk is config.trunk
    rows = torch.rand(5, 2, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(posterior.mean(rows)[:1], posterior.mean(rows[:1]))


def test_a_head_on_frozen_features_is_a_gpn_on_those_features(bowl: gpn.Task) -> None:
    """Where the features are the rows, already scaled, the two fits agree."""
    assert isinstance(bowl.pool, gpn.TensorPool)
    everything = torch.cat([bowl.x_obs, bowl.pool.rows])
    mean, std = everything.mean(0), everything.std(0, correction=0)
    scaled = bowl.with_inputs(
        (bowl.x_obs - mean) / std, gpn.TensorPool((bowl.pool.rows - mean) / std)
    )
    plain = nn.Linear(2, 2, bias=False).requires_grad_(False)
    plain.weight.copy_(torch.eye(2))
    shared: dict[str, Any] = {"anchor": "joint", "noise_std": 0.05}
    trunk, train = {"widths": (64,)}, gpn.TrainConfig(steps=800, learning_rate=5e-3)
    head = gpn.GPNConfig(trunk=gpn.ModuleTrunk(module=plain, **trunk), train=train, **shared)
    whole = gpn.GPNConfig(trunk=gpn.MLPTrunk(**trunk), train=train, **shared)
    on_features, on_rows = (gpn.GPN(config).fit(scaled, rng=0) for config in (head, whole))
    rows = scaled.x_obs
    torch.testing.assert_close(on_features.mean(rows), on_rows.mean(rows), atol=0.05, rtol=0.0)


def test_an_endless_pool_is_sampled_once(body: Spy, bowl: gpn.Task) -> None:
    endless = bowl.with_inputs(bowl.x_obs, gpn.box([-1.0, -1.0], [2.0, 2.0]))
    trunk = gpn.ModuleTrunk(module=body)
    gpn.GPN(gpn.GPNConfig(trunk=trunk, anchor="joint", reference_rows=64, **TINY)).fit(endless, 0)
    assert sum(map(len, SEEN[1:])) == 12 + 64


def test_augmented_rows_are_refused(body: Spy, bowl: gpn.Task) -> None:
    assert isinstance(bowl.pool, gpn.TensorPool)
    augmented = gpn.Task(bowl.x_obs, bowl.y_obs, bowl.pool.rows, augment=lambda x, rng: x)
    config = gpn.GPNConfig(trunk=gpn.ModuleTrunk(module=body), **TINY)
    with pytest.raises(ValueError, match=r"augment=None, .* or use ModuleTrunk\(frozen=False\)"):
        gpn.GPN(config).fit(augmented, rng=0)


def test_images_get_synthetic_outliers() -> None:
    body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()).requires_grad_(False)
    rng = torch.Generator().manual_seed(0)
    task = gpn.Task(torch.rand(20, 1, 6, 6, generator=rng), torch.arange(20) % 2, pool=None)
    task = task.with_inputs(task.x_obs, gpn.TensorPool(torch.rand(30, 1, 6, 6, generator=rng)))
    config = gpn.GPNConfig(beta=0.1, trunk=gpn.ModuleTrunk(module=body), n_axes=10, **TINY)
    posterior = gpn.GPN(config).fit(task, rng=0)
    assert posterior.config.synthetic_ood == pytest.approx(1 / 3)
    assert posterior.fit_report.synthetic_rows == 15
    pool = posterior.fit_report.pool
    assert pool is not None
    assert pool.n_classified + pool.n_duplicates == 30
    assert posterior.probabilities(task.x_obs).shape == (20, 2)


def test_an_estimator_gives_a_frozen_module_unscaled_rows(body: Spy) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(1000, 2000, (60, 2))
    config = gpn.GPNConfig(anchor="independent", beta=0.1, noise_std=0.1, **TINY)
    model = gpn.GPNRegressor(config, module=body, random_state=0).fit(x, x[:, 0], X_unlabeled=x)
    low, high = model.predict_interval(x)
    assert (low < high).all()
    assert min(float(rows.min()) for rows in SEEN[1:]) >= 1000


@pytest.mark.parametrize("method", ["dropout", "ensemble-or", "sngp"])
def test_baselines_do_not_change_a_frozen_module(method: str, body: Spy, bowl: gpn.Task) -> None:
    trunk = gpn.ModuleTrunk(module=body, widths=(8,))
    posterior: Any = registry.get(method, trunk=trunk, **TINY).fit(bowl, rng=0)
    means = {name: value for name, value in posterior.tensors().items() if "running_mean" in name}
    assert means
    for value in means.values():
        assert not value.any(), "the statistics of batch norm are those of the user's module"


@pytest.mark.parametrize("anchor", ["joint", "independent"])
def test_the_error_of_a_diverging_head_carries_a_posterior_of_rows(
    anchor: str, body: Spy, bowl: gpn.Task
) -> None:
    """With independent anchors a trial of β diverges, before the fit itself begins."""
    train = gpn.TrainConfig(steps=60, pool_batch=8, optimiser="sgd", learning_rate=1e6)
    trunk = gpn.ModuleTrunk(module=body)
    config = gpn.GPNConfig(trunk=trunk, anchor=anchor, noise_std=0.1, train=train)
    with pytest.raises(gpn.TrainingDiverged) as caught:
        gpn.GPN(config).fit(bowl, rng=0)
    assert caught.value.posterior is not None
    assert caught.value.posterior.mean(bowl.x_obs).shape == (12, 1)
