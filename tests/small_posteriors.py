"""GPNs of two inputs that are fitted in a second."""

import torch
from torch import Tensor

import gpn

FEW = gpn.TrainConfig(steps=60, pool_batch=32)


def points(*shape: int, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return 4 * torch.rand(*shape, 2, generator=rng, dtype=torch.float64) - 2


def task(outputs: int) -> gpn.Task:
    x = points(8, seed=9)
    y = torch.stack([x[:, 0].sin(), x[:, 1].cos()], dim=1)[:, :outputs]
    return gpn.Task(x, y, pool=gpn.box([-2.0, -2.0], [2.0, 2.0]))


def fitted(outputs: int = 1, **changes: object) -> gpn.Posterior:
    small: dict[str, object] = {
        "n_axes": 12,
        "noise_std": 0.2,
        "reference_rows": 64,
        "trunk": gpn.MLPTrunk(widths=(32,), fourier=16),
        "train": FEW,
    }
    return gpn.GPN(gpn.GPNConfig(**{**small, **changes})).fit(task(outputs), rng=0)
