"""Small tasks, and GPNs that are fitted to them in a second."""

from typing import Any

import torch
from torch import Tensor

import gpn
from gpn.methods.gpn import GPNPosterior
from gpn.methods.gpn.defaults import resolve
from gpn.methods.gpn.fitting.context import FitContext

TINY: dict[str, Any] = {
    "trunk": gpn.MLPTrunk(widths=(8,)),
    "train": gpn.TrainConfig(steps=4, pool_batch=8, label_batch=16),
    "reference_rows": 32,
}
WITHOUT_KERNEL = gpn.MLPPrior(widths=(16,), activation="silu")


def rows(n: int, dim: int, seed: int = 0) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


def targets(n_labels: int, dim: int) -> gpn.Task:
    """Labels of a smooth function, and a pool of forty rows."""
    x = rows(n_labels, dim)
    return gpn.Task(x, x[:, :1].sin(), pool=rows(40, dim, seed=1))


def classes(n_labels: int, dim: int, n_classes: int = 2) -> gpn.Task:
    x = rows(n_labels, dim)
    return gpn.Task(x, (x[:, 0] > 0).long(), rows(40, dim, seed=1), n_classes=n_classes)


def images(n_labels: int, *, targets: bool = False) -> gpn.Task:
    x = rows(n_labels, 16).reshape(n_labels, 1, 4, 4)
    y = x.mean((1, 2, 3))
    return gpn.Task(x, y if targets else (y > 0).long(), pool=rows(40, 16, 1).reshape(40, 1, 4, 4))


def fit(task: gpn.Task, **settings: Any) -> GPNPosterior:
    return gpn.GPN(gpn.GPNConfig(**{**TINY, **settings})).fit(task, rng=0)


def context(task: gpn.Task, **settings: Any) -> FitContext:
    """The fit of such a GPN before it begins."""
    config = resolve(gpn.GPNConfig(**{**TINY, **settings}), task)
    return FitContext(config, task, torch.Generator().manual_seed(0))
