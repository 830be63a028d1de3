"""Columns of a table as numbers: scikit-learn's own imputer and encoder, kept as plain facts.

Numbers that are missing become their column's median, dates and durations become seconds, and
categories become one column of 0 and 1 each. What was learnt is a dict that JSON can hold, and
everything is made again from it.

The warning of categories that a model has not seen.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpn.core.warnings import GPNWarning, warn_caller
from gpn.tables.column_types import (
    MAX_CATEGORIES,
    MIN_NAMES,
    MISSING,
    NUMBER,
    TIMES,
    WORD,
    TableError,
    is_numeric,
    is_text,
    kind_of,
    meaning,
    numbers_of,
    refuse_commas,
    seconds_of,
    texts_in,
)

if TYPE_CHECKING:
    from pandas import DataFrame, Series
    from sklearn.compose import ColumnTransformer


__all__ = ["MAX_CATEGORIES", "Columns", "TableError", "as_table", "check_names", "texts_of"]


@dataclass(frozen=True)
class Columns:
    """The columns that a model reads: medians of numeric ones, categories of the others.

    `times` says which of the numeric ones are seconds of a date or of a duration.
    """

    medians: dict[str, float]
    categories: dict[str, list[str]]
    notes: list[str] = field(default_factory=list, compare=False)
    times: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, table: "DataFrame", target: str) -> "Columns":
        """What there is to learn from a table's columns but for the target."""
        table = as_table(table)
        own, left_out = _worth_reading(table.drop(columns=str(target), errors="ignore"))
        if own.columns.empty:
            said = "".join(f"; {text}" for text in left_out)
            raise TableError(f"a table must have columns beside {target!r}, got none{said}.")
        kinds = {name: kind_of(own[name]) for name in own.columns}
        medians = {name: _median(own[name], kind) for name, kind in kinds.items() if kind != WORD}
        categories = {name: _categories(own[name]) for name in own.columns if name not in medians}
        times = {name: kind for name, kind in kinds.items() if kind in TIMES}
        learnt = cls(medians, categories, times=times)
        learnt.notes.extend([*_notes(learnt, own), *left_out])
        return learnt

    @property
    def names(self) -> list[str]:
        return [*self.medians, *self.categories]

    def encode(self, table: "DataFrame") -> NDArray[np.float64]:
        """The table's columns as numbers, in the order of the fit; other columns are ignored."""
        return self.encode_and_flag(table)[0]

    def encode_and_flag(self, table: "DataFrame") -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """As `encode`, and which rows hold a category that the fit has not seen, with a warning."""
        table = as_table(table)
        missing = [name for name in self.names if name not in table.columns]
        if missing:
            raise TableError(
                f"the table must have the columns that the model was fitted on, {missing[0]!r} "
                f"is missing ({len(missing)} of {len(self.names)}); add it or fit again without."
            )
        words = [_known_texts(table[name], known) for name, known in self.categories.items()]
        ready = [_numbers(table[name], self.times.get(name, NUMBER)) for name in self.medians]
        by_place = frame(dict(enumerate([*ready, *words])))
        x = np.ascontiguousarray(self._transformer().transform(by_place), np.float64)
        return x, self._unseen(words, len(x))

    def _unseen(self, words: "list[Series[Any]]", rows: int) -> NDArray[np.bool_]:
        flags = np.zeros(rows, dtype=bool)
        for texts, (name, known) in zip(words, self.categories.items(), strict=True):
            strange = ~texts.isin(known).to_numpy()
            if strange.any():
                example = texts[strange].iloc[0]
                said = UnseenWarning(name, int(strange.sum()), rows, example, known)
                warn_caller(said)
            flags |= strange
        return flags

    def _transformer(self) -> "ColumnTransformer":
        """Imputer and encoder, fitted to one row that holds what they are to know.

        Columns go by their places: numpy, which would compare names, drops a NUL at their end.
        """
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import SimpleImputer
        from sklearn.preprocessing import OneHotEncoder

        known = [np.array(values, dtype=object) for values in self.categories.values()]
        encoder = OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False)
        places = list(range(len(self.names)))
        steps = [
            ("numbers", SimpleImputer(strategy="median"), places[: len(self.medians)]),
            ("categories", encoder, places[len(self.medians) :]),
        ]
        first: list[Any] = [[value] for value in self.medians.values()]
        first += [values[:1] for values in self.categories.values()]
        by_place = frame(dict(enumerate(first)))
        return ColumnTransformer([step for step in steps if step[2]]).fit(by_place)

    def facts(self) -> dict[str, Any]:
        """For a model file."""
        known: dict[str, Any] = {"medians": self.medians, "categories": self.categories}
        return {**known, "times": self.times} if self.times else known


def as_table(table: Any) -> "DataFrame":
    """The table with texts for names, each once."""
    import pandas as pd

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
    check_names(named)
    return named


