"""A table's columns as numbers.

A missing number becomes its column's median, dates and times become seconds, and a category becomes
one column of 0 and 1 for each of its values. Columns that say nothing, or that only name the rows,
are left out. What was learnt is plain JSON.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_integer_dtype

from gpn.columns.column_types import (
    CLOCK,
    DATE,
    MAX_CATEGORIES,
    MIN_UNIQUE_VALUES,
    MISSING,
    NUMBER,
    OTHER,
    TIME_UNITS,
    WORD,
    ColumnFormat,
    TableError,
    canonical,
    close_name,
    column_format,
    did_you_mean,
    is_text,
    known_texts,
    plural,
    refuse_decimal_commas,
    to_numbers,
    to_seconds,
    to_texts,
)
from gpn.columns.dates import CLOCKS, describe_layout, find_date_layout, parse_dates
from gpn.columns.frames import ColumnsWarning
from gpn.columns.number_texts import MAX_STRAY_SHARE, is_missing_text, with_unit
from gpn.core.warnings import GPNWarning, warn_caller
from gpn.saving.validation import are_texts, check

MAX_SHOWN_CATEGORIES = 5
MAX_SHOWN_MISSING, MAX_SHOWN_TEXTS = 4, 3
MAX_FREQUENT = 99  # values with a column each, where a category has more than 100
ID_NAME = re.compile(
    r"(.*[_\s.-])?(id|ids|uid|uuid|guid|index|idx|rownames?|row|rowid|rownum|row_number|serial)",
    re.IGNORECASE,
)
ID_ENDING = re.compile(r".*[a-z](Id|ID)")
TIME_NAME = re.compile(
    r".*(year|month|week|day|hour|minute|second|time|date|period|quarter|step|age).*|t",
    re.IGNORECASE,
)
FIELDS = {
    *("medians", "categories", "times", "units", "layouts", "tolerant", "complete"),
    *("constants", "decimal"),
}


@dataclass(frozen=True)
class TableEncoder:
    """The columns that a model reads: medians of numeric ones, categories of the others.

    times: which numeric ones are seconds of a date, a duration or a time of day. units, layouts:
    how numbers and dates are written; "" is the unit of numbers that must be read as texts.
    tolerant: columns where other cells count as missing. complete: columns of numbers without a
    missing cell in the fit; new rows that have one give a warning.
    constants: columns that are left out as all rows have one value; a row with another one is
    unseen. decimal: the decimal mark. notes: what was done to the columns, in words.
    """

    medians: dict[str, float]
    categories: dict[str, list[str]]
    notes: list[str] = field(default_factory=list, compare=False)
    times: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    tolerant: list[str] = field(default_factory=list)
    complete: list[str] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    decimal: str = "."

    @classmethod
    def fit(
        cls,
        table: pd.DataFrame,
        target: str | None = None,
        *,
        drop: Collection[str] = (),
        keep: Collection[str] = (),
        dates: Mapping[str, str] | None = None,
        decimal: str = ".",
    ) -> "TableEncoder":
        """Learn the columns of a table, all but the target and those to `drop`.

        keep: columns that are read although they seem to say nothing. dates: the layouts of dates,
        in the words of `strptime`; "" finds it from the cells.
        """
        table = as_table(table)
        dates = {str(name): layout for name, layout in (dates or {}).items()}
        _check_known(table, (*drop, *keep, *dates))
        table = table.drop(columns=[str(target), *map(str, drop)], errors="ignore")
        formats = {
            name: _date_format(table[name], dates[name])
            if name in dates
            else column_format(table[name], decimal)
            for name in table.columns
        }
        left_out = {
            name: reason
            for name in table.columns
            if name not in keep and (reason := _why_ignored(table[name], formats[name]))
        }
        if len(left_out) == len(formats):
            left_out = {n: r for n, r in left_out.items() if not r.startswith(_numbering(n))}
        read = [name for name in formats if name not in left_out]
        if not read:
            besides = "" if target is None else f" besides {target!r}"
            why = "".join(f"; {reason}" for reason in left_out.values())
            raise TableError(f"a table must have a column to read{besides}, got none{why}.")
        encoder = cls._of(table[read], {name: formats[name] for name in read}, decimal)
        encoder.constants.update(_constants(table[list(left_out)]))
        encoder.notes.extend([*_notes(encoder, table, formats), *left_out.values()])
        return encoder

    @classmethod
    def _of(
        cls, table: pd.DataFrame, formats: dict[str, ColumnFormat], decimal: str
    ) -> "TableEncoder":
        """The encoder of columns that are all read."""
        numeric = {name: each for name, each in formats.items() if each.kind != WORD}
        numbers = {n: _known_numbers(table[n], each, decimal) for n, each in numeric.items()}
        return cls(
            medians={
                n: float(known.median()) if len(known) else 0.0 for n, known in numbers.items()
            },
            categories={n: _categories(table[n]) for n in formats if n not in numeric},
            times={n: each.kind for n, each in numeric.items() if each.kind in TIME_UNITS},
            units={
                n: each.unit
                for n, each in numeric.items()
                if each.unit or (decimal == "," and _is_written_number(table[n], each))
            },
            layouts={n: each.layout for n, each in numeric.items() if each.layout},
            tolerant=[n for n, each in numeric.items() if each.n_stray],
            complete=[n for n, known in numbers.items() if len(known) == len(table)],
            decimal=decimal,
        )

    def tolerating(self, table: pd.DataFrame) -> "TableEncoder":
        """The encoder that takes the few cells of unlabeled rows that say nothing for missing."""
        table, tolerant, notes = as_table(table), list(self.tolerant), list(self.notes)
        for name in self.medians:
            if name in tolerant or name not in table.columns:
                continue
            stray = self._stray_cells(table[name])
            if 0 < len(stray) <= MAX_STRAY_SHARE * len(table):
                tolerant.append(name)
                form = ColumnFormat(self.times.get(name, NUMBER), n_stray=len(stray))
                notes.append(f"of the unlabeled rows, {_stray_cells(name, form, stray.iloc[0])}")
        return replace(self, tolerant=tolerant, notes=notes)

    def _stray_cells(self, column: pd.Series) -> pd.Series:
        """The cells of a column of numbers that are neither that nor missing."""
        read = self._numbers(column, tolerant=True)
        silent = column.isna() | column.map(_is_silent).astype(bool)
        return column[read.isna() & ~silent]

    @property
    def names(self) -> list[str]:
        """The columns that the model reads, in the order of its inputs."""
        return [*self.medians, *self.categories]

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return len(self.medians) + sum(map(len, self.categories.values()))

    @property
    def texts(self) -> list[str]:
        """The columns of a file to read as texts."""
        return [*self.categories, *self.layouts, *self.units, *self.constants]

    def places(self) -> dict[str, slice]:
        """Which inputs each column becomes."""
        widths = {
            **dict.fromkeys(self.medians, 1),
            **{n: len(v) for n, v in self.categories.items()},
        }
        found, start = {}, 0
        for name, width in widths.items():
            found[name] = slice(start, start + width)
            start += width
        return found

    @property
    def input_names(self) -> list[str]:
        """A name for each of the numbers that a row becomes, such as "colour=red"."""
        ones = (f"{name}={value}" for name, values in self.categories.items() for value in values)
        return [*self.medians, *ones]

    def shown(self, name: str, value: float) -> str:
        """A number of a column as it would stand in the table."""
        kind = self.times.get(name)
        if kind in (DATE, CLOCK):
            usual = "%Y-%m-%d" if kind == DATE else "%H:%M:%S"
            return pd.Timestamp(value, unit="s").strftime(self.layouts.get(name, usual))
        return with_unit(f"{value:.4g}", self.units.get(name, ""))

    def is_constant(self, name: str, texts: pd.Series) -> NDArray[np.bool_]:
        """Which texts say the one value of a column that is left out: "1.0" says "1"."""
        return category_places(texts, [self.constants[name]]) >= 0

    def unseen_rows(self, table: pd.DataFrame) -> NDArray[np.bool_]:
        """Which rows hold a value of a category that the fit has not seen; it does not warn."""
        unseen = np.zeros(len(table), dtype=bool)
        for rows in self._new_values(table).values():
            unseen |= rows
        return unseen

    def columns_with_new_values(self, table: pd.DataFrame) -> list[str]:
        """The columns where some row has a value that the fit has not seen, most rows first."""
        counts = {name: int(rows.sum()) for name, rows in self._new_values(table).items()}
        return sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])

    def _new_values(self, table: pd.DataFrame) -> dict[str, NDArray[np.bool_]]:
        """For each category and constant, which rows have a value that the fit has not seen."""
        table = as_table(table)
        known = {**self.categories, **{name: [one] for name, one in self.constants.items()}}
        return {
            name: category_places(to_texts(table[name]), values) < 0
            for name, values in known.items()
            if name in table.columns
        }

    def transform(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """The columns of the fit as numbers, in its order; other columns are ignored."""
        return self.transform_and_flag(table)[0]

    def transform_and_flag(
        self, table: pd.DataFrame
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """As `transform`, and which rows hold a category that the fit has not seen: it warns."""
        table = as_table(table)
        missing = [name for name in self.names if name not in table.columns]
        if missing:
            raise _columns_are_missing(missing, table.columns)
        numbers = {name: self._numbers(table[name]) for name in self.medians}
        for name in self.complete:
            if numbers[name].isna().any():
                warn_caller(
                    f"{name!r} has missing cells, and no labeled row of the fit had one: they are "
                    f"taken as its median, {self._shown_median(name)}.",
                    ColumnsWarning,
                )
        blocks = [
            numbers[name].fillna(median).to_numpy()[:, None]
            for name, median in self.medians.items()
        ]
        unseen = np.zeros(len(table), dtype=bool)
        for name, known in self.categories.items():
            texts = to_texts(table[name])
            found = category_places(texts, known)
            blocks.append(np.eye(len(known) + 1)[found, :-1])  # the last row is for −1, all zeros
            unseen |= _warn_unseen(name, texts, found < 0, known)
        for name, value in self.constants.items():
            if name in table.columns:
                texts = to_texts(table[name])
                unseen |= _warn_unseen(name, texts, category_places(texts, [value]) < 0, [value])
        return np.concatenate(blocks, axis=1), unseen

    def _shown_median(self, name: str) -> str:
        median, kind = self.medians[name], self.times.get(name)
        if kind == DATE:
            return f"{pd.Timestamp(median, unit='s'):%Y-%m-%d}"
        if kind == CLOCK:
            return f"{pd.Timestamp(median, unit='s'):%H:%M:%S}"
        return f"{median:.4g}{' s' if kind else ''}"

    def _numbers(self, column: pd.Series, *, tolerant: bool = False) -> pd.Series:
        name = str(column.name)
        tolerant = tolerant or name in self.tolerant
        if name in self.times:
            layout = self.layouts.get(name, "")
            return to_seconds(column, self.times[name], layout, strict=not tolerant)
        return to_numbers(column, self.units.get(name, ""), self.decimal, tolerant=tolerant)

    def to_dict(self) -> dict[str, Any]:
        """What a model file holds; what is empty is left out."""
        fields: dict[str, Any] = {"medians": self.medians, "categories": self.categories}
        optional = {name: getattr(self, name) for name in sorted(FIELDS - set(fields))}
        if self.decimal == ".":
            optional.pop("decimal")
        return {**fields, **{name: value for name, value in optional.items() if value}}

    @classmethod
    def from_dict(cls, fields: Any) -> "TableEncoder":
        """The encoder that `to_dict` wrote; every value is checked."""
        named = (
            isinstance(fields, dict)
            and {"medians", "categories"} <= set(fields) <= FIELDS
            and isinstance(fields["medians"], dict)
            and isinstance(fields["categories"], dict)
        )
        check(named, "columns must have medians and categories by name", fields)
        medians, categories = fields["medians"], fields["categories"]
        check(not set(medians) & set(categories), "a column must have one type", fields)
        finite = all(type(v) in (int, float) and math.isfinite(v) for v in medians.values())
        check(finite, "medians must be finite numbers", medians)
        for values in categories.values():
            check(are_texts(values) and len(values) > 0, "categories must be texts", values)
            check(len(set(values)) == len(values), "categories must differ", values)
        times = fields.get("times", {})
        right = isinstance(times, dict) and all(
            name in medians and time in tuple(TIME_UNITS) for name, time in times.items()
        )
        check(right, "times must say date or duration of columns of numbers", times)
        more = {name: fields[name] for name in fields if name not in ("medians", "categories")}
        _check_formats(more, medians)
        return cls({k: float(v) for k, v in medians.items()}, categories, **more)


def _check_formats(fields: dict[str, Any], medians: dict[str, float]) -> None:
    """Raise unless units, layouts, constants and the decimal mark of a file are texts."""
    for name in ("units", "layouts", "constants"):
        values = fields.get(name, {})
        right = isinstance(values, dict) and are_texts(list(values.values()))
        check(right, f"{name} must be texts by column", values)
        known = name == "constants" or set(values) <= set(medians)
        check(known, f"{name} must be of columns of numbers", values)
    for name in ("tolerant", "complete"):
        listed = fields.get(name, [])
        right = are_texts(listed) and set(listed) <= set(medians)
        check(right, f"{name} must list columns of numbers", listed)
    check(fields.get("decimal", ".") in (".", ","), "a decimal mark must be . or ,", fields)


def as_table(table: Any) -> pd.DataFrame:
    """The table with texts for column names, no two alike; it must have rows."""
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
    check_names(named.columns)
    return named


def check_names(names: pd.Index) -> None:
    """Raise where two columns have the same name."""
    if names.has_duplicates:
        twice = names[names.duplicated()][0]
        raise TableError(f"column names must differ, got {twice!r} twice.")


def _columns_are_missing(missing: list[str], present: pd.Index) -> TableError:
    named = ", ".join(map(repr, missing[:MAX_SHOWN_MISSING]))
    more = len(missing) - MAX_SHOWN_MISSING
    named += f" and {more} more" if more > 0 else ""
    close = close_name(missing[0], present)
    hint = "" if close is None else f" (there is {close!r})"
    are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
    return TableError(
        f"the table must have all columns that the model reads, {named} {are} missing{hint}; "
        f"add {them}, or fit again without {them}."
    )


def _check_known(table: pd.DataFrame, names: Collection[str]) -> None:
    """Raise where a column that an option names is not in the table."""
    unknown = [name for name in map(str, names) if name not in table.columns]
    if unknown:
        raise TableError(
            f"what is to be dropped, kept or read as dates must be a column, got {unknown[0]!r}; "
            f"there are {', '.join(table.columns[:8])}, …{did_you_mean(unknown[0], table.columns)}"
        )


def _date_format(column: pd.Series, layout: str) -> ColumnFormat:
    """The format of a column that the user says holds dates."""
    texts = known_texts(column)
    if texts is None or len(texts) == 0:
        return ColumnFormat(DATE)
    if not layout:
        found = find_date_layout(texts)
        if found is None:
            raise TableError(
                f"column {column.name!r} must hold dates, got {texts.iloc[0]!r}; say how they are "
                f"written, such as --date '{column.name}=%d/%m/%Y'."
            )
        return column_format(texts.rename(column.name))
    bad = parse_dates(texts, layout).isna()
    if bad.all():
        raise TableError(
            f"the dates of {column.name!r} must be written as {layout}, got {texts.iloc[0]!r}."
        )
    kind = CLOCK if layout in CLOCKS else DATE
    return ColumnFormat(kind, layout=layout, n_stray=int(bad.sum()))


def _why_ignored(column: pd.Series, form: ColumnFormat) -> str | None:
    """Why a column that says nothing, or only names the rows, is left out; None keeps it."""
    name, known = f"{column.name!r}", column.dropna()
    if str(column.name).startswith("Unnamed: "):
        return f"{name} looks like a saved index and is left out"
    if known.empty:
        return f"{name} is empty and is left out"
    texts = to_texts(known)
    if len(column) >= MIN_UNIQUE_VALUES and len(known) == len(column) and texts.nunique() == 1:
        return f"{name} is {texts.iloc[0]!r:.40} in every row and is left out"
    if form.kind == NUMBER and _numbers_rows(column):
        return f"{_numbering(column.name)}, an integer that no two rows share, and is left out"
    if form.kind != WORD:
        return None
    refuse_decimal_commas(column)
    counts = texts.value_counts()
    if (counts == 1).sum() < max(MIN_UNIQUE_VALUES, len(known) // 2 + 1):
        return None
    return f"{name} has {len(counts)} values in {len(known)} rows and is left out"


def _numbering(name: Any) -> str:
    return f"{name!r} numbers the rows"


def _numbers_rows(column: pd.Series) -> bool:
    """Whether integers are unique, and are named like an id or are 0, 1, 2, … or 1, 2, 3, ….

    A column that is named like a time, such as a year, is no id.
    """
    if not is_integer_dtype(column) or column.isna().any() or len(column) < MIN_UNIQUE_VALUES:
        return False
    if not column.is_unique:
        return False
    name = str(column.name)
    if ID_NAME.fullmatch(name) or ID_ENDING.fullmatch(name):
        return True
    first, last = int(column.min()), int(column.max())
    consecutive = first in (0, 1) and last - first == len(column) - 1
    return consecutive and not TIME_NAME.fullmatch(name)


def _constants(table: pd.DataFrame) -> dict[str, str]:
    """The one value of each column that has no other."""
    texts = {name: to_texts(table[name]) for name in table.columns}
    full = {name: each for name, each in texts.items() if not table[name].isna().any()}
    return {name: each.iloc[0] for name, each in full.items() if each.nunique() == 1}


def _is_written_number(column: pd.Series, form: ColumnFormat) -> bool:
    """Whether numbers are held as texts, such as "1.200" with a decimal comma."""
    return form.kind == NUMBER and is_text(column.dropna())


def _known_numbers(column: pd.Series, form: ColumnFormat, decimal: str) -> pd.Series:
    """The cells that are not missing, as numbers."""
    tolerant = form.n_stray > 0
    if form.kind == NUMBER:
        numbers = to_numbers(column, form.unit, decimal, tolerant=tolerant)
    else:
        numbers = to_seconds(column, form.kind, form.layout, strict=not tolerant)
    return numbers.dropna()


def _categories(column: pd.Series) -> list[str]:
    return most_frequent(to_texts(column).value_counts().to_dict())


def most_frequent(counts: Mapping[str, int]) -> list[str]:
    """The values in order; of more than 100 the most frequent ones, and one for all others."""
    if len(counts) <= MAX_CATEGORIES:
        return sorted(counts)
    in_order = sorted(counts, key=lambda text: (-counts[text], text))
    frequent = [text for text in in_order if text != OTHER and counts[text] > 1][:MAX_FREQUENT]
    return [*sorted(frequent), OTHER]


def _warn_unseen(
    name: str, texts: pd.Series, is_unseen: NDArray[np.bool_], known: list[str]
) -> NDArray[np.bool_]:
    """Warn of rows with values that the fit has not seen; the result is `is_unseen`."""
    if is_unseen.any():
        example, n_unseen = texts[is_unseen].iloc[0], int(is_unseen.sum())
        warn_caller(UnseenWarning(name, n_unseen, len(texts), example, known))
    return is_unseen


def category_places(texts: pd.Series, known: list[str]) -> NDArray[np.int64]:
    """The place of each text among the known ones; equal texts go before synonyms.

    Others are "(other)" where that is known, else −1.
    """
    none = known.index(OTHER) if OTHER in known else -1
    places = {canonical(text): place for place, text in reversed(list(enumerate(known)))}
    places |= {text: place for place, text in enumerate(known)}
    found = {text: places.get(text, places.get(canonical(text), none)) for text in set(texts)}
    return np.array([found[text] for text in texts], dtype=np.int64)


def _notes(
    encoder: TableEncoder, table: pd.DataFrame, formats: dict[str, ColumnFormat]
) -> Iterator[str]:
    """What was done to the columns, in words: one note for each."""
    for name in encoder.medians:
        form = formats[name]
        if form.kind in TIME_UNITS:
            yield f"{name!r} holds {plural(form.kind)}{_layout_note(name, form)}"
        if form.unit:
            yield f"{name!r} holds numbers with the unit {form.unit!r}"
        mark = "," if encoder.decimal == "." else "."
        if form.kind == NUMBER and any(isinstance(c, str) and mark in c for c in table[name]):
            yield f"{mark!r} separates the thousands of {name!r}"
        gaps = int(table[name].isna().sum() + table[name].map(_is_silent).sum())
        if gaps:
            median, texts = encoder._shown_median(name), missing_texts(table[name])
            yield f"{_missing_values(gaps, name, texts)} taken as its median, {median}"
        if form.n_stray:
            example = _first_stray(table[name], form, encoder.decimal)
            yield _stray_cells(name, form, example)
    for name, values in encoder.categories.items():
        n_values = to_texts(table[name]).nunique()
        if values[-1] == OTHER and n_values > len(values):
            yield (
                f"{name!r} has {n_values:,} values: the {len(values) - 1} most frequent are "
                f"categories, all others are one"
            )
        else:
            yield f"{name!r} is a category of {len(values)} values"
        if gaps := int(table[name].isna().sum()):
            yield f"{_missing_values(gaps, name)} the category {MISSING!r}"


def _missing_values(count: int, name: str, texts: str = "") -> str:
    if count == 1:
        return f"1 missing value of {name!r}{texts} is"
    return f"{count:,} missing values of {name!r}{texts} are"


def missing_texts(column: pd.Series) -> str:
    """ " ('?', 'unknown')": the texts in the cells of a column that say that they are empty."""
    counts = column[column.map(_is_silent).astype(bool)].astype(str).value_counts()
    texts = [repr(text) for text in counts.index if text.strip()]
    shown = [*texts[:MAX_SHOWN_TEXTS], *(["…"] if len(texts) > MAX_SHOWN_TEXTS else [])]
    return f" ({', '.join(shown)})" if shown else ""


def _stray_cells(name: str, form: ColumnFormat, example: str) -> str:
    if form.n_stray == 1:
        return f"1 cell of {name!r} holds no {form.kind}, but {example!r:.40}: taken as missing"
    return (
        f"{form.n_stray:,} cells of {name!r} hold no {plural(form.kind)}, such as "
        f"{example!r:.40}: taken as missing"
    )


def _layout_note(name: str, form: ColumnFormat) -> str:
    if not form.layout:
        return ""
    read = f", read as {describe_layout(form.layout)}"
    if form.other is None:
        return read
    return (
        f"{read}; {describe_layout(form.other)} would fit as well: if that is right, use "
        f"--date '{name}={form.other}'"
    )


def _is_silent(cell: Any) -> bool:
    return isinstance(cell, str) and is_missing_text(cell)


def _first_stray(column: pd.Series, form: ColumnFormat, decimal: str) -> str:
    texts = known_texts(column)
    assert texts is not None
    if form.kind == NUMBER:
        read = to_numbers(texts, form.unit, decimal, tolerant=True)
    else:
        read = to_seconds(texts, form.kind, form.layout, strict=False)
    stray = texts[read.isna()]
    return str(stray.iloc[0]) if len(stray) else ""


@dataclass(eq=False)
class UnseenWarning(GPNWarning):
    """Rows hold values of a category that the labeled rows of the fit do not hold."""

    name: str
    rows: int
    total: int
    example: str
    known: list[str]

    def __str__(self) -> str:
        n_more = len(self.known) - MAX_SHOWN_CATEGORIES
        more = f" and {n_more} more" if n_more > 0 else ""
        known = ", ".join(f"{text!r:.100}" for text in self.known[:MAX_SHOWN_CATEGORIES])
        return (
            f"{self.name!r}: {self.rows:,} of {self.total:,} rows hold values that the fit has not "
            f"seen, such as {self.example!r:.100}; it knows {known}{more}. They count as none of "
            "these; correct them, or fit again with labeled rows that hold them."
        )


def merge_unseen(found: list[UnseenWarning], n_rows: int) -> list[UnseenWarning]:
    """One warning per column for all chunks of a table that has `n_rows`."""
    by_name: dict[str, list[UnseenWarning]] = {}
    for warning in found:
        by_name.setdefault(warning.name, []).append(warning)
    return [
        UnseenWarning(name, sum(w.rows for w in each), n_rows, each[0].example, each[0].known)
        for name, each in by_name.items()
    ]
