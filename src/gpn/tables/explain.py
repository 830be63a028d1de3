"""Which columns make a flagged row unlike the labeled ones.

One column after the other is replaced by the value that the nearest labeled rows have, each time
the one that lowers the OOD score most, until the row would not be flagged.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logit

from gpn.columns.column_types import TableError, to_texts
from gpn.columns.encoder import TableEncoder
from gpn.tables.model import TableModel

Rows = NDArray[np.float64]

NEIGHBOURS = 10
MAX_COLUMNS = 3
MAX_SCORE = 1 - 1e-15
MIN_FALL = 0.05  # of the log odds, below which a column explains nothing


@dataclass(frozen=True)
class ColumnShift:
    """A column of a row, its value, that of the nearest labeled rows, and the score with that one.

    Where the fit has not seen the value, `usual` is None, and the row is flagged for that alone.
    """

    column: str
    value: str
    usual: str | None
    score: float

    def __str__(self) -> str:
        if self.usual is None:
            return f"{self.column} = {self.value} (never seen)"
        return f"{self.column} = {self.value} (near rows: {self.usual})"


def explain_rows(
    model: TableModel, table: pd.DataFrame, x: Rows, fpr: float = 0.05
) -> list[list[ColumnShift]]:
    """For each row of a table, whose numbers are `x`, the columns that make it unlike the others.

    The first explains most. A row that is not flagged has none, unless a value was never seen.
    """
    labeled = _labeled_rows(model)
    found = [_unseen_shifts(model.encoder, table.iloc[[i]], x[i]) for i in range(len(x))]
    current, estimator = x.copy(), model.estimator
    limit = estimator.threshold(fpr)
    scores = estimator.ood_score(current)
    for _ in range(MAX_COLUMNS):
        open_rows = np.flatnonzero(scores > limit)
        if len(open_rows) == 0:
            break
        for row, shift, changed in _best_replacements(
            model, labeled, current[open_rows], scores[open_rows]
        ):
            number = int(open_rows[row])
            if shift is None:
                scores[number] = -np.inf
                continue
            name, replaced, score = shift
            if name not in [each.column for each in found[number]]:
                value = str(to_texts(table.iloc[[number]][name]).iloc[0])
                usual = _as_text(model.encoder, name, replaced)
                found[number].append(ColumnShift(name, value, usual, score))
            current[number], scores[number] = changed, score
    return found


def _labeled_rows(model: TableModel) -> Rows:
    if model.record is None or model.record.x is None:
        raise TableError(
            "an explanation must compare a row with labeled ones, this model stores none; fit it "
            "again without --forget-rows."
        )
    return model.record.x


def _best_replacements(model: TableModel, labeled: Rows, x: Rows, scores: Rows) -> Any:
    """For each row the column whose usual value lowers the score most, None where none does."""
    places = list(model.encoder.places().items())
    scale = model.estimator.x_scale_
    scaled, known = scale.apply(x), scale.apply(labeled)
    squares = (scaled[:, None, :] - known[None]) ** 2 if len(x) * known.size < 2e7 else None
    changed = np.repeat(x[:, None, :], len(places), axis=1)
    for row in range(len(x)):
        gaps = squares[row] if squares is not None else (scaled[row] - known) ** 2
        total = gaps.sum(1)
        for column, (_, place) in enumerate(places):
            nearest = np.argsort(total - gaps[:, place].sum(1))[:NEIGHBOURS]
            changed[row, column, place] = _usual(labeled[nearest][:, place])
    flat = changed.reshape(-1, x.shape[1])
    after = model.estimator.ood_score(flat).reshape(len(x), len(places))
    fall = _log_odds(scores)[:, None] - _log_odds(after)
    for row, column in enumerate(fall.argmax(1)):
        if fall[row, column] < MIN_FALL:
            yield row, None, x[row]
        else:
            name, place = places[column]
            shift = name, changed[row, column, place], float(after[row, column])
            yield row, shift, changed[row, column]


def _usual(values: Rows) -> Rows:
    """The median of a number; of a category the most frequent value."""
    if values.shape[1] == 1:
        return np.median(values, axis=0)
    return np.eye(values.shape[1])[values.sum(0).argmax()]


def _log_odds(scores: Rows) -> Rows:
    odds: Rows = logit(np.clip(scores, 1e-15, MAX_SCORE))
    return odds


def _unseen_shifts(encoder: TableEncoder, row: pd.DataFrame, x: Rows) -> list[ColumnShift]:
    """The columns of a row whose values the fit has not seen."""
    names = [
        n for n, place in encoder.places().items() if n in encoder.categories and not x[place].any()
    ]
    names += [
        name
        for name in encoder.constants
        if name in row and not encoder.is_constant(name, to_texts(row[name])).all()
    ]
    return [ColumnShift(name, str(to_texts(row[name]).iloc[0]), None, 1.0) for name in names]


def _as_text(encoder: TableEncoder, name: str, values: Rows) -> str:
    """Encoded values as they would stand in the table."""
    if name in encoder.categories:
        return encoder.categories[name][int(values.argmax())]
    return encoder.shown(name, float(values[0]))
