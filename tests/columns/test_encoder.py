"""What a column is taken for: numbers, times, categories, or nothing to learn from."""

import datetime
import json
import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpn.columns.column_types import TableError
from gpn.columns.encoder import TableEncoder, UnseenWarning

N = 90
DAYS = pd.date_range("2024-01-01", periods=N, tz="UTC")
SECONDS = 1704067200.0 + 86400 * np.arange(N)


def columns(**more: Any) -> TableEncoder:
    return TableEncoder.fit(table(**more), "y")


def table(**more: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": np.arange(float(N)), **more, "y": np.arange(float(N))})


def test_an_identity_is_left_out_and_said() -> None:
    learnt = columns(id=[f"n{i}" for i in range(N)])
    assert learnt.names == ["a"]
    assert learnt.notes == ["'id' has 90 values in 90 rows and is left out"]
    again = TableEncoder.from_dict(json.loads(json.dumps(learnt.to_dict())))
    with_id = table(id="never seen")
    np.testing.assert_array_equal(again.transform(with_id), again.transform(table()))


def test_few_values_are_a_category_however_few_the_rows() -> None:
    few = pd.DataFrame({"word": list("abcdefghi"), "y": np.arange(9.0)})
    assert len(TableEncoder.fit(few, "y").categories["word"]) == 9
    with pytest.raises(TableError, match="to read besides 'y', got none; 'id' has 90 values"):
        TableEncoder.fit(table(id=[f"n{i}" for i in range(N)]).drop(columns="a"), "y")


def test_texts_that_are_numbers_are_numbers() -> None:
    written = table(b=[f"{i}.5" for i in range(N)])
    learnt = TableEncoder.fit(written, "y")
    np.testing.assert_array_equal(learnt.transform(written)[:, 1], np.arange(N) + 0.5)


@pytest.mark.parametrize(
    "values",
    [
        [Decimal(i) / 2 for i in range(N)],
        [i / 2 if i % 2 else Decimal(i) / 2 for i in range(N)],
        [np.float64(i / 2) for i in range(N)],
    ],
    ids=["Decimal", "mixed", "floats"],
)
def test_numbers_held_as_objects_are_numbers(values: list[Any]) -> None:
    held = table(b=pd.Series(values, dtype=object))
    learnt = TableEncoder.fit(held, "y")
    assert learnt.names == ["a", "b"]
    np.testing.assert_array_equal(learnt.transform(held)[:, 1], np.arange(N) / 2)
    gap = held.assign(b=held["b"].where(held.index > 0, None))
    assert TableEncoder.fit(gap, "y").transform(gap)[0, 1] == 22.5, "the median of the others"


TIMES: dict[str, Any] = {
    "zoned": pd.Series(DAYS),
    "naive": pd.Series(DAYS.tz_localize(None)),
    "other zone": pd.Series(DAYS.tz_convert("Asia/Tokyo")),
    "dates": pd.Series(list(DAYS.date), dtype=object),
    "texts": pd.Series(DAYS.strftime("%Y-%m-%d")),
    "written": pd.Series(DAYS.strftime("%Y-%m-%d %H:%M:%S+00:00")),
}


@pytest.mark.parametrize("days", TIMES.values(), ids=TIMES.keys())
@pytest.mark.parametrize("later", TIMES.values(), ids=TIMES.keys())
def test_dates_are_seconds_however_they_are_held(days: Any, later: Any) -> None:
    learnt = columns(day=days)
    assert "'day' holds dates" in learnt.notes
    again = TableEncoder.from_dict(learnt.to_dict())
    np.testing.assert_array_equal(again.transform(table(day=later))[:, 1], SECONDS)


@pytest.mark.parametrize("held", ["timedelta64[ns]", object, "numpy", str])
def test_durations_are_seconds(held: Any) -> None:
    waits = pd.Series(pd.to_timedelta(np.arange(N), unit="min"))
    values: Any = waits
    if held is object:
        values = [datetime.timedelta(minutes=i) for i in range(N)]
    elif held == "numpy":
        values, held = [np.timedelta64(i, "m") for i in range(N)], object
    learnt = columns(wait=pd.Series(values, dtype=held))
    assert "'wait' holds durations" in learnt.notes
    np.testing.assert_array_equal(learnt.transform(table(wait=waits))[:, 1], 60.0 * np.arange(N))


def test_a_missing_date_is_a_missing_number() -> None:
    days = pd.Series(DAYS).where(np.arange(N) > 8)
    learnt = columns(day=days)
    assert any(note.startswith("9 missing values of 'day'") for note in learnt.notes)
    x = learnt.transform(table(day=days))
    assert (x[:9, 1] == np.median(SECONDS[9:])).all()
    assert learnt.transform(table(day=np.nan))[0, 1] == x[0, 1]


def test_dates_of_any_century_are_seconds() -> None:
    learnt = columns(day=["0001-01-01", "2024-01-01", "9999-12-31 23:59:59.999999"] * 30)
    assert learnt.times == {"day": "date"}
    assert learnt.medians["day"] == SECONDS[0]


def test_times_and_numbers_are_not_confused() -> None:
    with pytest.raises(TableError, match=r"'day' must hold dates, as in the fit, got 5.* in row 0"):
        columns(day=DAYS).transform(table(day=5))
    with pytest.raises(TableError, match=r"'day' must hold dates.*got 'soon' in row 0"):
        columns(day=DAYS).transform(table(day="soon"))
    mixed = pd.Series(list(DAYS), dtype=object)
    mixed[7] = 5
    with pytest.raises(TableError, match=r"'day' must hold dates.*got 5 in row 7 \(rows"):
        columns(day=DAYS).transform(table(day=mixed))
    with pytest.raises(TableError, match="'b' must hold real numbers, got datetime64"):
        columns(b=np.arange(N) % 7.0).transform(table(b=DAYS))


def test_a_file_that_says_nonsense_of_times_is_refused() -> None:
    for times in ({"b": "date"}, {"a": "week"}, ["a"], {"a": 1}):
        fields = {"medians": {"a": 1.0}, "categories": {}, "times": times}
        with pytest.raises(ValueError, match="times must say date or duration"):
            TableEncoder.from_dict(fields)


def test_decimal_commas_are_named() -> None:
    with pytest.raises(TableError, match="'b' must hold numbers with a decimal point, got '0,5'"):
        columns(b=[f"{i},5" for i in range(N)])
    pairs = [f"{i % 5},{i % 3}" for i in range(N)]
    assert len(columns(b=pairs).categories["b"]) == 15
    assert columns(b=["1,2", "1,3", "2,3"] * 30).categories["b"] == ["1,2", "1,3", "2,3"]


def test_missing_categories_are_counted() -> None:
    learnt = columns(word=["red", "blue", None] * 30)
    assert learnt.notes == [
        "'word' is a category of 3 values",
        "30 missing values of 'word' are the category '(missing)'",
    ]


SAME: dict[str, list[Any]] = {
    "bool": [True, False],
    "int": [1, 0],
    "float": [1.0, 0.0],
    "text of int": ["1", "0"],
    "text of float": ["1.0", "0.0"],
    "text of bool": ["True", "False"],
    "CSV of another program": ["TRUE", "FALSE"],
}


@pytest.mark.parametrize("fitted", SAME.values(), ids=SAME.keys())
@pytest.mark.parametrize("asked", SAME.values(), ids=SAME.keys())
def test_the_same_meaning_is_the_same_category(fitted: list[Any], asked: list[Any]) -> None:
    learnt = columns(flag=pd.Categorical(fitted * 45))
    for dtype in (None, object, "category"):
        x = learnt.transform(table(flag=pd.Series(asked * 45, dtype=dtype)))
        assert (x[:, 1:].sum(1) == 1).all()
        assert (x[0, 1:] != x[1, 1:]).all()
        np.testing.assert_array_equal(x, learnt.transform(table(flag=pd.Categorical(fitted * 45))))


def test_codes_are_no_numbers() -> None:
    learnt = columns(code=["1", "2"] * 45)
    with pytest.warns(UnseenWarning, match="'code': 90 of 90 rows"):
        assert learnt.transform(table(code="01"))[:, 1:].sum() == 0
    both = columns(code=["1", "True", "x"] * 30)
    assert both.transform(table(code=["1", "True", True] * 30))[:, 1:].argmax(1)[:3].tolist() == [
        0,
        1,
        1,
    ]


def test_unseen_values_are_told_once_per_column() -> None:
    learnt = columns(flag=["red", "blue"] * 45, other=["a", "b"] * 45)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x, unseen = learnt.transform_and_flag(table(flag=["purple", "red", None] * 30, other="a"))
    assert len(caught) == 1
    assert str(caught[0].message).startswith(
        "'flag': 60 of 90 rows hold values that the fit has not seen, such as 'purple'; it knows "
        "'blue', 'red'. "
    )
    assert unseen.tolist() == [True, False, True] * 30
    assert x.shape == (N, 5)
    assert not columns().transform_and_flag(table())[1].any()
