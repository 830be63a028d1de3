"""The model of a table: its rows keep their index, its target is understood or refused."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpn
from gpn.columns.column_types import TableError
from gpn.columns.encoder import UnseenWarning
from gpn.tables.fit_record import FitRecord
from gpn.tables.model import TableModel, fit_table
from gpn.tables.target import is_class, target_column
from tests.fuzz import models


def fitted(table: pd.DataFrame, target: Any, **more: Any) -> TableModel:
    pool = models.table()[["size", "heat", "colour"]]
    options = {"config": models.CONFIG, "random_state": 0, **more}
    return fit_table(table, target, pool, **options)


@pytest.fixture(scope="module", params=["yield", "grade"])
def model(request: pytest.FixtureRequest) -> TableModel:
    return models.model(request.param)


def test_rows_keep_their_index(model: TableModel) -> None:
    table = models.table().set_axis([f"r{i}" for i in range(24)])
    plain, draws = model.predict(table), model.functions(3, seed=0)
    assert plain.index.equals(table.index)
    shuffled = table.sample(frac=1, random_state=0)
    joined = shuffled.join(model.predict(shuffled))
    pd.testing.assert_series_equal(joined["ood_score"][table.index], plain["ood_score"])
    pd.testing.assert_frame_equal(draws(shuffled).loc[table.index], draws(table))


def test_rows_with_one_index_are_predicted(model: TableModel) -> None:
    assert model.predict(models.table().set_axis([0] * 24)).index.tolist() == [0] * 24


@pytest.mark.parametrize("level", [95, 0, 1, -0.5])
def test_a_level_is_checked_whatever_the_kind(level: float, model: TableModel) -> None:
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        model.predict(models.table(), level)


def test_a_category_never_seen_is_unknown(model: TableModel) -> None:
    table = models.table()
    table.loc[:9, "colour"] = "purple"
    with pytest.warns(UnseenWarning, match="'colour': 10 of 24 rows .* such as 'purple'"):
        flags = model.predict(table)["is_ood"]
    assert flags[:10].all()
    known = model.predict(models.table())["is_ood"]
    assert flags[10:].equals(known[10:])
    with pytest.warns(UnseenWarning):
        measured = model.evaluate(table, table.head(10))
    assert measured["flagged"] == flags.mean()
    assert measured["ood_flagged"] == 1


def test_what_columns_are_survives_the_file(tmp_path: Path) -> None:
    days = pd.Series(pd.date_range("2024-01-01", periods=24))
    table = models.table().assign(day=days, id=[f"n{i}" for i in range(24)]).drop(columns="grade")
    pool = table.drop(columns=["yield", "id"])
    options: Any = {"config": models.CONFIG, "random_state": 0}
    fit_table(table, "yield", pool, **options).save(tmp_path / "m.gpn")
    loaded = gpn.load(tmp_path / "m.gpn")
    assert loaded.encoder.times == {"day": "date"}
    assert "'id' has 24 values in 24 rows and is left out" in loaded.record.notes
    once = loaded.predict(table)
    texts = table.assign(day=days.dt.strftime("%Y-%m-%d")).drop(columns="id")
    pd.testing.assert_frame_equal(loaded.predict(texts), once)


def test_a_record_of_a_file_is_checked() -> None:
    record = {"labeled": 24, "unlabeled": None}
    assert FitRecord.from_dict(record, 4, {}).unlabeled is None
    for change in ({"labeled": "many"}, {"notes": [1]}, {"diagnostics": []}, {"x": [[1.0]]}):
        with pytest.raises(ValueError, match=" must "):
            FitRecord.from_dict({**record, **change}, 4, {})
    rows = {"labeled_x": np.ones((3, 4)), "labeled_y": np.ones(3)}
    assert FitRecord.from_dict(record, 4, rows).arrays() == rows
    for n_columns, arrays in ((5, rows), (4, {**rows, "labeled_y": np.full(3, np.nan)})):
        with pytest.raises(ValueError, match="must be finite"):
            FitRecord.from_dict(record, n_columns, arrays)


def test_integer_names_of_columns() -> None:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)))
    options: Any = {"config": models.CONFIG, "random_state": 0}
    made = fit_table(table, 2, table[[0, 1]], **options)  # type: ignore[arg-type]
    assert made.target == "2"
    assert made.encoder.names == ["0", "1"]
    assert made.evaluate(table)["rows"] == 30
    assert target_column(table, 2).equals(table[2])  # type: ignore[arg-type]


TIMES: dict[str, Any] = {
    "dates": pd.date_range("2024-01-01", periods=24),
    "date objects": pd.Series(list(pd.date_range("2024-01-01", periods=24).date), dtype=object),
    "durations": pd.to_timedelta(np.arange(24), unit="h"),
}


@pytest.mark.parametrize("values", TIMES.values(), ids=TIMES.keys())
@pytest.mark.parametrize("classes", [None, True, False])
def test_a_target_column_times_is_refused(values: Any, classes: bool | None) -> None:
    table = models.table().assign(when=values)
    message = (
        r"the target 'when' must be numbers or classes, got (date|duration)s such as '.*; turn"
    )
    with pytest.raises(TableError, match=message):
        fitted(table, "when", classes=classes)


def test_a_target_column_written_dates_is_refused() -> None:
    days = pd.Series(pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d"), name="when")
    with pytest.raises(TableError, match=r"the target 'when' must be .*got dates such as '2024"):
        is_class(days)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([f"{i}.5" for i in range(60)], False),
        ([str(i) for i in range(60)], False),
        (["0", "1", "2"] * 20, True),
        (["01", "1", "2"] * 20, True),
        ([f"{i:03}" for i in range(60)], True),
        ([f"{i:03}" for i in range(40)] + ["A"] * 20, True),
        ([Decimal(i) / 4 for i in range(60)], False),
        (pd.Series([0, 1, 2] * 20, dtype=object), True),
        (pd.Series([True, False] * 30, dtype=object), True),
    ],
)
def test_texts_and_objects_that_are_numbers_are_told_by_these(values: Any, expected: bool) -> None:
    assert is_class(target_column(pd.DataFrame({"y": values}), "y")) == expected


def test_a_target_with_decimal_commas_is_named() -> None:
    with pytest.raises(TableError, match="'y' must hold numbers with a decimal point, got '0,5'"):
        is_class(pd.Series([f"{i},5" for i in range(30)], name="y"))


def test_numbers_written_as_texts_are_learnt_as_numbers() -> None:
    table = models.table().drop(columns="grade")
    numbers = fitted(table, "yield")
    texts = fitted(table.assign(**{"yield": table["yield"].map(repr)}), "yield")
    pd.testing.assert_frame_equal(texts.predict(table), numbers.predict(table))


def test_counts_that_were_never_seen_are_explained() -> None:
    table = models.table().drop(columns=["yield", "grade"]).assign(count=[0, 1, 2, 3] * 6)
    model = fitted(table, "count")
    assert model.is_classifier
    message = "got 7, too. Where 'count' counts .* gpn fit --kind regression, or .*classes=False"
    for ask in (model.evaluate, model.calibrate):
        with pytest.raises(TableError, match=message):
            ask(table.assign(count=7))
