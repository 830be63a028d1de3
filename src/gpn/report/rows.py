"""The rows that the report shows: which ones, their predictions, and their nearest labeled rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from gpn.columns.column_types import CLOCK, DATE, DURATION
from gpn.columns.encoder import TableEncoder
from gpn.columns.number_texts import with_unit
from gpn.tables.describe import naming_column
from gpn.tables.model import TableModel

Array = NDArray[np.float64]
MAX_ROWS = 50_000
MAX_OOD_ROWS = 12
TYPICAL_QUANTILES = (0.1, 0.4, 0.6, 0.9)
N_NEIGHBOURS = 3
MAX_FEATURES = 8
MAX_NAME = 40


@dataclass(frozen=True)
class ScoredTable:
    """A table with encoded rows `x`, their OOD `scores`, and their `numbers` in the full table.

    `unseen` marks rows with a category that the fit has not seen: they are flagged, too. `names`
    are texts that identify the rows, where a column does.
    """

    name: str
    frame: pd.DataFrame
    x: Array
    scores: Array
    numbers: NDArray[np.int64]
    total: int
    unseen: NDArray[np.bool_] | None = None
    names: list[str] | None = None

    def flagged(self, threshold: float) -> NDArray[np.bool_]:
        above = self.scores > threshold
        return above if self.unseen is None else above | self.unseen


@dataclass(frozen=True)
class SelectedRow:
    """One row of a table; `kind` says why it was selected."""

    table: ScoredTable
    index: int
    kind: str

    @property
    def x(self) -> Array:
        return self.table.x[self.index]

    @property
    def score(self) -> float:
        return float(self.table.scores[self.index])

    @property
    def number(self) -> int:
        return int(self.table.numbers[self.index])

    @property
    def name(self) -> str | None:
        """What identifies the row in its table."""
        return None if self.table.names is None else self.table.names[self.index]

    @property
    def label(self) -> str:
        named = "" if self.name is None else f" {self.name}"
        return f"{self.table.name} row {self.number}{named} ({self.kind}, score {self.score:.3g})"

    def value(self, column: str) -> Any:
        """The value as it stands in the table; None if missing."""
        value = self.table.frame[column].iloc[self.index]
        return None if value != value else value


def score_table(model: TableModel, name: str, table: pd.DataFrame) -> ScoredTable:
    """The table with OOD scores; a random sample of 50,000 rows if it is longer."""
    picked = np.arange(len(table))
    if len(table) > MAX_ROWS:
        picked = np.sort(np.random.default_rng(0).choice(len(table), MAX_ROWS, replace=False))
    frame = table.rename(columns=str).iloc[picked].reset_index(drop=True)
    x, unseen = model.encoder.transform_and_flag(frame)
    scores = np.asarray(model.estimator.ood_score(x), np.float64)
    names = row_names(frame, {*model.encoder.names, model.target})
    numbers = _row_numbers(table)[picked]
    return ScoredTable(name, frame, x, scores, numbers, len(table), unseen, names)


def _row_numbers(table: pd.DataFrame) -> NDArray[np.int64]:
    """The numbers of the rows in their file, from which some rows may have been taken before."""
    index = table.index
    numbered = pd.api.types.is_integer_dtype(index) and index.is_unique
    return index.to_numpy() if numbered else np.arange(len(table))


def row_names(frame: pd.DataFrame, used: set[str]) -> list[str] | None:
    """The values of the first column that the model does not use and that names every row."""
    column = naming_column(frame, used)
    if column is None:
        return None
    texts = map(str, frame[column])
    return [text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…" for text in texts]


def ood_rows(table: ScoredTable, n: int) -> list[SelectedRow]:
    """The `n` rows with the highest OOD scores, without duplicates."""
    found: list[int] = []
    for index in np.argsort(-table.scores, kind="stable"):
        if len(found) == n:
            break
        if not any(np.array_equal(table.x[index], table.x[other]) for other in found):
            found.append(int(index))
    return [SelectedRow(table, index, "OOD") for index in found]


def typical_rows(table: ScoredTable) -> list[SelectedRow]:
    """Rows at fixed quantiles of the OOD scores, the lowest first."""
    order = np.argsort(table.scores, kind="stable")
    indices = dict.fromkeys(int(order[int(q * (len(order) - 1))]) for q in TYPICAL_QUANTILES)
    return [SelectedRow(table, index, "typical") for index in indices]


def compare_to_labeled(model: TableModel, rows: list[SelectedRow]) -> list[dict[str, Any]]:
    """For each row: prediction, label if known, and the nearest labeled rows that are stored."""
    predicted = predictions(model, np.stack([row.x for row in rows]))
    near = _neighbours(model, rows)
    return [
        {
            "label": row.label,
            "source": row.table.name,
            "number": row.number,
            "name": row.name,
            "score": row.score,
            "prediction": text,
            "truth": _truth(model, row),
            "neighbours": neighbours,
        }
        for row, text, neighbours in zip(rows, predicted, near, strict=True)
    ]


def predictions(model: TableModel, x: Array) -> list[str]:
    """Mean ± standard deviation, or the most probable class, as text."""
    estimator: Any = model.estimator
    if not model.is_classifier:
        mean, std = estimator.predict(x, return_std=True)
        return [f"{m:.4g} ± {s:.2g}" for m, s in zip(mean, std, strict=True)]
    p = estimator.predict_proba(x)
    return [f"{estimator.classes_[row.argmax()]} ({row.max():.0%})" for row in p]


def _neighbours(model: TableModel, rows: list[SelectedRow]) -> list[list[dict[str, Any]]]:
    record = model.record
    if record is None or record.x is None or record.y is None or len(record.x) == 0:
        return [[] for _ in rows]
    scale = model.estimator.x_scale_.scale
    order, distances = nearest(np.stack([row.x for row in rows]), record.x, scale)
    return [
        [
            {
                "distance": float(distance),
                "target": _target_text(model, float(record.y[index])),
                "features": differences(model, row, record.x[index]),
            }
            for index, distance in zip(indices, lengths, strict=True)
        ]
        for row, indices, lengths in zip(rows, order, distances, strict=True)
    ]


def nearest(x: Array, labeled: Array, scale: Array, n: int = N_NEIGHBOURS) -> tuple[Any, Array]:
    """Indices and distances of the `n` labeled rows nearest to each row.

    d² = Σ ((x − x') / scale)², the distance in the units that the network sees.
    """
    distances = cdist(x / scale, labeled / scale)
    order = np.argsort(distances, axis=1, kind="stable")[:, :n]
    return order, np.take_along_axis(distances, order, axis=1)


def differences(model: TableModel, row: SelectedRow, other: Array) -> list[dict[str, Any]]:
    """The features in which a row differs most from `other`, in standard deviations."""
    gaps = (row.x - other) / model.estimator.x_scale_.scale
    found: list[dict[str, Any]] = []
    for name, place in feature_slices(model.encoder):
        if name in model.encoder.medians:
            kind = model.encoder.times.get(name)
            unit = model.encoder.units.get(name, "")
            values = (as_value(float(x[place][0]), kind) for x in (row.x, other))
            here, there = (with_unit(value, unit) for value in values)
            units = gaps[place][0]
        else:
            value, category = row.value(name), other[place]
            here, units = "(missing)" if value is None else str(value), np.linalg.norm(gaps[place])
            known = model.encoder.categories[name]
            there = known[int(category.argmax())] if category.any() else "(unseen)"
        found.append({"name": name, "here": here, "there": there, "units": float(units)})
    found.sort(key=lambda feature: -abs(feature["units"]))
    return [feature for feature in found[:MAX_FEATURES] if feature["units"] != 0]


def as_value(number: float, kind: str | None) -> str:
    """A number of an encoded row as people read it: seconds of a date as that date."""
    if kind == DURATION:
        return str(pd.Timedelta(number, unit="s").round("s"))
    if kind == CLOCK:
        return str(np.datetime64(round(number), "s"))[11:]
    if kind != DATE:
        return f"{number:.5g}"
    date = np.datetime64(round(number), "s")
    return str(date)[:10] if date == date.astype("M8[D]") else str(date).replace("T", " ")


def feature_slices(columns: TableEncoder) -> Iterator[tuple[str, slice]]:
    """Each column's name and its slice of an encoded row."""
    sizes = dict.fromkeys(columns.medians, 1) | {
        name: len(values) for name, values in columns.categories.items()
    }
    start = 0
    for name, size in sizes.items():
        yield name, slice(start, start + size)
        start += size


def _truth(model: TableModel, row: SelectedRow) -> str | None:
    value = row.value(model.target) if model.target in row.table.frame.columns else None
    if value is None:
        return None
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _target_text(model: TableModel, value: float) -> str:
    return str(model.estimator.classes_[int(value)]) if model.is_classifier else f"{value:.5g}"
