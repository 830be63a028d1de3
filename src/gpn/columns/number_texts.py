"""Numbers as people write them: "$1,234.50", "12 %", "70 kg", and "?" where there is none."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

MISSING_TEXTS = frozenset(
    (
        *("", "?", "??", "-", "--", "–", "—", ".", "na", "n/a", "n.a.", "#n/a", "nan", "none"),
        *("null", "nil", "unknown", "missing", "not available", "not applicable", "(missing)"),
    )
)
CURRENCY = "$€£¥"
MAX_STRAY_SHARE = 0.1  # of the cells of a column, that are neither numbers nor missing


class WrittenNumber(NamedTuple):
    """A number and the unit beside it, "" where there is none."""

    value: float
    unit: str


def is_missing_text(text: str) -> bool:
    """Whether a text says that there is no value."""
    return text.strip().lower() in MISSING_TEXTS


def parse_number(text: str, decimal: str = ".") -> WrittenNumber | None:
    """The number that a text says; None where it says none.

    Thousands may be separated, in groups of three. A unit may stand behind, a currency before.
    """
    found = _PATTERNS[decimal].fullmatch(text.strip().replace("−", "-"))
    if found is None:
        return None
    thousands = "," if decimal == "." else "."
    digits = re.sub(rf"[{re.escape(thousands)}' \u00a0\u202f]", "", found["digits"])
    unit = (found["before"] or "") + (found["unit"] or "")
    return WrittenNumber(float(found["sign"] + digits.replace(decimal, ".")), unit)


def with_unit(number: str, unit: str) -> str:
    """A number as people write it: "$12", "12 kg"; a column without a unit has "12"."""
    if not unit:
        return number
    return f"{unit}{number}" if unit in CURRENCY else f"{number} {unit}"


def _pattern(decimal: str) -> re.Pattern[str]:
    point, comma = re.escape(decimal), re.escape("," if decimal == "." else ".")
    whole = rf"(?:\d{{1,3}}(?:{comma}\d{{3}})+|\d{{1,3}}(?:['\u00a0\u202f ]\d{{3}})+|\d*)"
    unit = r"%|°?[^\W\d_]{1,6}[²³]?(?:/[^\W\d_]{1,5}[²³]?)?|[" + CURRENCY + "]"
    return re.compile(
        rf"(?P<sign>[+-]?)(?P<before>[{CURRENCY}])?\s*"
        rf"(?P<digits>(?={point}?\d){whole}(?:{point}\d*)?(?:[eE][+-]?\d+)?)\s*(?P<unit>{unit})?"
    )


_PATTERNS = {mark: _pattern(mark) for mark in ".,"}


def common_unit(texts: Iterable[str], decimal: str = ".") -> tuple[str, int] | None:
    """The one unit of most texts, and how many texts are no such number; None if they are many."""
    written = [parse_number(text, decimal) for text in texts]
    units = Counter(number.unit for number in written if number is not None)
    named = units.copy()
    named.pop("", None)
    unit = named.most_common(1)[0][0] if named else ""
    stray = len(written) - units[""] - (units[unit] if unit else 0)
    return (unit, stray) if written and stray <= MAX_STRAY_SHARE * len(written) else None
