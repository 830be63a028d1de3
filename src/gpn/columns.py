"""Columns of a table as numbers: scikit-learn's own imputer and encoder, kept as plain facts.

Numbers that are missing become their column's median, categories become one column of 0 and 1
each. What was learnt is a dict that JSON can hold, and everything is made again from it.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pandas import DataFrame, Series
    from sklearn.compose import ColumnTransformer

MOST_CATEGORIES = 100
MISSING = "(missing)"


class TableError(ValueError):
    """A table that cannot be used: what must hold, what came, what to do."""


@dataclass(frozen=True)
class Columns:
    """The columns that a model reads: medians of numeric ones, categories of the others."""

    medians: dict[str, float]
    categories: dict[str, list[str]]
    notes: list[str] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, table: "DataFrame", target: str) -> "Columns":
        """What there is to learn from a table's columns but for the target."""
        table = as_table(table)
        index = [name for name in table.columns if name.startswith("Unnamed: ")]
        names = [name for name in table.columns if name not in (target, *index)]
        if not names:
            raise TableError(f"a table must have columns beside {target!r}, got none.")
        numeric = [name for name in names if is_numeric(table[name])]
        medians = {name: _median(table[name]) for name in numeric}
        others = [name for name in names if name not in medians]
        categories = {name: _categories(table[name]) for name in others}
        gaps = {name: int(table[name].isna().sum()) for name in names}
        left_out = [f"{name!r} looks like a saved index and is left out" for name in index]
        return cls(medians, categories, [*_notes(medians, categories, gaps), *left_out])

    @property
    def names(self) -> list[str]:
        return [*self.medians, *self.categories]

    def encode(self, table: "DataFrame") -> NDArray[np.float64]:
        """The table's columns as numbers, in the order of the fit; other columns are ignored."""
        table = as_table(table)
        missing = [name for name in self.names if name not in table.columns]
        if missing:
            raise TableError(
                f"the table must have the columns that the model was fitted on, {missing[0]!r} "
                f"is missing ({len(missing)} of {len(self.names)}); add it or fit again without."
            )
        ready = [numbers_of(table[name]) for name in self.medians]
        ready += [_texts(table[name]) for name in self.categories]
        by_place = frame(dict(enumerate(ready)))
        return np.ascontiguousarray(self._transformer().transform(by_place), np.float64)

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
        return {"medians": self.medians, "categories": self.categories}


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


def frame(columns: dict[Any, Any]) -> "DataFrame":
    """The columns as a table."""
    import pandas as pd

    return pd.DataFrame(columns)


def texts_of(table: "DataFrame") -> list[str]:
    """The columns that do not hold numbers: to be read as they stand."""
    return [name for name in table.columns if not is_numeric(table[name])]


def is_numeric(column: "Series[Any]") -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column) and not is_bool_dtype(column))


def _median(column: "Series[Any]") -> float:
    known = numbers_of(column).dropna()
    if known.empty:
        raise TableError(
            f"a column must hold at least one number, {column.name!r} has none; drop it."
        )
    return float(known.median())


def _categories(column: "Series[Any]") -> list[str]:
    found = sorted(set(_texts(column)))
    if len(found) > MOST_CATEGORIES:
        raise TableError(
            f"a column of text must be a category of at most {MOST_CATEGORIES} values, "
            f"{column.name!r} has {len(found)}; drop it, or turn it into numbers."
        )
    return found


def _texts(column: "Series[Any]") -> "Series[Any]":
    texts = column.astype(object).where(column.notna(), MISSING)
    return texts.map(str).astype(object)


def numbers_of(column: "Series[Any]") -> "Series[Any]":
    """The column as numbers, NaN where they are missing."""
    import pandas as pd
    from pandas.api.types import is_complex_dtype

    if is_complex_dtype(column):
        raise TableError(f"column {column.name!r} must hold real numbers, got {column.dtype}.")
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    bad = numbers.isna() & column.notna() | np.isinf(numbers)
    if bad.any():
        first = column[bad].tolist()[0]
        raise TableError(
            f"column {column.name!r} must hold finite numbers, got {first!r:.100} in row "
            f"{int(np.flatnonzero(bad)[0])} ({int(bad.sum())} such rows); correct or empty it."
        )
    return numbers


def _notes(
    medians: dict[str, float], categories: dict[str, list[str]], gaps: dict[str, int]
) -> list[str]:
    imputed = [
        f"{gaps[name]} missing values of {name!r} are taken as its median, {median:.4g}"
        for name, median in medians.items()
        if gaps[name]
    ]
    encoded = [
        f"{name!r} is a category of {len(values)} values" for name, values in categories.items()
    ]
    return imputed + encoded
