"""What a column holds, numbers, times or words, and its cells in the form that a model reads."""

import datetime
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from gpn.columns.dates import (
    ISO,
    describe_layout,
    find_clock_layout,
    find_date_layout,
    is_written,
    parse_dates,
)
from gpn.columns.number_texts import (
    MAX_STRAY_SHARE,
    common_unit,
    is_missing_text,
    parse_number,
)

MISSING, OTHER = "(missing)", "(other)"
MAX_CATEGORIES = 100
MIN_UNIQUE_VALUES = 10  # with fewer values a column is a category, however few rows there are
NUMBER, DATE, DURATION, CLOCK, WORD = "number", "date", "duration", "time of day", "word"
TIME_UNITS = {
    DATE: "seconds since 1970",
    DURATION: "seconds",
    CLOCK: "seconds since midnight",
}
DURATION_PATTERN = r"-?\d+ days?( \+?\d\d:\d\d:\d\d(\.\d+)?)?"

CODE_PATTERN = r"0\d+"
DECIMAL_COMMA = r"[+-]?\d*,\d+|[+-]?\d+"
NOT_A_PAIR = r"[+-].*,.*|\d\d+,.*|.*,\d\d+"  # "2,4" may be two things


class TableError(ValueError):
    """A table that cannot be used: what must hold, what was found, what to do."""


def close_name(name: str, names: Iterable[str]) -> str | None:
    """The name that is most like this one, where one is like it at all."""
    by_lower = {each.lower(): each for each in names}
    found = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """ "; did you mean 'heat'?" where one of the names is like this one, else nothing."""
    close = close_name(name, names)
    return "" if close is None else f"; did you mean {close!r}?"


@dataclass(frozen=True)
class ColumnFormat:
    """What a column holds, and how its cells are written.

    unit: beside its numbers. layout: of its dates, in the words of `strptime`. other: a second
    layout that all dates have as well. n_stray: cells that are neither that nor missing; they count
    as missing.
    """

    kind: str
    unit: str = ""
    layout: str = ""
    other: str | None = None
    n_stray: int = 0


def column_format(column: pd.Series, decimal: str = ".") -> ColumnFormat:
    """Numbers, dates, durations, times of day or words; most may be written as text."""
    by_dtype = stored_type(column)
    texts = known_texts(column)
    if by_dtype != WORD or texts is None or len(texts) == 0:
        return ColumnFormat(by_dtype)
    if all(matches(texts, DURATION_PATTERN)):
        return ColumnFormat(DURATION)
    return _written_times(texts) or _written_numbers(texts, decimal) or ColumnFormat(WORD)


def column_type(column: pd.Series) -> str:
    """The `kind` of `column_format`."""
    return column_format(column).kind


def known_texts(column: pd.Series) -> pd.Series | None:
    """The cells that say something, as texts; None where some are neither texts nor numbers."""
    known = column.dropna()
    if types.is_bool_dtype(known) or isinstance(known.dtype, pd.CategoricalDtype):
        known = known.astype(object)
    if not all(isinstance(cell, str) or _is_number(cell) for cell in known.tolist()):
        return None
    texts = pd.Series([str(cell).strip() for cell in known.tolist()], known.index, dtype=object)
    return texts[np.array([not is_missing_text(text) for text in texts], dtype=bool)]


def _written_times(texts: pd.Series) -> ColumnFormat | None:
    for kind, find in ((DATE, find_date_layout), (CLOCK, find_clock_layout)):
        found = find(texts)
        if found is not None:
            stray = sum(not is_written(text, found.layout) for text in texts)
            layout = "" if found.layout == ISO else found.layout
            return ColumnFormat(kind, layout=layout, other=found.other, n_stray=stray)
    return None


def _written_numbers(texts: pd.Series, decimal: str) -> ColumnFormat | None:
    """Numbers with a unit or with stray cells, unless they are few enough for a category."""
    found = common_unit(texts, decimal)
    if found is None or are_codes(set(texts), len(texts)):
        return None
    unit, stray = found
    numbers = {parse_number(text, decimal) for text in set(texts)} - {None}
    if len(numbers) < MIN_UNIQUE_VALUES:
        return None
    return ColumnFormat(NUMBER, unit=unit, n_stray=stray)


def stored_type(column: pd.Series) -> str:
    """The type by the dtype, or by the Python objects in the cells; texts are not parsed."""
    if is_numeric(column):
        return NUMBER
    if types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
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
    if values and all(isinstance(value, datetime.time) for value in values):
        return CLOCK
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
    texts = {text for text in texts if re.fullmatch(r"\d+", text)}
    alike = len({len(text) for text in texts}) == 1 or len(set(map(float, texts))) < len(texts)
    return alike and (len(texts) <= MAX_CATEGORIES or len(texts) > n_rows / 2)


