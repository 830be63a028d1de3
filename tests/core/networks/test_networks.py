"""Layers and trunks: sizes, initial distributions, and features of the input."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import gpn
from gpn.core.networks.frozen import FrozenFeatures
from gpn.core.networks.layers import (
    ACTIVATIONS,
    Dropout,
    Erf,
    build_sequential,
    conv_features,
    conv_stack,
    mlp,
)
from gpn.methods.gpn.model.generator import ConcatGenerator


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_mlp_is_its_formula() -> None:
    """W₃ φ(W₂ φ(W₁ x + b₁) + b₂) + b₃, linear at the end."""
    network = build_sequential(lambda: mlp((2, 5, 4, 3), "tanh"), seeded())
    x = torch.randn(6, 2, generator=seeded(1))
    w1, b1, w2, b2, w3, b3 = network.parameters()
    by_hand = (((x @ w1.T + b1).tanh() @ w2.T + b2).tanh()) @ w3.T + b3
    torch.testing.assert_close(network(x), by_hand)


@pytest.mark.parametrize("size", [(1, 1), (4, 4), (5, 7), (28, 28), (33, 9)])
@pytest.mark.parametrize("channels", [(3,), (2, 5), (2, 2, 4)])
@pytest.mark.parametrize("halve_by", ["stride", "max"])
def test_conv_features_counts_what_conv_stack_makes(
    size: tuple[int, int], channels: tuple[int, ...], halve_by: str
) -> None:
    shape = (2, *size)
    stack = build_sequential(lambda: conv_stack(shape, channels, "relu", halve_by), seeded())
    assert stack(torch.zeros(3, *shape)).shape == (3, conv_features(shape, channels))


def test_a_max_looks_at_all_pixels_and_a_stride_at_every_other() -> None:
    """The same weights: what a stride keeps is one of the four that the max is taken over."""
    by_max, by_stride = (
        build_sequential(lambda how=how: conv_stack((1, 8, 8), (3,), "relu", how), seeded())
        for how in ("max", "stride")
    )
    x = torch.randn(5, 1, 8, 8, generator=seeded(1))
    assert (by_max(x) >= by_stride(x) - 1e-6).all()
    assert (by_max(x) > by_stride(x) + 1e-3).any()
    with pytest.raises(ValueError, match="halve_by must be one of"):
        gpn.ConvTrunk(halve_by="mean")


@pytest.mark.parametrize("shape", [(4,), (4, 4), (1, 1, 4, 4)])
def test_convolutions_need_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"\(channels, height, width\), got .*; use an MLP"):
        gpn.ConvTrunk().features(shape, seeded())
    with pytest.raises(ValueError, match=r"\(channels, height, width\), got .*; use an MLP"):
        gpn.ConvPrior().sample(shape, 1, 2, rng=0)


@pytest.mark.parametrize("config", [gpn.ConvTrunk, gpn.ConvPrior])
def test_convolutions_need_channels(config: type[gpn.ConvTrunk | gpn.ConvPrior]) -> None:
    with pytest.raises(ValueError, match=r"channels must name at least one convolution, got \(\)"):
        config(channels=())


def test_fresh_weights_are_uniform_within_one_over_root_fan_in() -> None:
    """U[−b, b] with b = 1/√fan-in has variance b²/3."""
    network = build_sequential(
        lambda: [nn.Linear(25, 400), nn.Flatten(), nn.Conv2d(4, 300, 3)], seeded()
    )
    network.requires_grad_(False)
    for layer, fan_in in ((network[0], 25), (network[2], 36)):
        bound = fan_in**-0.5
        assert layer.weight.abs().max() <= bound
        assert layer.weight.abs().max() > 0.99 * bound
        assert float(layer.weight.var()) == pytest.approx(bound**2 / 3, rel=0.05)
        assert float(layer.bias.var()) == pytest.approx(bound**2 / 3, rel=0.3)


def test_fresh_takes_randomness_from_its_argument_alone() -> None:
    before = torch.get_rng_state()
    first = build_sequential(lambda: mlp((3, 8, 1), "relu"), seeded(1))
    assert torch.equal(torch.get_rng_state(), before)
    again, other = (
        build_sequential(lambda: mlp((3, 8, 1), "relu"), seeded(seed)) for seed in (1, 2)
    )
    assert torch.equal(first[0].weight, again[0].weight)
    assert not torch.equal(first[0].weight, other[0].weight)
    assert all(parameter.requires_grad for parameter in first.parameters())


def test_erf_is_erf() -> None:
    x = torch.linspace(-3, 3, 50)
    assert torch.equal(Erf()(x), torch.erf(x))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_pointwise_and_not_linear(name: str) -> None:
    activation, x = ACTIVATIONS[name](), torch.linspace(-2, 2, 9)
    values = activation(x)
    torch.testing.assert_close(activation(x.reshape(3, 3)).flatten(), values)
    assert values.diff().diff().abs().max() > 0.05


def test_plain_trunk_sees_the_input_itself() -> None:
    module, size = gpn.MLPTrunk().features((2, 3), seeded())
    x = torch.randn(4, 2, 3, generator=seeded(1))
    assert size == 6
    assert torch.equal(module(x), x.flatten(1))


def test_own_trunk_is_copied_with_its_weights() -> None:
    own = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)).eval()
    before = copy.deepcopy(own.state_dict())
    module, size = gpn.ModuleTrunk(module=own).features((3,), seeded())
    assert size == 5
    assert module.training, "the copy is to be trained"
    assert not own.training, "the original stays as it was"
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    with torch.no_grad():
        module[0].weight.zero_()
    assert torch.equal(own[0].weight, before["0.weight"])


@pytest.mark.parametrize(
    ("own", "found"), [(nn.Identity(), r"\(2, 3, 4\)"), (nn.Flatten(0), r"\(24,\)")]
)
def test_own_trunk_must_give_rows_of_features(own: nn.Module, found: str) -> None:
    with pytest.raises(ValueError, match=rf"shape \(2, h\), got {found}; .*nn\.Flatten"):
        gpn.ModuleTrunk(module=own).features((3, 4), seeded())


def frozen(own: nn.Module, inputs: int = 3) -> FrozenFeatures:
    module, _ = gpn.ModuleTrunk(module=own, frozen=True).features((inputs,), seeded())
    assert isinstance(module, FrozenFeatures)
    return module


def test_a_frozen_trunk_stays_in_eval_mode() -> None:
    own = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
    before = copy.deepcopy(own.state_dict())
    module, x = frozen(own), torch.randn(8, 3, generator=seeded(1))
    module.train()
    first = module(x)
    assert not any(part.training for part in module.modules())
    assert not first.requires_grad
    assert torch.equal(module(x), first), "dropout is off"
    torch.testing.assert_close(module(x[:1]), first[:1], msg="rows do not see each other")
    for name, value in module.module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert own.training, "the original stays as it was"
    assert own[0].weight.requires_grad, "the original stays as it was"


def test_frozen_features_are_brought_to_one_scale() -> None:
    own = nn.Sequential(nn.Linear(3, 5), nn.ReLU())
    with torch.no_grad():
        own[0].weight.mul_(100)
        own[0].bias[2] = -1e6  # a feature that is never on
    module, x = frozen(own), torch.randn(3000, 3, generator=seeded(1))
    seen = module.fit(x)
    torch.testing.assert_close(module(x), seen)
    torch.testing.assert_close(seen.mean(0), torch.zeros(5), atol=1e-4, rtol=0.0)
    expected = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0])
    torch.testing.assert_close(seen.std(0, correction=0), expected, atol=1e-4, rtol=0.0)


@pytest.mark.parametrize(
    ("own", "asked", "is_frozen"),
    [
        (nn.Linear(3, 5), None, False),
        (nn.Linear(3, 5).requires_grad_(False), None, True),
        (nn.Linear(3, 5).requires_grad_(False), False, False),
        (nn.Linear(3, 5), True, True),
        (nn.Flatten(), None, False),
    ],
)
def test_a_module_that_wants_no_gradient_is_frozen(
    own: nn.Module, asked: bool | None, is_frozen: bool
) -> None:
    trunk = gpn.ModuleTrunk(module=own, frozen=asked)
    assert trunk.is_frozen == is_frozen
    assert isinstance(trunk.features((3,), seeded())[0], FrozenFeatures) == is_frozen


def test_own_trunk_may_be_float64() -> None:
    own = nn.Linear(3, 5).double()
    assert gpn.ModuleTrunk(module=own).features((3,), seeded())[1] == 5


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((), r"widths must name at least one hidden layer, got \(\)"),
        ((0,), r"layer sizes must be positive numbers, got \(0,\)"),
        ((8, -1), r"layer sizes must be positive numbers, got \(8, -1\)"),
    ],
)
@pytest.mark.parametrize("trunk", [gpn.MLPTrunk, gpn.ConvTrunk])
def test_widths_must_be_positive(
    trunk: type[gpn.MLPTrunk | gpn.ConvTrunk], widths: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        trunk(widths=widths)


def test_dropout_is_for_training_alone() -> None:
    network = build_sequential(lambda: mlp((2, 50, 50, 1), "relu", 0.5), seeded())
    x = torch.randn(20, 2, generator=seeded(1))
    assert sum(isinstance(layer, nn.Dropout) for layer in network) == 2
    with torch.random.fork_rng():
        assert not torch.equal(network.train()(x), network(x))
    assert torch.equal(network.eval()(x), network(x))


@pytest.mark.parametrize("share", [0.15, 0.5, 0.9])
def test_dropout_leaves_out_its_share_of_units_one_by_one(share: float) -> None:
    """Each unit is 0 or 1 / (1 − share), and neighbours, who share a number, do not agree."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        kept = Dropout(share)(torch.ones(999, 401))
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / (1 - share)], rel=1e-4)
    gone = (kept == 0).double()
    error = 4 * (share * (1 - share) / gone.numel()) ** 0.5
    assert gone.mean() == pytest.approx(share, abs=error)
    for step in (1, 2, 3, 4):
        together = (gone.flatten()[step:] * gone.flatten()[:-step]).mean()
        assert together == pytest.approx(share**2, abs=4 * share * gone.numel() ** -0.5)


