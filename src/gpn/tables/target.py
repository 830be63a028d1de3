"""The column that a model of a table predicts: numbers, or classes."""

import pandas as pd
from pandas.api.types import is_integer_dtype

from gpn.tables.column_types import (
    CODE_PATTERN,
    MAX_CATEGORIES,
    NUMBER,
    TIME_UNITS,
    TableError,
    column_type,
    is_numeric,
    is_text,
    matches,
    refuse_decimal_commas,
    stored_type,
)
from gpn.tables.encoder import as_table

MAX_INTEGER_CLASSES = 20
MAX_SHOWN_COLUMNS = 8


def target_column(table: pd.DataFrame, target: str) -> pd.Series:
    """The target's column, complete; numbers that are held as objects become numbers."""
    table, target = as_table(table), str(target)
    if target not in table.columns:
        names = ", ".join(table.columns[:MAX_SHOWN_COLUMNS])
        hint = "; are the columns separated by commas?" if len(table.columns) == 1 else ""
        raise TableError(f"the target must be a column, got {target!r}; there are {names}, …{hint}")
    y = table[target]
    if y.isna().any():
        raise TableError(
            f"the target {target!r} must be known in every row, it is missing in "
            f"{int(y.isna().sum())} of {len(y)}; move those rows to the unlabeled table."
        )
    kind = stored_type(y)
    _refuse_times(y, kind)
    return pd.to_numeric(y) if kind == NUMBER else y


def is_class(y: pd.Series) -> bool:
    """Whether the target holds classes: texts, booleans, or a few integers that repeat.

    Texts that are numbers count as these numbers, unless one is a code such as "01".
    """
    _refuse_times(y, column_type(y))
    if is_numeric(y):
        return _few_integers(y)
    refuse_decimal_commas(y)
    if not any(matches(y, CODE_PATTERN)):
        numbers = pd.to_numeric(y, errors="coerce")
        if is_text(y) and not numbers.isna().any():
            return _few_integers(numbers)
        _refuse_stray_texts(y, numbers.isna())
    if y.nunique() > MAX_CATEGORIES:
        raise TableError(
            f"a target of text must have at most {MAX_CATEGORIES} classes, {y.name!r} has "
            f"{y.nunique()}."
        )
    return True


def _few_integers(y: pd.Series) -> bool:
    return bool(is_integer_dtype(y) and y.nunique() <= min(MAX_INTEGER_CLASSES, len(y) // 3))


def _refuse_times(y: pd.Series, kind: str) -> None:
    """Raise where a target is a date or a duration: neither a class, nor a number with a unit."""
    if kind in TIME_UNITS:
        raise TableError(
            f"the target {y.name!r} must be numbers or classes, got {kind}s such as "
            f"{str(y.iloc[0])!r}; turn it into numbers first, such as days since the first."
        )


def _refuse_stray_texts(y: pd.Series, is_stray: pd.Series) -> None:
    """Raise where most of a target is numbers, and some cells are not."""
    n_stray = int(is_stray.sum())
    if 0 < n_stray < len(y) / 2:
        raise TableError(
            f"the target {y.name!r} must be numbers or classes, it is numbers but for "
            f"{y[is_stray].iloc[0]!r} and {n_stray - 1} other cells; correct or drop those rows."
        )
