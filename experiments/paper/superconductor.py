"""Superconductor: critical temperatures of at least 13.9 K are known, colder ones are strangers.

Labels are the training rows from 13.9 K on, the pool is the full training set, and the test rows
fall into those two kinds. A tenth of all rows is kept for the choice of settings. Features and
target are standardised by the training rows, so that losses and widths are in units of the full
training target's standard deviation.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.paper.split import Rows, Split
from gpn import Task, data

THRESHOLD = 13.9
CUTS = (0.7, 0.8)
Deal = Callable[[Tensor, np.random.Generator], np.ndarray]


def superconductor(seed: int, folder: Path | None = None) -> Split:
    """The paper's random split: rows with the same features may fall on both sides."""

    def by_row(x: Tensor, rng: np.random.Generator) -> np.ndarray:
        return (rng.random(len(x)).argsort(kind="stable").argsort() + 0.5) / len(x)

    return _split(seed, folder, by_row)


def superconductor_grouped(seed: int, folder: Path | None = None) -> Split:
    """Rows with identical features (as the networks see them) stay together: nothing leaks."""

    def by_group(x: Tensor, rng: np.random.Generator) -> np.ndarray:
        _, group = np.unique(x.float().numpy(), axis=0, return_inverse=True)
        return rng.random(int(group.max()) + 1)[group.ravel()]

    return _split(seed, folder, by_group)


def _split(seed: int, folder: Path | None, deal: Deal) -> Split:
    """`deal` gives each row a number in [0, 1]: up to 0.7 train, up to 0.8 validate, then test."""
    table = data.superconductivity(folder)
    places = torch.from_numpy(deal(table.x, np.random.default_rng(seed)))
    part = torch.bucketize(places, torch.tensor(CUTS, dtype=places.dtype))
    train, valid, test = ((part == which).nonzero()[:, 0] for which in range(3))
    x, y = (_standardised(values, train) for values in (table.x, table.y[:, None]))
    known = table.y >= THRESHOLD
    labeled = train[known[train]]
    task = Task(x[labeled], y[labeled], pool=x[train])
    judged = (_rows(x, y, known, rows) for rows in (valid, test))
    return Split(task, *judged, strangers=x[train[~known[train]]])


def _standardised(values: Tensor, train: Tensor) -> Tensor:
    own = values[train]
    return ((values - own.mean(0)) / own.std(0).clamp_min(1e-12)).float()


def _rows(x: Tensor, y: Tensor, known: Tensor, rows: Tensor) -> Rows:
    inside, outside = rows[known[rows]], rows[~known[rows]]
    return Rows(x[inside], y[inside], x[outside], y[outside])
