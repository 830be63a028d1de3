"""The column that a model of a table predicts: numbers, or classes."""

import pandas as pd
from pandas.api.types import is_integer_dtype

from gpn.columns.column_types import (
    CODE_PATTERN,
    MAX_CATEGORIES,
    MIN_UNIQUE_VALUES,
    NUMBER,
    TIME_UNITS,
    TableError,
    column_type,
    did_you_mean,
    is_numeric,
    is_text,
    matches,
    refuse_decimal_commas,
    stored_type,
    to_numbers,
)
from gpn.columns.encoder import as_table
from gpn.columns.number_texts import CURRENCY, common_unit, is_missing_text, parse_number

MAX_INTEGER_CLASSES = 20
MAX_SHOWN_COLUMNS = 8


def target_column(table: pd.DataFrame, target: str) -> pd.Series:
    """The target's column, complete; numbers that are held as objects become numbers."""
    y = _column(table, target)
    if y.isna().any():
        raise TableError(
            f"the target {target!r} must be known in every row, it is missing in "
            f"{int(y.isna().sum())} of {len(y)}; move those rows to the unlabeled table."
        )
    kind = stored_type(y)
    _refuse_times(y, kind)
    return pd.to_numeric(y) if kind == NUMBER else y


def split_unlabeled(table: pd.DataFrame, target: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows with a label, and those without: the cell is empty, or "?" among numbers."""
    y = _column(table, target)
    blank = y.isna() | (y.astype(object).map(_is_blank).astype(bool))
    written = y[~blank].astype(object).map(str)
    silent = blank | y.astype(object).map(_says_missing).astype(bool)
    if silent.sum() > blank.sum() and common_unit(written[~silent[written.index]]):
        blank = silent
    if blank.all():
        raise TableError(
            f"the target {str(target)!r} must be known in some rows, it is missing in all "
            f"{len(y)}; name another column, or label some rows."
        )
    return table[~blank], table[blank]


def has_labels(table: pd.DataFrame, target: str) -> bool:
    """Whether the table has the target's column, and a label in some row of it."""
    if str(target) not in map(str, table.columns):
        return False
    y = _column(table, target)
    return not (y.isna() | y.astype(object).map(_is_blank).astype(bool)).all()


def _is_blank(cell: object) -> bool:
    return isinstance(cell, str) and not cell.strip()


def _says_missing(cell: object) -> bool:
    return isinstance(cell, str) and is_missing_text(cell)


def _column(table: pd.DataFrame, target: str) -> pd.Series:
    table, target = as_table(table), str(target)
    if target not in table.columns:
        names = ", ".join(table.columns[:MAX_SHOWN_COLUMNS])
        names += ", …" if len(table.columns) > MAX_SHOWN_COLUMNS else ""
        hint = did_you_mean(target, table.columns)
        if len(table.columns) == 1:
            hint = "; are the columns separated by commas?"
        raise TableError(f"the target must be a column, got {target!r}; there are {names}{hint}")
    return table[target]


def target_numbers(y: pd.Series, decimal: str = ".") -> pd.Series:
    """Targets as numbers; texts may have a unit and separated thousands."""
    found = common_unit(y.tolist(), decimal) if is_text(y) else None
    return to_numbers(y, found[0] if found else "", decimal)


def is_class(y: pd.Series, decimal: str = ".") -> bool:
    """Whether the target holds classes: texts, booleans, or a few integers that repeat.

    Texts that are numbers count as these numbers, unless one is a code such as "01".
    """
    _refuse_times(y, column_type(y))
    if is_numeric(y):
        return _few_integers(y)
    if decimal == "." and not _are_amounts(y, decimal):
        refuse_decimal_commas(y)
    if not any(matches(y, CODE_PATTERN)):
        if _are_amounts(y, decimal):
            return False
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


def _are_amounts(y: pd.Series, decimal: str) -> bool:
    """Whether texts are numbers with thousands, a currency, a per cent sign or a unit."""
    found = common_unit(y.tolist(), decimal) if is_text(y) else None
    if found is None or found[1] > 0:
        return False
    plain = pd.to_numeric(y, errors="coerce").notna().all()
    numbers = {parse_number(text, decimal) for text in y}
    sure = found[0] in (*CURRENCY, "%", "") or len(numbers) >= MIN_UNIQUE_VALUES
    return sure and not plain


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
        more = f" and {n_stray - 1} more" if n_stray > 1 else ""
        raise TableError(
            f"the target {y.name!r} must be numbers or classes, it is numbers but for "
            f"{y[is_stray].iloc[0]!r}{more}; correct or empty what is no number."
        )
