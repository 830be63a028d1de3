"""What the cells of a column hold, numbers, times or words, and each as a model reads it."""

import datetime
import re
from collections.abc import Callable
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pandas import Series


MISSING = "(missing)"

MIN_NAMES = 10  # with fewer values a column is a category, however few rows there are

NUMBER, DATE, DURATION, WORD = "number", "date", "duration", "word"

TIMES = {DATE: "seconds since 1970", DURATION: "seconds"}

CODE = r"0\d+"

MAX_CATEGORIES = 100

COMMA = r"[+-]?\d*,\d+|[+-]?\d+"

WRITTEN_TIMES = {
    DATE: r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?",
    DURATION: r"-?\d+ days?( \+?\d\d:\d\d:\d\d(\.\d+)?)?",
}


class TableError(ValueError):
    """A table that cannot be used: what must hold, what came, what to do."""


def kind_of(column: "Series[Any]") -> str:
    """Number, date, duration or word; numbers and times may be held as objects, times as texts."""
    typed = typed_kind(column)
    if typed != WORD or not is_text(known := column.dropna()):
        return typed
    for kind, look in WRITTEN_TIMES.items():
        if all_match(known, look) and not seconds_of(known, kind, strict=False).isna().any():
            return kind
    return WORD


def typed_kind(column: "Series[Any]") -> str:
    """The kind by the types of the cells, whatever the texts among them say."""
    from pandas.api.types import is_datetime64_any_dtype, is_object_dtype, is_timedelta64_dtype

    if is_numeric(column):
        return NUMBER
    if is_datetime64_any_dtype(column):
        return DATE
    if is_timedelta64_dtype(column):
        return DURATION
    return _kind_of_objects(column.dropna().tolist()) if is_object_dtype(column) else WORD


def _kind_of_objects(values: list[Any]) -> str:
    tests: dict[str, Callable[[Any], bool]] = {
        NUMBER: _is_number,
        DATE: lambda value: isinstance(value, datetime.date | np.datetime64),
        DURATION: lambda value: isinstance(value, datetime.timedelta | np.timedelta64),
    }
    return next((kind for kind, test in tests.items() if values and all(map(test, values))), WORD)


def _is_number(value: Any) -> bool:
    """Yes and no are none, nor is a duration, which numpy takes for a whole number."""
    return isinstance(value, Real | Decimal) and not isinstance(value, bool | np.timedelta64)


def is_numeric(column: "Series[Any]") -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column) and not is_bool_dtype(column))


def is_text(known: "Series[Any]") -> bool:
    """Whether all cells are texts, and there is one."""
    return len(known) > 0 and all(isinstance(value, str) for value in known.tolist())


def all_match(texts: "Series[Any]", look: str) -> bool:
    """Whether every text is of this look."""
    pattern = re.compile(look)
    return all(pattern.fullmatch(text) is not None for text in texts.tolist())


def any_match(column: "Series[Any]", look: str) -> bool:
    """Whether a cell is a text of this look."""
    pattern = re.compile(look)
    return any(isinstance(cell, str) and pattern.fullmatch(cell) for cell in column.tolist())


def are_codes(texts: set[str], rows: int) -> bool:
    """Some begin with 0, and all are of one width, or two of them would be the same number.

    As many as neither a category nor the names of rows can be stay numbers: zip codes of a country.
    """
    if not any(re.fullmatch(CODE, text) for text in texts):
        return False
    alike = len({len(text) for text in texts}) == 1 or len(set(map(float, texts))) < len(texts)
    return alike and (len(texts) <= MAX_CATEGORIES or len(texts) > rows / 2)


def refuse_commas(column: "Series[Any]") -> None:
    """Raise where texts are numbers but for the comma in them; "2,4" may be a pair of things."""
    known = column.dropna()
    if not is_text(known) or known.nunique() < MIN_NAMES or not all_match(known, COMMA):
        return
    if any_match(known, r"[+-].*,.*|\d\d+,.*|.*,\d\d+"):
        first = next(text for text in known.tolist() if "," in text)
        raise TableError(
            f"column {column.name!r} must hold numbers with a decimal point, got {first!r}; "
            "replace the commas, or read the table with pandas.read_csv(..., decimal=',')."
        )


def seconds_of(column: "Series[Any]", kind: str, *, strict: bool = True) -> "Series[Any]":
    """Dates as seconds since 1970 (UTC), durations as seconds, NaN where they are missing."""
    import pandas as pd

    times = column.astype(object).mask(column.map(_is_number).astype(bool))  # of an unknown unit
    if kind == DATE:
        dates = pd.to_datetime(times, errors="coerce", utc=True, format="ISO8601")
        first = pd.Timestamp(0, tz="UTC").as_unit(dates.dt.unit)  # ns end in 2262, dates do not
        numbers = (dates - first).dt.total_seconds()
    else:
        numbers = pd.to_timedelta(times, errors="coerce").dt.total_seconds()
    bad = numbers.isna() & column.notna()
    if strict and bad.any():
        raise _bad_cells(column, bad, f"{kind}s, as in the fit")
    return numbers.astype("float64")


def numbers_of(column: "Series[Any]") -> "Series[Any]":
    """The column as numbers, NaN where they are missing."""
    import pandas as pd

    if column.dtype.kind in "cMm":
        raise TableError(f"column {column.name!r} must hold real numbers, got {column.dtype}.")
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    bad = numbers.isna() & column.notna() | np.isinf(numbers)
    if bad.any():
        raise _bad_cells(column, bad, "finite numbers")
    return numbers


def _bad_cells(column: "Series[Any]", bad: Any, what: str) -> TableError:
    first = column[bad].tolist()[0]
    return TableError(
        f"column {column.name!r} must hold {what}, got {first!r:.100} in row "
        f"{int(np.flatnonzero(bad)[0])} ({int(bad.sum())} such rows); correct or empty it."
    )


def texts_in(column: "Series[Any]") -> "Series[Any]":
    """The cells as texts: 1 and 1.0 are "1", and what is missing is a word of its own."""
    texts = column.astype(object).where(column.notna(), MISSING)
    return texts.map(_text).astype(object)


def _text(value: Any) -> str:
    whole = _is_number(value) and abs(value) < float("inf") and value == int(value)
    return str(int(value)) if whole else str(value)


def meaning(text: str) -> str:
    """The same for texts that mean the same: "True" and "1", "1.0" and "1"; "01" is not 1."""
    if text.lower() in ("true", "false"):
        return "1" if text.lower() == "true" else "0"
    return text.split(".")[0] if re.fullmatch(r"-?(0|[1-9]\d*)\.0+", text) else text
