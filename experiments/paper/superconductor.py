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
SHARES = (0.7, 0.1, 0.2)
Deal = Callable[[Tensor, np.random.Generator], np.ndarray]


def superconductor(seed: int, folder: Path | None = None) -> Split:
    """The paper's random split: rows with the same features may fall on both sides."""
    return _split(seed, folder, lambda x, rng: rng.random(len(x)))


def superconductor_grouped(seed: int, folder: Path | None = None) -> Split:
    """Rows with identical features stay together, so that nothing leaks."""

    def by_group(x: Tensor, rng: np.random.Generator) -> np.ndarray:
        _, group = np.unique(x.numpy(), axis=0, return_inverse=True)
        return rng.random(int(group.max()) + 1)[group.ravel()]

    return _split(seed, folder, by_group)


def _split(seed: int, folder: Path | None, deal: Deal) -> Split:
    """`deal` gives each row a number in [0, 1]: the lowest 70 % train, 10 % validate, 20 % test."""
    table = data.superconductivity(folder)
    places = deal(table.x, np.random.default_rng(seed)).argsort(kind="stable")
    cuts = np.cumsum(np.round(np.array(SHARES) * len(places)).astype(int))[:-1]
    train, valid, test = (torch.from_numpy(rows) for rows in np.split(places, cuts))
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
