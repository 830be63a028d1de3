"""Synthetic outliers of a table: what a detector learns to tell from labeled rows.

box        uniform in the labels' ranges, made 0.3 wider on both sides
shuffled   each column's value from another label: real values, impossible combinations
one        a label with one column pushed 3 to 30 standard deviations away
all        a label with all columns pushed the same way, by 1 to 30
"""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]

MARGIN = 0.3
PUSH_ONE, PUSH_ALL = (3.0, 30.0), (1.0, 30.0)


def table_outliers(labels: Rows, count: int, rng: np.random.Generator) -> Rows:
    """`count` rows, a quarter of each kind; columns are in units of standard deviations."""
    sizes = [len(part) for part in np.array_split(np.arange(count), 4)]
    makers = (in_box, shuffled, one_pushed, all_pushed)
    return np.concatenate([make(labels, n, rng) for make, n in zip(makers, sizes, strict=True)])


def in_box(labels: Rows, count: int, rng: np.random.Generator) -> Rows:
    low, high = labels.min(0), labels.max(0)
    width = np.maximum(high - low, 1e-9)
    return low - MARGIN * width + (1 + 2 * MARGIN) * width * rng.random((count, len(low)))


def shuffled(labels: Rows, count: int, rng: np.random.Generator) -> Rows:
    picked = rng.integers(len(labels), size=(count, labels.shape[1]))
    return np.take_along_axis(labels, picked, axis=0)


def one_pushed(labels: Rows, count: int, rng: np.random.Generator) -> Rows:
    rows = labels[rng.integers(len(labels), size=count)]
    columns = rng.integers(labels.shape[1], size=count)
    rows[np.arange(count), columns] += _push(count, PUSH_ONE, rng)
    return rows


def all_pushed(labels: Rows, count: int, rng: np.random.Generator) -> Rows:
    rows = labels[rng.integers(len(labels), size=count)]
    return rows + _push(count, PUSH_ALL, rng)[:, None]


def _push(count: int, size: tuple[float, float], rng: np.random.Generator) -> Rows:
    """Up or down, by a size whose logarithm is uniform."""
    sign = rng.choice([-1.0, 1.0], count)
    pushes: Rows = sign * np.exp(rng.uniform(np.log(size[0]), np.log(size[1]), count))
    return pushes
