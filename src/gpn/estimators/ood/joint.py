"""Distances of new rows from the labels of all members of a detector, in one pass.

They are those of each member's `Distances`, up to rounding. Members share most of their labels, and
what they share is computed once: the distance to every label, from which each member takes the
parts that it has seen, and the rank of every cell among all labels, which a table turns into the
rank among those of a member.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpn.estimators.ood.distances import MAX_DISTANCE, N_DISTANCES, NEIGHBOURS, TINY, Distances

Rows = NDArray[np.float64]
Index = NDArray[np.int64]

Entries = NDArray[np.uint16] | NDArray[np.uint32]

MAX_SMALL = 2**16
CHUNK_NUMBERS = 2**18  # rows times labels: they stay in a core's cache


@dataclass(frozen=True)
class JointDistances:
    """What distances from several sets of labels need.

    parts: the labels of each part, as `_products` takes them. seen: the parts of each set. ranks:
    of each set's labels among all. whitened: of each set, its labels after its linear map. low,
    high ``(k, d)``: the ranges.
    """

    members: tuple[Distances, ...]
    parts: tuple[Rows, ...]
    seen: tuple[tuple[int, ...], ...]
    ranks: "RankTables"
    whitened: tuple[Rows, ...]
    low: Rows
    high: Rows

    @classmethod
    def of(
        cls,
        labels: Rows,
        part: Index,
        left_out: Sequence[tuple[int, ...]],
        members: Sequence[Distances],
    ) -> "JointDistances":
        """Of members that have seen all labels but those of the parts `left_out`."""
        numbers = [int(number) for number in np.unique(part)]
        kept = [tuple(p for p in numbers if p not in without) for without in left_out]
        return cls(
            tuple(members),
            tuple(_as_factor(labels[part == number]) for number in numbers),
            tuple(tuple(map(numbers.index, parts)) for parts in kept),
            RankTables.of(labels, [np.isin(part, parts) for parts in kept]),
            tuple(_as_factor((each.labels - each.centre) @ each.whitening) for each in members),
            np.stack([each.ordered[0] for each in members]),
            np.stack([each.ordered[-1] for each in members]),
        )

    def __call__(self, rows: Rows) -> Rows:
        """All distances ``(k, n, 6)``."""
        size = max(1, CHUNK_NUMBERS // sum(part.shape[1] for part in self.parts))
        found = np.empty((len(self.members), len(rows), N_DISTANCES))
        for start in range(0, len(rows), size):
            chunk = np.clip(rows[start : start + size], -MAX_DISTANCE, MAX_DISTANCE)
            self._fill(found[:, start : start + size], chunk)
        return found

    def _fill(self, found: Rows, rows: Rows) -> None:
        self._neighbours(found[:, :, 0], rows)
        for number, member in enumerate(self.members):
            white = (rows - member.centre) @ member.whitening
            squares = np.einsum("nd,nd->n", white, white)
            nearest = _nearest(_products(white, self.whitened[number]))
            found[number, :, 1] = _mean_distance(nearest, squares)
            found[number, :, 2] = 0.5 * np.log(squares + TINY**2)
        found[:, :, :2] = np.log(found[:, :, :2] + TINY)
        found[:, :, 3], found[:, :, 4] = self.ranks(rows)
        found[:, :, 5] = self._outside(rows)

    def _neighbours(self, found: Rows, rows: Rows) -> None:
        """The mean distance to the nearest labels that each member has seen."""
        squares = np.einsum("nd,nd->n", rows, rows)
        candidates = [_nearest(_products(rows, part)) for part in self.parts]
        for number, seen in enumerate(self.seen):
            nearest = _nearest(np.concatenate([candidates[part] for part in seen], axis=1))
            found[number] = _mean_distance(nearest, squares)

    def _outside(self, rows: Rows) -> Rows:
        """Σ_j log(1 + 10 · what column j exceeds a member's range by) ``(k, n)``."""
        found = np.zeros((len(self.members), len(rows)))
        row, column = np.nonzero((rows < self.low.max(0)) | (rows > self.high.min(0)))
        if len(row) == 0:
            return found
        cells, low, high = rows[row, column], self.low[:, column], self.high[:, column]
        excess = np.log1p(10 * np.maximum(np.maximum(cells - high, low - cells), 0.0))
        for number, each in enumerate(excess):
            found[number] = np.bincount(row, each, minlength=len(rows))
        return found


@dataclass(frozen=True)
class RankTables:
    """−log of the two-sided tail rank among several sets of labels, from the rank among all.

    ordered ``(d, n)``: all labels, column by column. after: where the run of values equal to each
    begins to differ. entry ``(d, 2n + 1, k)``: places in `logs`, for the sum of the two ranks.
    """

    ordered: Rows
    after: Index
    entry: Entries
    logs: Rows

    @classmethod
    def of(cls, labels: Rows, sets: Sequence[NDArray[np.bool_]]) -> "RankTables":
        order = np.argsort(labels, axis=0, kind="stable")
        ordered = np.take_along_axis(labels, order, axis=0).T.copy()
        counts = np.stack([each.sum() for each in sets])
        starts = np.concatenate([[0], np.cumsum(counts + 1)])
        logs = np.concatenate(
            [-np.log(np.minimum((np.arange(n + 1) + 0.5) / (n + 1), 0.5)) for n in counts]
        )
        columns = zip(ordered, order.T, strict=True)
        found = [_ranks_of_column(*column, sets, starts) for column in columns]
        after, entry = zip(*found, strict=True)
        kind = np.uint16 if len(logs) <= MAX_SMALL else np.uint32  # of wide tables they are many
        entries: Any = np.stack(entry).astype(kind)
        return cls(ordered, np.stack(after), entries, logs)

    def __call__(self, rows: Rows) -> tuple[Rows, Rows]:
        """The sum over columns, and the largest, for each set: ``(k, n)`` each."""
        n_sets = self.entry.shape[2]
        total, largest = np.zeros((len(rows), n_sets)), np.zeros((len(rows), n_sets))
        for ordered, after, entry, cells in zip(
            self.ordered, self.after, self.entry, rows.T, strict=True
        ):
            before = np.searchsorted(ordered, cells)
            place = np.minimum(before, len(ordered) - 1)
            below = np.where(ordered[place] == cells, after[place], before)
            tails = self.logs.take(entry.take(before + below, axis=0))
            total += tails
            np.maximum(largest, tails, out=largest)
        return total.T, largest.T


def _ranks_of_column(
    ordered: Rows, order: Index, sets: Sequence[NDArray[np.bool_]], starts: Index
) -> tuple[Index, NDArray[np.uint32]]:
    """Where runs of equal values end, and for each sum of the two ranks the smaller tail's place.

    A value between labels has two equal ranks, that of a label the ends of its run: no two values
    have the same sum.
    """
    n = len(ordered)
    after = np.searchsorted(ordered, ordered, "right")
    entry = np.zeros((2 * n + 1, len(sets)), np.uint32)
    first = np.searchsorted(ordered, ordered)
    for number, each in enumerate(sets):
        seen = np.concatenate([[0], np.cumsum(each[order])])
        entry[::2, number] = np.minimum(seen, seen[-1] - seen)
        entry[first + after, number] = np.minimum(seen[after], seen[-1] - seen[first])
        entry[:, number] += np.uint32(starts[number])
    return after, entry


def _as_factor(labels: Rows) -> Rows:
    """What rows with a 1 behind them are multiplied by for |l|² − 2 x·l."""
    return np.concatenate([-2 * labels.T, (labels**2).sum(1)[None]])


def _products(rows: Rows, factor: Rows) -> Rows:
    """|x − l|² − |x|²."""
    found: Rows = rows @ factor[:-1]
    found += factor[-1]
    return found


def _nearest(values: Rows) -> Rows:
    """The smallest values of each row, in any order; the others are moved, too."""
    count = min(NEIGHBOURS, values.shape[1])
    values.partition(count - 1, axis=1)
    return values[:, :count]


def _mean_distance(nearest: Rows, squares: Rows) -> Rows:
    found: Rows = np.sqrt(np.maximum(nearest + squares[:, None], 0.0)).mean(1)
    return found
