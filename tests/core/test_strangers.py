"""Made-up images keep what they should keep, and lose the rest."""

import pytest
import torch
from torch import Tensor

import gpn
from gpn.core.strangers import made_up_images, random_phases, shuffled_patches


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some(*shape: int) -> Tensor:
    return torch.randn(shape, generator=seeded(1))


@pytest.mark.parametrize("size", [(28, 28), (7, 10), (1, 1)])
def test_random_phases_keep_the_spectrum_and_the_mean_power(size: tuple[int, int]) -> None:
    """|F| at every frequency but those whose phase must be 0 or π for the image to be real."""
    x = some(6, 3, *size)
    before, after = (torch.fft.rfft2(i) for i in (x, random_phases(x, seeded())))
    free = torch.ones(before.shape[2:], dtype=torch.bool)
    free[:, 0] = False
    if size[1] % 2 == 0:
        free[:, -1] = False
    torch.testing.assert_close(before.abs()[..., free], after.abs()[..., free], atol=1e-4, rtol=0)
    if size == (28, 28):
        assert (random_phases(x, seeded()) - x).abs().mean() > 0.5


@pytest.mark.parametrize("size", [(28, 28), (7, 10), (3, 2), (1, 1)])
def test_shuffled_patches_keep_every_pixel(size: tuple[int, int]) -> None:
    x = some(6, 3, *size)
    moved = shuffled_patches(x, seeded())
    assert moved.shape == x.shape
    for before, after in zip(x, moved, strict=True):
        kept = [p.sort(0).values for p in (before.flatten(1).T, after.flatten(1).T)]
        torch.testing.assert_close(*kept)


def test_patches_move_as_a_whole() -> None:
    marked = torch.arange(16.0).reshape(1, 1, 4, 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
    moved = shuffled_patches(marked, seeded())
    blocks = moved.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    assert (blocks == blocks[..., :1]).all()
    assert (moved != marked).any()


@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_as_many_as_asked_for_and_the_generator_decides(count: int) -> None:
    x = some(10, 1, 8, 8)
    first, second = (made_up_images(x, count, seeded()) for _ in range(2))
    assert first.shape == (count, 1, 8, 8)
    assert torch.equal(first, second)
    assert torch.isfinite(first).all()


def images() -> gpn.Task:
    x = some(40, 1, 8, 8)
    return gpn.Task(x, (x.mean((1, 2, 3)) > 0).long(), pool=some(60, 1, 8, 8), n_classes=2)


def test_a_third_of_the_pool_is_made_up_for_images_and_nothing_for_tables() -> None:
    train = gpn.TrainConfig(steps=3)
    config = gpn.GPNConfig(trunk=gpn.ConvTrunk(channels=(2,), widths=(8,)), train=train, beta=0.1)
    fitted = gpn.GPN(config).fit(images(), rng=0)
    assert fitted.config.made_up == pytest.approx(1 / 3)
    assert len(fitted.report["pool_rows"]) == 90
    without = gpn.GPN(config.replace(made_up=0.0)).fit(images(), rng=0)
    assert len(without.report["pool_rows"]) == 60
    x = some(80, 12)
    table = gpn.Task(x, x[:, :1], pool=x)
    assert gpn.GPNConfig().resolved(table).made_up == 0


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_lies_between_none_and_all(share: float) -> None:
    with pytest.raises(ValueError, match=r"made_up must lie in \[0, 1\), got"):
        gpn.GPNConfig(made_up=share)


def test_strangers_are_made_up_for_images_only() -> None:
    x = some(80, 12)
    config = gpn.GPNConfig(made_up=0.2)
    with pytest.raises(ValueError, match=r"strangers can be made up for images.*use made_up=0"):
        config.resolved(gpn.Task(x, x[:, :1], pool=x))
