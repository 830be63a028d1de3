"""Muon: orthogonal steps of kernels, whose size does not depend on the gradient's."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gpn.training.config import TrainConfig
from gpn.training.loop import train
from gpn.training.muon import RELATIVE_STEP, orthogonalised


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(8, 20), (20, 8), (6, 6)])
def test_directions_are_about_orthogonal_and_ignore_the_size_of_a_gradient(
    shape: tuple[int, int],
) -> None:
    matrix = normal(*shape)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    found = orthogonalised(matrix)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.5
    assert values.max() < 1.3
    aligned = (found * (u @ v)).sum() / found.norm() / (u @ v).norm()
    assert aligned > 0.95
    torch.testing.assert_close(orthogonalised(1000 * matrix), found, atol=1e-4, rtol=0)


@pytest.mark.parametrize("channels", [(6, 4), (1, 16)])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_a_kernel_keeps_its_length_and_moves_by_the_same_share(
    scale: float, channels: tuple[int, int]
) -> None:
    conv = nn.Conv2d(*channels, 3, bias=False)
    shape = tuple(conv.weight.shape)
    with torch.no_grad():
        conv.weight.copy_(normal(*shape))
    before, slope = conv.weight.detach().clone(), scale * normal(*shape, seed=1)
    config = TrainConfig(steps=1, optimiser="muon", learning_rate=0.5, schedule="constant")
    train(conv, lambda: {"loss": (conv.weight * slope).sum()}, config)
    moved = conv.weight.detach() - before * channels[1] ** 0.5 / before.norm()
    direction = orthogonalised(slope.flatten(1)).view_as(slope)
    torch.testing.assert_close(moved, -RELATIVE_STEP * 0.5 * direction)


def test_other_parameters_have_nesterovs_steps_with_decay() -> None:
    settings: dict[str, Any] = {
        "steps": 5,
        "learning_rate": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.2,
    }
    ends = []
    for optimiser in ("muon", "sgd"):
        layer = nn.Linear(3, 2)
        with torch.no_grad():
            layer.weight.copy_(normal(2, 3))
            layer.bias.zero_()
        x = normal(10, 3, seed=2)
        train(
            layer,
            lambda layer=layer, x=x: {"loss": (layer(x) - 1).square().mean()},
            TrainConfig(optimiser=optimiser, **settings),
        )
        ends.append(layer.weight.detach())
    torch.testing.assert_close(*ends)
