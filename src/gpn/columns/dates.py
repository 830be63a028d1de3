"""How dates and times of day are written, found from the cells: one layout for a whole column."""

import re
from datetime import datetime
from typing import NamedTuple

import pandas as pd

from gpn.columns.number_texts import MAX_STRAY_SHARE

ISO = "ISO8601"
ISO_DATE = r"\d{4}-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?)?"
DAYS = (
    *("%Y/%m/%d", "%Y.%m.%d", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%d.%m.%Y"),
    *("%m.%d.%Y", "%m/%d/%y", "%d/%m/%y", "%m-%d-%y", "%d-%m-%y", "%d.%m.%y"),
    *("%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%d. %B %Y", "%d-%B-%Y"),
    *("%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y", "%Y-%b-%d", "%Y %b %d"),
    *("%a %b %d %Y", "%a, %d %b %Y", "%A, %B %d, %Y"),
)
MONTHS = ("%Y/%m", "%m/%Y", "%m-%Y", "%b %Y", "%B %Y", "%b-%Y", "%Y-%b", "%Y %b")
CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p")
DATE_LAYOUTS = (
    *(ISO, *DAYS, *MONTHS),
    *(f"{day}{gap}{clock}" for day in ("%Y-%m-%d", *DAYS) for gap in " T" for clock in CLOCKS),
    *(f"{clock} {day}" for day in DAYS for clock in CLOCKS),
)
TWO_DIGITS = r"\d\d?[-/]\d\d?[-/]\d\d\b.*|\d\d\.\d\d\.\d\d\b.*|[^.]*[a-zA-Z][^.]*"
SAMPLE_SIZE = 60
MAX_LENGTH = 45  # characters of a date
WORDS = {
    "%Y": "year",
    "%y": "year",
    "%m": "month",
    "%b": "month",
    "%B": "month",
    "%d": "day",
    "%I": "hour",
    "%H": "hour",
    "%M": "minute",
    "%S": "second",
}


class Layout(NamedTuple):
    """How cells are written, and another way to read them all, where there is one."""

    layout: str
    other: str | None = None


def parse_dates(texts: pd.Series, layout: str) -> pd.Series:
    """Times in UTC, NaT where a text is not written in the layout."""
    return pd.to_datetime(texts, errors="coerce", utc=True, format=layout)


def find_date_layout(texts: pd.Series) -> Layout | None:
    """The layout of most of the texts; None where no layout fits nine tenths of them."""
    return _find(texts, DATE_LAYOUTS)


def find_clock_layout(texts: pd.Series) -> Layout | None:
    """The same of times of day."""
    return _find(texts, CLOCKS)


def _find(texts: pd.Series, layouts: tuple[str, ...]) -> Layout | None:
    unique = texts.drop_duplicates().reset_index(drop=True)
    sample = unique.iloc[:: max(1, len(unique) // SAMPLE_SIZE)].tolist()
    plausible = [layout for layout in layouts if _fits_most(sample, layout)]
    parsed = {layout: parse_dates(unique, layout) for layout in plausible}
    missed = {layout: int(times.isna().sum()) for layout, times in parsed.items()}
    good = [name for name in plausible if missed[name] <= MAX_STRAY_SHARE * len(unique)]
    if not good:
        return None
    fewest = min(missed[name] for name in good)
    best = [name for name in good if missed[name] == fewest]
    swapped = next((name for name in best[1:] if name == _day_and_month_swapped(best[0])), None)
    if swapped is None:
        return Layout(best[0])
    first, second = _usual_order(best[0], swapped)
    if parsed[second].is_monotonic_increasing and not parsed[first].is_monotonic_increasing:
        return Layout(second, first)
    return Layout(first, second)


def _fits_most(texts: list[str], layout: str) -> bool:
    left = MAX_STRAY_SHARE * len(texts)
    for text in texts:
        left -= not is_written(text, layout)
        if left < 0:
            return False
    return True


def is_written(text: str, layout: str) -> bool:
    """Whether a text is a date of the layout."""
    if len(text) > MAX_LENGTH or not any(sign.isdigit() for sign in text):
        return False
    if layout == ISO:
        return bool(re.fullmatch(ISO_DATE, text))
    if "%y" in layout and not re.fullmatch(TWO_DIGITS, text):
        return False  # "3.10.2" is a version
    try:
        datetime.strptime(text, layout)
    except ValueError:
        return False
    return True


def _day_and_month_swapped(layout: str) -> str:
    return layout.replace("%m", "%_").replace("%d", "%m").replace("%_", "%d")


def _usual_order(first: str, second: str) -> tuple[str, str]:
    """Month before day between slashes, day before month otherwise."""
    month_first, day_first = sorted((first, second), key=lambda layout: layout.find("%m"))
    return (month_first, day_first) if "/" in first else (day_first, month_first)


def describe_layout(layout: str) -> str:
    """A layout in words: "month/day/year"."""
    return re.sub(r"%[a-zA-Z]", lambda found: WORDS.get(found[0], ""), layout).strip(" ,")
