"""The column that a model of a table predicts: numbers, or classes."""

from typing import TYPE_CHECKING, Any

from gpn.tables.column_types import (
    CODE,
    MAX_CATEGORIES,
    NUMBER,
    TIMES,
    TableError,
    any_match,
    is_numeric,
    is_text,
    kind_of,
    refuse_commas,
    typed_kind,
)
from gpn.tables.encoder import as_table

if TYPE_CHECKING:
    from pandas import DataFrame, Series


MAX_CLASSES = 20


def target_of(table: "DataFrame", target: str) -> "Series[Any]":
    """The target's column, complete; numbers that were held as objects are numbers."""
    import pandas as pd

    table, target = as_table(table), str(target)
    if target not in table.columns:
        near = ", ".join(map(str, list(table.columns)[:8]))
        hint = "; are the columns separated by commas?" if len(table.columns) == 1 else ""
        raise TableError(f"the target must be a column, got {target!r}; there are {near}, …{hint}")
    y = table[target]
    if y.isna().any():
        raise TableError(
            f"the target {target!r} must be known in every row, it is missing in "
            f"{int(y.isna().sum())} of {len(y)}; move those rows to the unlabeled table."
        )
    _refuse_times(y, typed_kind(y))
    return pd.to_numeric(y) if typed_kind(y) == NUMBER else y


def is_class(y: "Series[Any]") -> bool:
    """Texts, yes and no, and a few whole numbers that come again and again are classes.

    Texts that are numbers, all of them, are told by these; one such as "01" is a class.
    """
    import pandas as pd

    _refuse_times(y, kind_of(y))
    if is_numeric(y):
        return _few_whole_numbers(y)
    refuse_commas(y)
    if not any_match(y, CODE):
        numbers = pd.to_numeric(y, errors="coerce")
        if is_text(y) and not numbers.isna().any():
            return _few_whole_numbers(numbers)
        _refuse_spoilt_numbers(y, numbers.isna())
    if y.nunique() > MAX_CATEGORIES:
        raise TableError(
            f"a target of text must be of at most {MAX_CATEGORIES} classes, {y.name!r} has "
            f"{y.nunique()}."
        )
    return True


def _few_whole_numbers(y: "Series[Any]") -> bool:
    from pandas.api.types import is_integer_dtype

    return bool(is_integer_dtype(y) and y.nunique() <= min(MAX_CLASSES, len(y) // 3))


def _refuse_times(y: "Series[Any]", kind: str) -> None:
    """Raise where a target is a date or a duration: neither a class, nor a number of some unit."""
    if kind in TIMES:
        raise TableError(
            f"the target {y.name!r} must be numbers or classes, got {kind}s such as "
            f"{str(y.iloc[0])!r}; turn it into numbers first, such as days since the first."
        )


def _refuse_spoilt_numbers(y: "Series[Any]", bad: "Series[Any]") -> None:
    """Raise where a target is of numbers but for some cells."""
    if 0 < bad.sum() < len(y) / 2:
        raise TableError(
            f"the target {y.name!r} must be numbers or classes, it is numbers but for "
            f"{y[bad].iloc[0]!r} and {int(bad.sum()) - 1} other cells; correct or drop those rows."
        )