def check_names(table: "DataFrame") -> None:
    """That no two columns have the same name."""
    twice = table.columns[table.columns.duplicated()]
    if len(twice):
        raise TableError(f"every column must have a name of its own, got {twice[0]!r} twice.")


def frame(columns: dict[Any, Any], index: Any = None) -> "DataFrame":
    """The columns as a table, with the index of another where one is given."""
    import pandas as pd

    return pd.DataFrame(columns, index=index)


def texts_of(table: "DataFrame") -> list[str]:
    """The columns that do not hold numbers: to be read as they stand."""
    return [name for name in table.columns if not is_numeric(table[name])]


def _worth_reading(table: "DataFrame") -> tuple["DataFrame", list[str]]:
    """The table without columns that only number or name its rows, and what there is to say."""
    said: dict[str, str] = {}
    for name in table.columns:
        if name.startswith("Unnamed: "):
            said[name] = f"{name!r} looks like a saved index and is left out"
        elif _names_rows(table[name]):
            said[name] = _left_out(table[name])
    return table.drop(columns=list(said)), list(said.values())


def _names_rows(column: "Series[Any]") -> bool:
    """Whether most values occur once, as those of an identity do."""
    if kind_of(column) != WORD:
        return False
    refuse_commas(column)
    known = texts_in(column.dropna())
    once = int((known.value_counts() == 1).sum())
    return once >= max(MIN_NAMES, len(known) // 2 + 1)


def _left_out(column: "Series[Any]") -> str:
    import pandas as pd

    known = column.dropna()
    said = f"{column.name!r} has {texts_in(known).nunique()} values in {len(known)} rows"
    written = is_text(known) and not pd.to_numeric(known, errors="coerce").isna().any()
    hint = "; its texts are numbers, turn them into such to keep it" if written else ""
    return f"{said} and is left out{hint}"


def _numbers(column: "Series[Any]", kind: str) -> "Series[Any]":
    return numbers_of(column) if kind == NUMBER else seconds_of(column, kind)


def _median(column: "Series[Any]", kind: str) -> float:
    known = _numbers(column, kind).dropna()
    if known.empty:
        raise TableError(
            f"a column must hold at least one number, {column.name!r} has none; drop it."
        )
    return float(known.median())


def _categories(column: "Series[Any]") -> list[str]:
    found = sorted(set(texts_in(column)))
    if len(found) > MAX_CATEGORIES:
        raise TableError(
            f"a column of text must be a category of at most {MAX_CATEGORIES} values, "
            f"{column.name!r} has {len(found)}; drop it, or turn it into numbers."
        )
    return found


def _known_texts(column: "Series[Any]", known: list[str]) -> "Series[Any]":
    """The cells as the fit's own texts where they mean the same, else as they stand."""
    own = {meaning(text): text for text in reversed(known)} | {text: text for text in known}
    matched = texts_in(column).map(lambda text: own.get(text, own.get(meaning(text), text)))
    return matched.astype(object)


def _notes(columns: Columns, table: "DataFrame") -> list[str]:
    """What was done to the columns, in words."""
    gaps = {name: int(table[name].isna().sum()) for name in columns.names}
    said = [f"{name!r} is taken as {TIMES[kind]}" for name, kind in columns.times.items()]
    said += [
        f"{gaps[name]} missing values of {name!r} are taken as its median, {median:.4g}"
        for name, median in columns.medians.items()
        if gaps[name]
    ]
    for name, values in columns.categories.items():
        said.append(f"{name!r} is a category of {len(values)} values")
        if gaps[name]:
            said.append(f"{gaps[name]} missing values of {name!r} are the category {MISSING!r}")
    return said


MAX_SHOWN = 5


class UnseenWarning(GPNWarning):
    """Rows hold values of a category that the labeled rows of the fit do not hold."""

    def __init__(self, name: str, rows: int, total: int, example: str, known: list[str]) -> None:
        super().__init__(name, rows, total, example, known)
        self.name, self.rows, self.total = name, rows, total
        self.example, self.known = example, known

    def plus(self, other: "UnseenWarning") -> "UnseenWarning":
        """The warning of this piece of a table and another."""
        rows, total = self.rows + other.rows, self.total + other.total
        return UnseenWarning(self.name, rows, total, self.example, self.known)

    def of(self, total: int) -> "UnseenWarning":
        """The same rows of a table with `total`."""
        return UnseenWarning(self.name, self.rows, total, self.example, self.known)

    def __str__(self) -> str:
        more = f" and {len(self.known) - MAX_SHOWN} more" * (len(self.known) > MAX_SHOWN)
        known = ", ".join(f"{text!r:.100}" for text in self.known[:MAX_SHOWN])
        return (
            f"{self.name!r}: {self.rows:,} of {self.total:,} rows hold values that the fit has not "
            f"seen, such as {self.example!r:.100}; it knows {known}{more}. They count as none of "
            "these; correct them, or fit again with labeled rows that hold them."
        )
