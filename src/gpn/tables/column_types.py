"""What a column holds, numbers, times or words, and its cells in the form that a model reads."""

import datetime
import re
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

MISSING = "(missing)"
MAX_CATEGORIES = 100
MIN_UNIQUE_VALUES = 10  # with fewer values a column is a category, however few rows there are
NUMBER, DATE, DURATION, WORD = "number", "date", "duration", "word"
TIME_UNITS = {DATE: "seconds since 1970", DURATION: "seconds"}
TIME_PATTERNS = {
    DATE: r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?",
    DURATION: r"-?\d+ days?( \+?\d\d:\d\d:\d\d(\.\d+)?)?",
}

CODE_PATTERN = r"0\d+"
DECIMAL_COMMA = r"[+-]?\d*,\d+|[+-]?\d+"
NOT_A_PAIR = r"[+-].*,.*|\d\d+,.*|.*,\d\d+"  # "2,4" may be two things


class TableError(ValueError):
    """A table that cannot be used: what must hold, what was found, what to do."""


def column_type(column: pd.Series) -> str:
    """Number, date, duration or word; dates and durations may be written as text."""
    by_dtype = stored_type(column)
    known = column.dropna()
    if by_dtype != WORD or not is_text(known):
        return by_dtype
    for time, pattern in TIME_PATTERNS.items():
        if all(matches(known, pattern)) and not to_seconds(known, time, strict=False).isna().any():
            return time
    return WORD


def stored_type(column: pd.Series) -> str:
    """The type by the dtype, or by the Python objects in the cells; texts are not parsed."""
    if is_numeric(column):
        return NUMBER
    if types.is_datetime64_any_dtype(column):
        return DATE
    if types.is_timedelta64_dtype(column):
        return DURATION
    values = column.dropna().tolist() if types.is_object_dtype(column) else []
    if values and all(map(_is_number, values)):
        return NUMBER
    if values and all(isinstance(value, datetime.date | np.datetime64) for value in values):
        return DATE
    if values and all(isinstance(value, datetime.timedelta | np.timedelta64) for value in values):
        return DURATION
    return WORD


def _is_number(value: Any) -> bool:
    """Booleans are not numbers here, nor are durations, which numpy takes for integers."""
    return isinstance(value, Real | Decimal) and not isinstance(value, bool | np.timedelta64)


def is_numeric(column: pd.Series) -> bool:
    """Whether the dtype is one of numbers; booleans are not."""
    return bool(types.is_numeric_dtype(column) and not types.is_bool_dtype(column))


def is_text(known: pd.Series) -> bool:
    """Whether there are cells, and all of them are texts."""
    return len(known) > 0 and all(isinstance(value, str) for value in known.tolist())


def matches(column: pd.Series, pattern: str) -> list[bool]:
    """Which cells are texts that match the pattern from end to end."""
    compiled = re.compile(pattern)
    return [isinstance(cell, str) and bool(compiled.fullmatch(cell)) for cell in column.tolist()]


def are_codes(texts: set[str], n_rows: int) -> bool:
    """Whether numbers are codes such as "01", which must stay texts.

    Some begin with 0, and all have one width, or two of them would be the same number. Codes that
    are too many for a category, and too few to identify rows, stay numbers: zip codes of a country.
    """
    if not any(re.fullmatch(CODE_PATTERN, text) for text in texts):
        return False
    alike = len({len(text) for text in texts}) == 1 or len(set(map(float, texts))) < len(texts)
    return alike and (len(texts) <= MAX_CATEGORIES or len(texts) > n_rows / 2)


def refuse_decimal_commas(column: pd.Series) -> None:
    """Raise where texts would be numbers if their commas were points."""
    known = column.dropna()
    if not is_text(known) or known.nunique() < MIN_UNIQUE_VALUES:
        return
    if all(matches(known, DECIMAL_COMMA)) and any(matches(known, NOT_A_PAIR)):
        first = next(text for text in known.tolist() if "," in text)
        raise TableError(
            f"column {column.name!r} must hold numbers with a decimal point, got {first!r}; "
            "replace the commas, or read the table with pandas.read_csv(..., decimal=',')."
        )


def to_numbers(column: pd.Series) -> pd.Series:
    """The cells as finite numbers, NaN where they are missing."""
    if column.dtype.kind in "cMm":
        raise TableError(f"column {column.name!r} must hold real numbers, got {column.dtype}.")
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    bad = numbers.isna() & column.notna() | np.isinf(numbers)
    if bad.any():
        raise _bad_cells(column, bad, "finite numbers")
    return numbers


def to_seconds(column: pd.Series, time: str, *, strict: bool = True) -> pd.Series:
    """Dates as seconds since 1970 (UTC), durations as seconds, NaN where they are missing.

    Numbers among them have no known unit: they are bad cells.
    """
    times = column.astype(object).mask(column.map(_is_number).astype(bool))
    if time == DATE:
        dates = pd.to_datetime(times, errors="coerce", utc=True, format="ISO8601")
        epoch = pd.Timestamp(0, tz="UTC").as_unit(dates.dt.unit)  # ns end in 2262, dates do not
        seconds = (dates - epoch).dt.total_seconds()
    else:
        seconds = pd.to_timedelta(times, errors="coerce").dt.total_seconds()
    bad = seconds.isna() & column.notna()
    if strict and bad.any():
        raise _bad_cells(column, bad, f"{time}s, as in the fit")
    return seconds.astype("float64")


def _bad_cells(column: pd.Series, bad: pd.Series, rule: str) -> TableError:
    first = column[bad].tolist()[0]
    return TableError(
        f"column {column.name!r} must hold {rule}, got {first!r:.100} in row "
        f"{int(np.flatnonzero(bad)[0])} ({int(bad.sum())} such rows); correct or empty it."
    )


def to_texts(column: pd.Series) -> pd.Series:
    """The cells as texts: 1 and 1.0 are "1", and a missing cell is the word "(missing)"."""
    texts = column.astype(object).where(column.notna(), MISSING)
    return texts.map(_as_text).astype(object)


def _as_text(value: Any) -> str:
    whole = _is_number(value) and abs(value) < float("inf") and value == int(value)
    return str(int(value)) if whole else str(value)


def canonical(text: str) -> str:
    """One text for all that mean the same: "True" and "1", "1.0" and "1"; "01" is not 1."""
    if text.lower() in ("true", "false"):
        return "1" if text.lower() == "true" else "0"
    return text.split(".")[0] if re.fullmatch(r"-?(0|[1-9]\d*)\.0+", text) else text
