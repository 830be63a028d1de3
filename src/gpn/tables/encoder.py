"""A table's columns as numbers.

A missing number becomes its column's median, dates and durations become seconds, and a category
becomes one column of 0 and 1 for each of its values. What was learnt is plain JSON.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpn.core.warnings import GPNWarning, warn_caller
from gpn.saving.validation import are_texts, check
from gpn.tables.column_types import (
    MAX_CATEGORIES,
    MIN_UNIQUE_VALUES,
    MISSING,
    NUMBER,
    TIME_UNITS,
    WORD,
    TableError,
    canonical,
    column_type,
    is_text,
    refuse_decimal_commas,
    to_numbers,
    to_seconds,
    to_texts,
)

MAX_SHOWN_CATEGORIES = 5


@dataclass(frozen=True)
class TableEncoder:
    """The columns that a model reads: medians of numeric ones, categories of the others.

    `times` says which of the numeric ones are seconds of a date or of a duration. `notes` says in
    words what was done to the columns.
    """

    medians: dict[str, float]
    categories: dict[str, list[str]]
    notes: list[str] = field(default_factory=list, compare=False)
    times: dict[str, str] = field(default_factory=dict)

    @classmethod
    def fit(cls, table: pd.DataFrame, target: str) -> "TableEncoder":
        """Learn the columns of a table, all but the target."""
        table = as_table(table).drop(columns=str(target), errors="ignore")
        kinds = {name: column_type(table[name]) for name in table.columns}
        reasons = {name: _why_ignored(table[name], kind) for name, kind in kinds.items()}
        ignored = [reason for reason in reasons.values() if reason]
        numeric = [name for name in kinds if not reasons[name] and kinds[name] != WORD]
        worded = [name for name in kinds if not reasons[name] and kinds[name] == WORD]
        if not numeric and not worded:
            why = "".join(f"; {reason}" for reason in ignored)
            raise TableError(f"a table must have columns other than {target!r}, got none{why}.")
        encoder = cls(
            medians={name: _median(table[name], kinds[name]) for name in numeric},
            categories={name: _categories(table[name]) for name in worded},
            times={name: kinds[name] for name in numeric if kinds[name] in TIME_UNITS},
        )
        encoder.notes.extend([*_notes(encoder, table), *ignored])
        return encoder

    @property
    def names(self) -> list[str]:
        """The columns that the model reads, in the order of its inputs."""
        return [*self.medians, *self.categories]

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return len(self.medians) + sum(map(len, self.categories.values()))

    def transform(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """The columns of the fit as numbers, in its order; other columns are ignored."""
        return self.transform_and_flag(table)[0]

    def transform_and_flag(
        self, table: pd.DataFrame
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """As `transform`, and which rows hold a category that the fit has not seen: it warns."""
        table = as_table(table)
        missing = [name for name in self.names if name not in table.columns]
        if missing:
            raise TableError(
                f"the table must have the columns that the model was fitted on, {missing[0]!r} "
                f"is missing ({len(missing)} of {len(self.names)}); add it or fit again without."
            )
        blocks = [
            _numbers(table[name], self.times.get(name, NUMBER)).fillna(median).to_numpy()[:, None]
            for name, median in self.medians.items()
        ]
        unseen = np.zeros(len(table), dtype=bool)
        for name, known in self.categories.items():
            texts = to_texts(table[name])
            places = _places(texts, known)
            blocks.append(np.eye(len(known) + 1)[places, :-1])  # the last row is for −1, all zeros
            unseen |= places < 0
            if (places < 0).any():
                example = texts[places < 0].iloc[0]
                n_unseen = int((places < 0).sum())
                warn_caller(UnseenWarning(name, n_unseen, len(table), example, known))
        return np.concatenate(blocks, axis=1), unseen

    def to_dict(self) -> dict[str, Any]:
        """What a model file holds."""
        fields: dict[str, Any] = {"medians": self.medians, "categories": self.categories}
        return {**fields, "times": self.times} if self.times else fields

    @classmethod
    def from_dict(cls, fields: Any) -> "TableEncoder":
        """The encoder that `to_dict` wrote; every value is checked."""
        named = (
            isinstance(fields, dict)
            and set(fields) | {"times"} == {"medians", "categories", "times"}
            and isinstance(fields["medians"], dict)
            and isinstance(fields["categories"], dict)
        )
        check(named, "columns must have medians and categories by name", fields)
        medians, categories = fields["medians"], fields["categories"]
        check(not set(medians) & set(categories), "a column must have one type", fields)
        finite = all(type(v) in (int, float) and math.isfinite(v) for v in medians.values())
        check(finite, "medians must be finite numbers", medians)
        for values in categories.values():
            check(are_texts(values) and len(values) > 0, "categories must be texts", values)
            check(len(set(values)) == len(values), "categories must differ", values)
        times = fields.get("times", {})
        right = isinstance(times, dict) and all(
            name in medians and time in tuple(TIME_UNITS) for name, time in times.items()
        )
        check(right, "times must say date or duration of columns of numbers", times)
        return cls({k: float(v) for k, v in medians.items()}, categories, times=times)


def as_table(table: Any) -> pd.DataFrame:
    """The table with texts for column names, no two alike; it must have rows."""
    if not isinstance(table, pd.DataFrame):
        raise TableError(f"a table must be a pandas DataFrame, got {type(table).__name__}.")
    if table.columns.nlevels > 1:
        raise TableError(
            f"every column must have one name, got {table.columns.nlevels} levels of them; "
            "join them first."
        )
    if len(table) == 0:
        raise TableError("a table must have at least one row, got none.")
    named = table.rename(columns=str)
    check_names(named.columns)
    return named


def check_names(names: pd.Index) -> None:
    """Raise where two columns have the same name."""
    if names.has_duplicates:
        twice = names[names.duplicated()][0]
        raise TableError(f"column names must differ, got {twice!r} twice.")


def _why_ignored(column: pd.Series, kind: str) -> str | None:
    """Why a column that only numbers or identifies the rows is left out; None keeps it."""
    if column.name.startswith("Unnamed: "):
        return f"{column.name!r} looks like a saved index and is left out"
    if kind != WORD:
        return None
    refuse_decimal_commas(column)
    known = column.dropna()
    counts = to_texts(known).value_counts()
    if (counts == 1).sum() < max(MIN_UNIQUE_VALUES, len(known) // 2 + 1):
        return None
    numeric = is_text(known) and not pd.to_numeric(known, errors="coerce").isna().any()
    hint = "; its texts are numbers, convert them to keep it" if numeric else ""
    return f"{column.name!r} has {len(counts)} values in {len(known)} rows and is left out{hint}"


def _numbers(column: pd.Series, kind: str) -> pd.Series:
    return to_numbers(column) if kind == NUMBER else to_seconds(column, kind)


def _median(column: pd.Series, kind: str) -> float:
    known = _numbers(column, kind).dropna()
    if known.empty:
        raise TableError(
            f"a column must hold at least one number, {column.name!r} has none; drop it."
        )
    return float(known.median())


def _categories(column: pd.Series) -> list[str]:
    found = sorted(set(to_texts(column)))
    if len(found) > MAX_CATEGORIES:
        raise TableError(
            f"a column of text must be a category of at most {MAX_CATEGORIES} values, "
            f"{column.name!r} has {len(found)}; drop it, or turn it into numbers."
        )
    return found


def _places(texts: pd.Series, known: list[str]) -> NDArray[np.int64]:
    """The place of each text among the known ones, −1 if unseen; equal texts go before synonyms."""
    places = {canonical(text): place for place, text in reversed(list(enumerate(known)))}
    places |= {text: place for place, text in enumerate(known)}
    found = {text: places.get(text, places.get(canonical(text), -1)) for text in set(texts)}
    return np.array([found[text] for text in texts], dtype=np.int64)


def _notes(encoder: TableEncoder, table: pd.DataFrame) -> Iterator[str]:
    """What was done to the columns, in words."""
    gaps = {name: int(table[name].isna().sum()) for name in encoder.names}
    for name, time in encoder.times.items():
        yield f"{name!r} is taken as {TIME_UNITS[time]}"
    for name, median in encoder.medians.items():
        if gaps[name]:
            yield f"{gaps[name]} missing values of {name!r} are taken as its median, {median:.4g}"
    for name, values in encoder.categories.items():
        yield f"{name!r} is a category of {len(values)} values"
        if gaps[name]:
            yield f"{gaps[name]} missing values of {name!r} are the category {MISSING!r}"


@dataclass(eq=False)
class UnseenWarning(GPNWarning):
    """Rows hold values of a category that the labeled rows of the fit do not hold."""

    name: str
    rows: int
    total: int
    example: str
    known: list[str]

    def __str__(self) -> str:
        n_more = len(self.known) - MAX_SHOWN_CATEGORIES
        more = f" and {n_more} more" if n_more > 0 else ""
        known = ", ".join(f"{text!r:.100}" for text in self.known[:MAX_SHOWN_CATEGORIES])
        return (
            f"{self.name!r}: {self.rows:,} of {self.total:,} rows hold values that the fit has not "
            f"seen, such as {self.example!r:.100}; it knows {known}{more}. They count as none of "
            "these; correct them, or fit again with labeled rows that hold them."
        )


def merge_unseen(found: list[UnseenWarning], n_rows: int) -> list[UnseenWarning]:
    """One warning per column for all chunks of a table that has `n_rows`."""
    by_name: dict[str, list[UnseenWarning]] = {}
    for warning in found:
        by_name.setdefault(warning.name, []).append(warning)
    return [
        UnseenWarning(name, sum(w.rows for w in each), n_rows, each[0].example, each[0].known)
        for name, each in by_name.items()
    ]