def test_dropout_follows_the_seed_and_leaves_the_global_state_alone() -> None:
    x = torch.linspace(-1, 1, 12)[:, None]
    config = gpn.GPNConfig(
        noise_std=0.1,
        trunk=gpn.MLPTrunk(widths=(16, 16), dropout=0.5),
        train=gpn.TrainConfig(steps=5),
        reference_rows=32,
    )
    before = torch.random.get_rng_state()
    fits = [gpn.GPN(config).fit(gpn.Task(x, x, pool=x), rng=seed).mean(x) for seed in (0, 0, 1)]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(fits[0], fits[1])
    assert not torch.equal(fits[0], fits[2])


@pytest.mark.parametrize("name", ["dropout", "sngp", "ensemble"])
@pytest.mark.parametrize("extra", [{"dropout": 0.1}, {"ramps": 3}])
def test_what_a_method_would_ignore_is_refused(name: str, extra: dict[str, Any]) -> None:
    method = gpn.methods.get(name, trunk=gpn.MLPTrunk(widths=(4,), **extra))
    (what,) = extra
    with pytest.raises(ValueError, match=rf"without {what}, got {what}=.*; use 0"):
        method.fit(gpn.Task([[0.0], [1.0]], [0.0, 1.0]), rng=0)


def test_dropout_reaches_every_hidden_layer_of_a_concat_generator() -> None:
    trunk = gpn.MLPTrunk(widths=(4, 4), dropout=0.5)
    generator = ConcatGenerator(trunk, (1,), 1, 2, seeded())
    assert sum(isinstance(module, nn.Dropout) for module in generator.modules()) == 2


def test_dropout_is_a_share() -> None:
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1\.0"):
        gpn.MLPTrunk(dropout=1.0)


@pytest.mark.usefixtures("as_users_have_it")
def test_a_module_must_be_one() -> None:
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module .*, got int"):
        gpn.ModuleTrunk(module=3)
