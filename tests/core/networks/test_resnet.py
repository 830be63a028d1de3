"""A residual network: identity at rest, batch norm, mirror images, and a seed for its weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gpn
from gpn.core.networks.resnet import ResidualBlock, ResNet, Whitening, shifted
from gpn.methods.gpn.model.generator import AffineGenerator
from gpn.methods.gpn.posterior import GPNPosterior

SMALL = gpn.ResNetTrunk(channels=(4, 8, 16), widths=(8,), shift=0, whiten=False)
QUICK: dict[str, Any] = {
    "train": gpn.TrainConfig(steps=2, label_batch=8, pool_batch=8, device="cpu"),
    "n_axes": 4,
    "reference_rows": 16,
}
few_axes = pytest.mark.filterwarnings("ignore::gpn.core.warnings.AxesWarning")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(n: int = 6, side: int = 12) -> Tensor:
    return torch.randn(n, 3, side, side, generator=seeded(1))


def features(trunk: gpn.ResNetTrunk = SMALL, seed: int = 0) -> ResNet:
    network, count = trunk.features((3, 12, 12), seeded(seed))
    assert isinstance(network, ResNet)
    assert network(images()).shape == (6, count)
    return network


@pytest.mark.parametrize("side", [1, 5, 12, 33])
def test_images_of_every_size_have_as_many_features_as_last_channels(side: int) -> None:
    network, count = SMALL.features((3, side, side), seeded())
    assert count == 16
    assert network(images(side=side)).shape == (6, 16)


def test_a_block_whose_norms_are_zero_is_the_identity() -> None:
    block = ResidualBlock(4, "gelu").train()
    for layer in block.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.zeros_(layer.weight)
    x = torch.randn(5, 4, 6, 6, generator=seeded())
    assert torch.equal(block(x), x)


def test_a_batch_has_standard_features() -> None:
    """Unbounded ones let the anchor term diverge."""
    found = features().train()(images(64))
    torch.testing.assert_close(found.mean(0), torch.zeros(16), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.var(0, correction=0), torch.ones(16), atol=1e-2, rtol=0)


def test_new_images_and_their_mirror_images_have_the_same_features() -> None:
    x = images()
    both, one = features().eval(), features(SMALL.replace(mirror=False)).eval()
    torch.testing.assert_close(both(x), both(x.flip(-1)))
    torch.testing.assert_close(both(x), (one(x) + one(x.flip(-1))) / 2)
    assert (one(x) - one(x.flip(-1))).abs().max() > 1e-3


def test_whitened_patches_are_uncorrelated_with_unit_variance() -> None:
    mixing = torch.randn(3, 3, generator=seeded(3))
    x = torch.einsum("ab,nbhw->nahw", mixing, images(200))
    layer = Whitening(3)
    layer.fit(x)
    found = layer(x).movedim(1, 0).flatten(1)
    half = len(found) // 2
    torch.testing.assert_close(found[half:], -found[:half])
    torch.testing.assert_close(found[:half].cov(), torch.eye(half), atol=2e-2, rtol=0)


@few_axes
def test_a_whitened_network_has_all_its_channels_in_stages_and_whitens_labeled_images() -> None:
    trunk = SMALL.replace(whiten=True, channels=(8, 16))
    network = features(trunk)
    first, second = network.layers[0], network.layers[2]
    assert isinstance(first, Whitening)
    assert isinstance(second, nn.Conv2d)
    assert (second.in_channels, second.out_channels) == (24, 8)
    task = gpn.Task(images(20), torch.arange(20) % 2, pool=3 * images(30))
    posterior = gpn.GPN(gpn.GPNConfig(trunk=trunk, **QUICK)).fit(task, rng=0, progress=False)
    first.fit(task.x_obs)
    tensors = posterior.tensors()
    torch.testing.assert_close(tensors["features.layers.0.weight"], first.weight)
    opened = GPNPosterior.restore(posterior.config, posterior.signature, tensors)
    assert torch.equal(opened.mean(images(5)), posterior.mean(images(5)))
    with pytest.raises(ValueError, match="2 × 2 pixels at least to be whitened"):
        trunk.features((3, 1, 5), seeded())


def test_views_average_the_features_of_shifted_images() -> None:
    x = images()
    views = features(SMALL.replace(shift=1)).eval()
    one = features(SMALL).eval()
    down, up = shifted(x, 1)
    assert torch.equal(down[..., 1:, 1:], x[..., :-1, :-1])
    assert torch.equal(up[..., :-1, :-1], x[..., 1:, 1:])
    torch.testing.assert_close(views(x), one(x) / 2 + (one(down) + one(up)) / 4)
    assert torch.equal(views.train()(x), one.train()(x))


@few_axes
def test_outputs_are_linear_in_features_without_hidden_layers() -> None:
    task = gpn.Task(images(20), torch.arange(20) % 2, pool=images(30))
    config = gpn.GPNConfig(trunk=SMALL.replace(widths=()), **QUICK)
    generator = gpn.GPN(config).fit(task, rng=0, progress=False).generator
    assert isinstance(generator, AffineGenerator)
    assert len(generator.tail) == 1
    with pytest.raises(ValueError, match="widths must name one"):
        gpn.GPN(config.replace(generator="concat")).fit(task, rng=0, progress=False)


def test_the_seed_decides_the_weights_and_nothing_else_does() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        first = features()
        torch.manual_seed(6)
        second = features()
        other = features(seed=1)
    same, different = (
        [torch.equal(a, b) for a, b in zip(first.parameters(), net.parameters(), strict=True)]
        for net in (second, other)
    )
    assert all(same)
    assert not all(different)


def test_a_convolution_keeps_the_scale_of_its_inputs() -> None:
    """N(0, 2 / fan-in) keeps E x² through a rectifier, which halves it."""
    convs = [
        layer for layer in features(gpn.ResNetTrunk()).modules() if isinstance(layer, nn.Conv2d)
    ]
    for conv in convs[1:]:
        scale = float(conv.weight.detach().square().mean() * conv.weight[0].numel())
        assert scale == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"channels": (64,)}, r"a first convolution and one stage at least, got \(64,\)"),
        ({"channels": (64, 0)}, r"layer sizes must be positive numbers"),
        ({"blocks": -1}, r"blocks must be"),
        ({"shift": -1}, r"shift must be a number of pixels, got -1"),
        ({"activation": "step"}, r"activation must be one of"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpn.ResNetTrunk(**settings)


def test_tables_have_no_convolutions() -> None:
    with pytest.raises(ValueError, match="image"):
        SMALL.features((7,), seeded())
