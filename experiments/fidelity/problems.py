"""The problems: labels, a pool, a grid to compare posteriors on, and the true noise."""

from dataclasses import dataclass

import torch
from torch import Tensor

import gpn
from gpn.data import SIX_POINTS_NOISE_STD, six_points


@dataclass(frozen=True)
class Problem:
    """A task, the grid on which posteriors are compared, and σ_ε (none for classes)."""

    task: gpn.Task
    grid: Tensor
    noise_std: float | None


def _line() -> Tensor:
    return torch.linspace(-2, 2, 201)[:, None]


def plane(side: int) -> Tensor:
    axis = torch.linspace(-2, 2, side)
    return torch.cartesian_prod(axis, axis)


def _six_points() -> Problem:
    return Problem(six_points(), _line(), SIX_POINTS_NOISE_STD)


def _gap() -> Problem:
    """Two clusters of ten labels, and a gap between them."""
    rng = torch.Generator().manual_seed(1)
    x = torch.cat([torch.linspace(-1.6, -0.8, 10), torch.linspace(0.8, 1.6, 10)])[:, None]
    y = torch.sin(3 * x) + 0.5 * x + 0.1 * torch.randn(20, 1, generator=rng)
    return Problem(gpn.Task(x, y, pool=gpn.box([-2.0], [2.0])), _line(), 0.1)


def _surface() -> Problem:
    """A surface over the plane, 25 labels."""
    rng = torch.Generator().manual_seed(2)
    x = 3 * torch.rand(25, 2, generator=rng) - 1.5
    y = torch.sin(2 * x[:, :1]) * torch.cos(x[:, 1:]) + 0.1 * torch.randn(25, 1, generator=rng)
    return Problem(gpn.Task(x, y, pool=gpn.box([-2.0, -2.0], [2.0, 2.0])), plane(21), 0.1)


def _five_outputs() -> Problem:
    """Eight labels with five targets each."""
    rng = torch.Generator().manual_seed(3)
    x = torch.linspace(-1.6, 1.6, 8)[:, None]
    waves = torch.sin(x * torch.tensor([1.0, 1.5, 2.0, 2.5, 3.0]) + torch.arange(5.0))
    y = waves + 0.1 * torch.randn(8, 5, generator=rng)
    return Problem(gpn.Task(x, y, pool=gpn.box([-2.0], [2.0])), _line(), 0.1)


def _three_classes() -> Problem:
    """Three overlapping classes in the plane, 30 labels."""
    rng = torch.Generator().manual_seed(4)
    labels = torch.arange(30) % 3
    centres = torch.tensor([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    x = centres[labels] + 0.45 * torch.randn(30, 2, generator=rng)
    return Problem(gpn.Task(x, labels, pool=gpn.box([-2.0, -2.0], [2.0, 2.0])), plane(21), None)


PROBLEMS = {
    "six-points": _six_points,
    "gap": _gap,
    "surface": _surface,
    "five-outputs": _five_outputs,
    "three-classes": _three_classes,
}
