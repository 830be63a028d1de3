"""Superconductor: critical temperatures of at least 13.9 K are labeled, colder rows are OOD.

The pool is the full training set, and the test rows are split at the same temperature. A tenth of
all rows is for the choice of hyperparameters. Features and target are standardised by the training
rows, so losses and widths are in units of the full training target's standard deviation.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.paper.tasks.split import Rows, Split
from gpn import Task, data

THRESHOLD_KELVIN = 13.9
CUTS = (0.7, 0.8)
Quantiles = Callable[[Tensor, np.random.Generator], np.ndarray]


def superconductor(seed: int, folder: Path | None = None) -> Split:
    """The paper's random split: rows with identical features may fall on both sides."""

    def by_row(x: Tensor, rng: np.random.Generator) -> np.ndarray:
        return (rng.random(len(x)).argsort(kind="stable").argsort() + 0.5) / len(x)

    return _split(seed, folder, by_row)


def superconductor_grouped(seed: int, folder: Path | None = None) -> Split:
    """Rows with identical features (in float32) stay together, so that nothing leaks."""

    def by_group(x: Tensor, rng: np.random.Generator) -> np.ndarray:
        _, group = np.unique(x.float().numpy(), axis=0, return_inverse=True)
        return rng.random(int(group.max()) + 1)[group.ravel()]

    return _split(seed, folder, by_group)


def _split(seed: int, folder: Path | None, quantiles: Quantiles) -> Split:
    """`quantiles` gives each row a number: below 0.7 train, below 0.8 validation, then test."""
    table = data.superconductivity(folder)
    places = torch.from_numpy(quantiles(table.x, np.random.default_rng(seed)))
    part = torch.bucketize(places, torch.tensor(CUTS, dtype=places.dtype))
    train, valid, test = ((part == which).nonzero()[:, 0] for which in range(3))
    x, y = (_standardised(values, train) for values in (table.x, table.y[:, None]))
    warm = table.y >= THRESHOLD_KELVIN
    labeled, pool_ood = train[warm[train]], train[~warm[train]]

    def rows(indices: Tensor) -> Rows:
        known, ood = indices[warm[indices]], indices[~warm[indices]]
        return Rows(x[known], y[known], x[ood], y[ood])

    task = Task(x[labeled], y[labeled], pool=x[train])
    return Split(task, rows(valid), rows(test), pool_ood=x[pool_ood])


def _standardised(values: Tensor, train: Tensor) -> Tensor:
    mean, std = values[train].mean(0), values[train].std(0)
    return ((values - mean) / std.clamp_min(1e-12)).float()
