"""Columns as they come: dates of any country, numbers with signs and gaps, ids and constants."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpn.columns.column_types import TableError
from gpn.columns.encoder import TableEncoder, UnseenWarning
from gpn.columns.frames import ColumnsWarning
from gpn.columns.number_texts import parse_number, with_unit
from gpn.tables.target import is_class

N = 90
DAYS = pd.date_range("2012-01-20", periods=N)
SECONDS = (DAYS - pd.Timestamp(0)).total_seconds().to_numpy()


def table(**more: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": np.linspace(0, 1, N), **more})


def learnt(**more: Any) -> TableEncoder:
    """The encoder after a round trip through JSON; its notes are kept."""
    fitted = TableEncoder.fit(table(**more))
    again = TableEncoder.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again == fitted
    again.notes.extend(fitted.notes)
    return again


def second(encoder: TableEncoder, **more: Any) -> Any:
    return encoder.transform(table(**more))[:, 1]


LAYOUTS = {
    "%Y/%m/%d": "year/month/day",
    "%m/%d/%Y": "month/day/year",
    "%d/%m/%Y": "day/month/year",
    "%d.%m.%Y": "day.month.year",
    "%d-%b-%Y": "day-month-year",
    "%B %d, %Y": "month day, year",
    "%b %d %Y": "month day year",
    "%m/%d/%y": "month/day/year",
    "%d.%m.%Y %H:%M": "day.month.year hour:minute",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_date_is_read_in_the_layout_that_fits_all_cells(layout: str) -> None:
    texts = DAYS.strftime(layout).to_series(index=range(N))
    encoder = learnt(day=texts)
    expected = f"'day' holds dates, read as {LAYOUTS[layout]}"
    assert encoder.notes == [expected]
    np.testing.assert_array_equal(second(encoder, day=texts), SECONDS)
    np.testing.assert_array_equal(second(encoder, day=DAYS), SECONDS)


def test_months_and_times_of_day_are_seconds() -> None:
    months = pd.date_range("2012-01", periods=N, freq="MS")
    encoder = learnt(month=months.strftime("%Y-%m").tolist())
    wanted = (months - pd.Timestamp(0)).total_seconds()
    np.testing.assert_array_equal(second(encoder, month=months.strftime("%Y-%m")), wanted)
    for layout in ("%H:%M", "%I:%M %p", "%H:%M:%S"):
        clock = [pd.Timestamp(60 * i, unit="s").strftime(layout) for i in range(N)]
        encoder = learnt(time=clock)
        assert encoder.times == {"time": "time of day"}
        np.testing.assert_array_equal(second(encoder, time=clock), 60.0 * np.arange(N))


def test_a_date_that_may_be_read_in_two_ways_is_said_and_can_be_overruled() -> None:
    texts = [f"{1 + i % 12:02}/{1 + (i * 5) % 12:02}/2012" for i in range(N)]
    encoder = learnt(day=texts)
    assert encoder.layouts == {"day": "%m/%d/%Y"}
    assert "day/month/year would fit as well" in encoder.notes[0]
    assert "--date 'day=%d/%m/%Y'" in encoder.notes[0]
    other = TableEncoder.fit(table(day=texts), dates={"day": "%d/%m/%Y"})
    assert texts[1] == "02/06/2012"
    assert second(other, day=texts)[1] == pd.Timestamp("2012-06-02").timestamp()
    in_order = [f"{day:02}/{month:02}/2012" for month in (1, 2, 3) for day in range(1, 13)]
    grown = TableEncoder.fit(pd.DataFrame({"day": in_order}))
    assert grown.layouts == {"day": "%d/%m/%Y"}, "days in the order of the file"


def test_versions_and_words_are_no_dates() -> None:
    assert learnt(v=["3.10.2", "3.9.11", "2.7.18"] * 30).categories["v"][0] == "2.7.18"
    assert learnt(v=["may", "march", "june"] * 30).categories["v"] == ["june", "march", "may"]


@pytest.mark.parametrize("gap", ["?", "unknown", "n/a", "-", "N.A.", " "])
def test_a_gap_among_numbers_is_a_missing_number(gap: str) -> None:
    cells = [gap if i in (3, 5) else f"{i}.25" for i in range(N)]
    encoder = learnt(b=cells)
    found = second(encoder, b=cells)
    median = np.median([i + 0.25 for i in range(N) if i not in (3, 5)])
    said = f" ({gap!r})" if gap.strip() else ""
    note = f"2 missing values of 'b'{said} are taken as its median, {median:.4g}"
    assert encoder.notes == [note]
    assert found[3] == found[5] == median
    assert found[4] == 4.25


@pytest.mark.parametrize(
    ("pattern", "unit"), [("${},250", "$"), ("{}.5%", "%"), ("{} kg", "kg"), ("{}€", "€")]
)
def test_a_unit_is_read_and_another_unit_is_refused(pattern: str, unit: str) -> None:
    cells = [pattern.format(i + 1) for i in range(N)]
    encoder = learnt(b=cells)
    thousands = ["',' separates the thousands of 'b'"] if unit == "$" else []
    assert encoder.notes == [f"'b' holds numbers with the unit {unit!r}", *thousands]
    factor, rest = {"$": (1000, 250), "%": (1, 0.5)}.get(unit, (1, 0))
    np.testing.assert_array_equal(second(encoder, b=cells), factor * np.arange(1, N + 1) + rest)
    with pytest.raises(TableError, match=r"'b' must hold finite numbers of .+, got '5 lb'"):
        encoder.transform(table(b="5 lb"))


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("467,629", ".", 467629.0),
        ("1,234,567.5", ".", 1234567.5),
        ("1.234.567,5", ",", 1234567.5),
        ("−3", ".", -3.0),
        ("-$1.5", ".", -1.5),
        ("1e-3", ".", 0.001),
        (".5", ".", 0.5),
        ("1 234", ".", 1234.0),
    ],
)
def test_numbers_as_people_write_them(text: str, decimal: str, value: float) -> None:
    found = parse_number(text, decimal)
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize(
    "text", ["", ".", "12,34", "1,2,3", "kg", "--5", "1.2.3", "5 kg kg", "E-90", "e5"]
)
def test_what_is_no_number(text: str) -> None:
    assert parse_number(text) is None


def test_a_number_is_written_with_its_unit() -> None:
    assert [with_unit("5", unit) for unit in ("", "$", "kg", "%")] == ["5", "$5", "5 kg", "5 %"]


def test_a_stray_cell_counts_as_missing_and_is_said() -> None:
    cells = ["oops" if i == 7 else str(i) for i in range(N)]
    encoder = learnt(b=cells)
    assert encoder.notes[0] == "1 cell of 'b' holds no number, but 'oops': taken as missing"
    assert second(encoder, b=cells)[7] == encoder.medians["b"]
    assert (encoder.transform(table(b="later"))[:, 1] == encoder.medians["b"]).all()


def test_notes_say_one_cell_and_many_and_show_times_as_times() -> None:
    days = [f"2024-03-{1 + i % 28:02d}" for i in range(N)]
    clocks = [f"{8 + i % 9:02d}:30" for i in range(N)]
    days[3] = clocks[5] = clocks[6] = ""
    notes = learnt(day=days, clock=clocks, b=["x", "y", *map(str, range(N - 2))]).notes
    assert any("1 missing value of 'day' is taken as its median, 2024-03-1" in n for n in notes)
    assert "2 missing values of 'clock' are taken as its median, 12:30:00" in notes
    assert "2 cells of 'b' hold no numbers, such as 'x': taken as missing" in notes


def test_text_with_thousands_of_values_is_never_fatal() -> None:
    rng = np.random.default_rng(0)
    n = 6000
    dest = [f"v{i}" for i in (rng.pareto(1.0, n) * 300).astype(int) % 1890]
    many = pd.DataFrame({"a": rng.normal(size=n), "dest": dest, "text": rng.random(n).astype(str)})
    many["text"] = "note " + many["text"]
    encoder = TableEncoder.fit(many)
    assert len(encoder.categories["dest"]) == 100
    assert encoder.categories["dest"][-1] == "(other)"
    assert any("the 99 most frequent are categories" in note for note in encoder.notes)
    assert "'text' has 6000 values in 6000 rows and is left out" in encoder.notes
    x, unseen = encoder.transform_and_flag(many.assign(dest="never seen"))
    assert (x[:, -1] == 1).all()
    assert not unseen.any(), "a new value among thousands is nothing unusual"


def test_what_says_nothing_is_left_out_and_said() -> None:
    encoder = learnt(
        empty=np.nan,
        constant=5,
        id=np.arange(N) * 7 + 3,
        customerId=range(100, 100 + N),
        no=range(N),
    )
    assert encoder.names == ["a"]
    assert encoder.notes == [
        "'empty' is empty and is left out",
        "'constant' is '5' in every row and is left out",
        "'id' numbers the rows, an integer that no two rows share, and is left out",
        "'customerId' numbers the rows, an integer that no two rows share, and is left out",
        "'no' numbers the rows, an integer that no two rows share, and is left out",
    ]
    kept = TableEncoder.fit(table(no=range(N)), keep=["no"])
    assert kept.names == ["a", "no"]
    assert learnt(year=range(N)).names == ["a", "year"], "time is no id"
    assert learnt(id=np.arange(N) // 2).names == ["a", "id"], "nor is what repeats"
    alone = pd.DataFrame({"x": range(N)})
    assert TableEncoder.fit(alone).names == ["x"], "the only column is read"


def test_another_value_of_a_constant_column_is_unseen() -> None:
    """A column that is left out still says that a row is unlike all others."""
    encoder = learnt(machine="A")
    assert not encoder.transform_and_flag(table(machine="A"))[1].any()
    assert not encoder.transform_and_flag(table())[1].any()
    with pytest.warns(UnseenWarning, match="'machine': 90 of 90 rows .* it knows 'A'"):
        assert encoder.transform_and_flag(table(machine="B"))[1].all()


def test_columns_are_dropped_by_name() -> None:
    encoder = TableEncoder.fit(table(b=np.arange(N) % 7), drop=["b"])
    assert encoder.names == ["a"]
    with pytest.raises(TableError, match="must be a column, got 'c'"):
        TableEncoder.fit(table(), drop=["c"])


@pytest.mark.parametrize(
    "fields",
    [
        {"units": {"b": "kg"}},
        {"units": {"a": 1}},
        {"layouts": ["a"]},
        {"tolerant": ["b"]},
        {"decimal": ";"},
        {"constants": {"c": 1}},
        {"more": {}},
    ],
)
def test_a_file_that_says_nonsense_of_formats_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=" must "):
        TableEncoder.from_dict({"medians": {"a": 1.0}, "categories": {}, **fields})


def test_missing_cells_that_the_fit_had_not_give_a_warning() -> None:
    table = pd.DataFrame({"size": np.arange(20.0), "gappy": [None, *range(19)], "kind": ["a"] * 20})
    encoder = TableEncoder.fit(table, keep=["kind"])
    encoder = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    encoder.transform(table)
    with pytest.warns(ColumnsWarning, match="'size' has missing cells.* its median, 9.5"):
        encoder.transform(table.assign(size=np.nan))


@pytest.mark.parametrize("stray", ["?", "-", "broken"])
def test_decimal_commas_are_refused_in_spite_of_a_stray_cell(stray: str) -> None:
    rng = np.random.default_rng(0)
    texts = [f"{number:.2f}".replace(".", ",") for number in rng.normal(20, 5, 150)]
    texts[7] = stray
    with pytest.raises(TableError, match="gpn fit --decimal ,"):
        TableEncoder.fit(pd.DataFrame({"heat": texts, "y": rng.normal(size=150)}), "y")
    with pytest.raises(TableError, match="gpn fit --decimal ,"):
        is_class(pd.Series(texts, name="y"))
