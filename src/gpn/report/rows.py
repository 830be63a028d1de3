"""Rows of a table as a report speaks of them: where they come from, how unknown they are."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpn.tables.encoder import TableEncoder
from gpn.tables.model import TableModel

if TYPE_CHECKING:
    from pandas import DataFrame

Array = NDArray[np.float64]
MAX_ROWS = 50_000
MAX_UNKNOWN = 12
TYPICAL = (0.1, 0.4, 0.6, 0.9)


@dataclass(frozen=True)
class Rows:
    """One table: its `name`, rows as numbers `x`, OOD `scores`, and the `numbers` they had."""

    name: str
    frame: "DataFrame"
    x: Array
    scores: Array
    numbers: NDArray[np.int64]
    total: int


@dataclass(frozen=True)
class Picked:
    """One row to look at closely."""

    source: Rows
    place: int
    kind: str

    @property
    def x(self) -> Array:
        return self.source.x[self.place]

    @property
    def score(self) -> float:
        return float(self.source.scores[self.place])

    @property
    def label(self) -> str:
        number = int(self.source.numbers[self.place])
        return f"{self.source.name} row {number} ({self.kind}, score {self.score:.3g})"

    def text(self, name: str) -> str:
        """A category as it stands in the table."""
        value = self.source.frame[name].iloc[self.place]
        return "(missing)" if value != value or value is None else str(value)


def rows_of(model: TableModel, name: str, table: "DataFrame") -> Rows:
    """A table's rows, scored; of a very long one 50,000, picked evenly."""
    numbers = np.arange(len(table))
    if len(table) > MAX_ROWS:
        numbers = np.sort(np.random.default_rng(0).choice(len(table), MAX_ROWS, replace=False))
    frame = table.rename(columns=str).iloc[numbers].reset_index(drop=True)
    x = model.encoder.transform(frame)
    scores = np.asarray(model.estimator.ood_score(x), np.float64)
    return Rows(name, frame, x, scores, numbers, len(table))


def most_unknown(rows: Rows, n: int) -> list[Picked]:
    """The `n` rows that score most; of equal rows the first."""
    order = np.argsort(-rows.scores, kind="stable")
    found: list[int] = []
    for place in order:
        if len(found) == n:
            break
        if not any(np.array_equal(rows.x[place], rows.x[other]) for other in found):
            found.append(int(place))
    return [Picked(rows, place, "unknown") for place in found]


def typical(rows: Rows) -> list[Picked]:
    """Rows at fixed places among the scores, the best known first."""
    order = np.argsort(rows.scores, kind="stable")
    places = dict.fromkeys(int(order[int(q * (len(order) - 1))]) for q in TYPICAL)
    return [Picked(rows, place, "typical") for place in places]


def features(columns: TableEncoder) -> Iterator[tuple[str, slice]]:
    """Each column's name, and where it stands among the numbers of a row."""
    for place, name in enumerate(columns.medians):
        yield name, slice(place, place + 1)
    start = len(columns.medians)
    for name, values in columns.categories.items():
        yield name, slice(start, start + len(values))
        start += len(values)


def shown(columns: TableEncoder, name: str, part: Array) -> str:
    """A column's value as text, from its numbers."""
    if name in columns.medians:
        return f"{part[0]:.5g}"
    return columns.categories[name][int(part.argmax())] if part.any() else "(never seen)"


def predictions(model: TableModel, x: Array) -> list[str]:
    """What the model says of each row, in a few characters."""
    estimator: Any = model.estimator
    if not model.is_classifier:
        mean, std = estimator.predict(x, return_std=True)
        return [f"{m:.4g} ± {s:.2g}" for m, s in zip(mean, std, strict=True)]
    p = estimator.predict_proba(x)
    return [f"{estimator.classes_[row.argmax()]} ({row.max():.0%})" for row in p]