def refuse_decimal_commas(column: pd.Series) -> None:
    """Raise where texts would be numbers if their commas were points, but for a few cells."""
    known = known_texts(column) if is_text(column.dropna()) else None
    if known is None or known.nunique() < MIN_UNIQUE_VALUES:
        return
    written = [text for text in known if re.fullmatch(DECIMAL_COMMA, text)]
    if len(written) < (1 - MAX_STRAY_SHARE) * len(known):
        return
    if any("," in text and re.fullmatch(NOT_A_PAIR, text) for text in written):
        first = next(text for text in written if "," in text)
        raise TableError(
            f"column {column.name!r} must hold numbers with a decimal point, got {first!r}; "
            "use gpn fit --decimal , or read the table with pandas.read_csv(..., decimal=',')."
        )


def to_numbers(
    column: pd.Series, unit: str = "", decimal: str = ".", *, tolerant: bool = False
) -> pd.Series:
    """The cells as finite numbers, NaN where they are missing.

    A text may say a number with its thousands separated and its unit. `tolerant` takes cells that
    are no numbers for missing.
    """
    if column.dtype.kind in "cMm":
        raise TableError(f"column {column.name!r} must hold real numbers, got {column.dtype}.")
    if column.dtype.kind in "fiu" and np.isfinite(column.to_numpy()).all():
        return column.astype("float64")
    if is_numeric(column):
        numbers = column.astype("float64")
    else:
        cells = column.astype(object)
        values = {cell: _number(cell, unit, decimal) for cell in cells.dropna().unique()}
        numbers = cells.map(values).astype("float64")
    silent = column.isna() | column.map(_says_missing).astype(bool)
    bad = numbers.isna() & ~silent | np.isinf(numbers)
    if bad.any() and not tolerant:
        raise _bad_cells(column, bad, "finite numbers" + (f" of {unit}" if unit else ""))
    return numbers.mask(bad)


def _number(cell: Any, unit: str, decimal: str) -> float:
    """NaN where a cell says no number, or one of another unit."""
    if _is_number(cell):
        return float(cell)
    written = parse_number(cell, decimal) if isinstance(cell, str) else None
    if written is not None and written.unit in ("", unit):
        return written.value
    return float(pd.to_numeric(cell, errors="coerce")) if isinstance(cell, str) else np.nan


def _says_missing(cell: Any) -> bool:
    return isinstance(cell, str) and is_missing_text(cell)


def to_seconds(
    column: pd.Series,
    time: str,
    layout: str = "",
    *,
    strict: bool = True,
) -> pd.Series:
    """Dates as seconds since 1970 (UTC), durations and times of day as seconds, NaN if missing.

    Numbers among them have no known unit: they are bad cells. A text is written in `layout`, or as
    ISO 8601.
    """
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    silent = column.isna() | column.map(_says_missing).astype(bool)
    times = column.astype(object).mask(column.map(_is_number).astype(bool) | silent)
    if time == DURATION:
        seconds = pd.to_timedelta(times, errors="coerce").dt.total_seconds()
    elif time == CLOCK:
        seconds = times.map(_seconds_of_day(layout), na_action="ignore").astype("float64")
    else:
        dates = parse_dates(times, ISO)
        if layout:
            dates = parse_dates(times.where(dates.isna()), layout).fillna(dates)
        epoch = pd.Timestamp(0, tz="UTC").as_unit(dates.dt.unit)  # ns end in 2262, dates do not
        seconds = (dates - epoch).dt.total_seconds()
    bad = seconds.isna() & ~silent
    if strict and bad.any():
        written = f" ({describe_layout(layout)})" if layout else ""
        raise _bad_cells(column, bad, f"{plural(time)}{written}, as in the fit")
    return seconds.astype("float64")


def plural(kind: str) -> str:
    """Cells of a kind in words: "numbers", "dates", "times of day"."""
    return "times of day" if kind == CLOCK else f"{kind}s"


def _seconds_of_day(layout: str) -> Callable[[Any], float]:
    def seconds(cell: Any) -> float:
        if isinstance(cell, str) and is_written(cell.strip(), layout or "%H:%M:%S"):
            cell = datetime.datetime.strptime(cell.strip(), layout or "%H:%M:%S").time()
        if not isinstance(cell, datetime.time):
            return np.nan
        return cell.hour * 3600 + cell.minute * 60 + cell.second + cell.microsecond / 1e6

    return seconds


def _bad_cells(column: pd.Series, bad: pd.Series, rule: str) -> TableError:
    first, place, count = column[bad].tolist()[0], int(np.flatnonzero(bad)[0]), int(bad.sum())
    row = column.index[place] if isinstance(column.index, pd.RangeIndex) else place
    more = f" and {count - 1:,} other cells like it" if count > 1 else ""
    return TableError(
        f"column {column.name!r} must hold {rule}, got {first!r:.100} in row {row} (rows count "
        f"from 0){more}; correct or empty {'them' if more else 'it'}."
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
