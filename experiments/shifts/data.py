"""Tables, what shifts their rows, and pools of unlabeled rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from experiments.tables.data import Table, read_table, table_names
from gpn.data.store import Folder

Rows = NDArray[np.float64]
Mask = NDArray[np.bool_]

CLASSES = ("iris", "wine", "breast_cancer", "digits")
TIME_COLUMNS = {"bike": 1, "parkinsons": 3, "sml": 0, "stock": 0}  # columns that grow with time
POOLS = ("none", "like", "mixed")
MAX_LABELS, MAX_TEST = 500, 500
MIN_ROWS = 5
DECILE = 0.1
FOLDS = 10


@dataclass(frozen=True)
class Cell:
    """Labeled rows, new rows of their distribution, shifted rows, and the pools to learn from."""

    shift: str
    labels: Rows
    targets: Rows
    known: Rows
    shifted: Rows
    pools: dict[str, Rows | None]


def names(folder: Folder = None) -> list[str]:
    return [*table_names(folder), *CLASSES]


def read(name: str, folder: Folder = None) -> Table:
    """One of the tables in the folder, or of scikit-learn's with classes as targets."""
    if name not in CLASSES:
        return read_table(name, folder)
    loaded = getattr(datasets, f"load_{name}")()
    fold = np.random.default_rng(0).permutation(len(loaded.data)) % FOLDS
    return Table(name, loaded.data.astype(float), loaded.target.astype(float), fold)


def cells(table: Table, fold: int) -> Iterator[Cell]:
    """Every shift of a table whose part `fold` is tested; two thirds of the rest are labels."""
    rng = np.random.default_rng(fold)
    test, rest = (rng.permutation(np.flatnonzero(mask)) for mask in parts(table, fold))
    test, rest = test[:MAX_TEST], rest[: 3 * MAX_LABELS // 2]
    labels, pool = np.split(rest, [2 * len(rest) // 3])
    std = table.x[labels].std(0)
    column = int(rng.choice(np.flatnonzero(std > 0)))
    moves = moved(table.x[test], std, column, fold), moved(table.x[pool], std, column, fold)
    half = len(pool) // 2
    for (shift, rows), (_, others) in zip(*moves, strict=True):
        like = table.x[pool]
        mixed = np.concatenate([like[:half], others[half:]])
        pools = {"none": None, "like": like, "mixed": mixed}
        yield Cell(shift, table.x[labels], table.y[labels], table.x[test], rows, pools)
    for shift, is_out in held_out(table, rng):
        cell = held_out_cell(shift, table, (labels, test, pool), is_out)
        if min(len(cell.known), len(cell.shifted)) >= MIN_ROWS:
            yield cell


def parts(table: Table, fold: int) -> tuple[Mask, Mask]:
    return table.fold == fold, table.fold != fold


def moved(rows: Rows, std: Rows, column: int, seed: int) -> Iterator[tuple[str, Rows]]:
    """Rows that were changed: one column, all columns, their units, their combinations."""
    for size in (5, 20):
        one = rows.copy()
        one[:, column] += size * std[column]
        yield f"one column +{size} sd", one
    yield "all columns +3 sd", rows + 3 * std
    yield "times 100", 100 * rows
    rng = np.random.default_rng(seed + 7)
    yield "permuted columns", np.stack([rng.permutation(each) for each in rows.T], axis=1)


def held_out(table: Table, rng: np.random.Generator) -> Iterator[tuple[str, Mask]]:
    """Rows that no label comes from: an end of a column or of the target, a class, late ones."""
    distinct = np.array([len(np.unique(values)) for values in table.x.T])
    column = int(rng.choice(np.flatnonzero(distinct >= min(20, distinct.max()))))
    yield from ends(table.x[:, column], "column")
    if table.name in CLASSES:
        yield "one class", table.y == table.y.max()
    else:
        yield from ends(table.y, "target")
    if table.name in TIME_COLUMNS:
        times = table.x[:, TIME_COLUMNS[table.name]]
        yield "later rows", times > np.quantile(times, 0.7)


def ends(values: Rows, what: str) -> Iterator[tuple[str, Mask]]:
    yield f"top of a {what}", values > np.quantile(values, 1 - DECILE)
    yield f"bottom of a {what}", values < np.quantile(values, DECILE)


def held_out_cell(shift: str, table: Table, rows: tuple[Rows, Rows, Rows], is_out: Mask) -> Cell:
    """Labels without such rows; the mixed pool has those of labels and pool."""
    x, (labels, test, pool) = table.x, rows
    like = pool[~is_out[pool]]
    others = np.concatenate([labels[is_out[labels]], pool[is_out[pool]]])
    mixed = np.concatenate([like[: max(len(others), MIN_ROWS)], others])
    pools = {"none": None, "like": x[like], "mixed": x[mixed]}
    known, shifted = test[~is_out[test]], test[is_out[test]]
    kept = labels[~is_out[labels]]
    return Cell(shift, x[kept], table.y[kept], x[known], x[shifted], pools)
