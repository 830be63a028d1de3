"""Predictions against labels in the report: figures against textbook formulas and brute force."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import RidgeCV
from sklearn.metrics import confusion_matrix
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpn.report import performance, write_report
from gpn.report.data import report_data
from gpn.report.page import tiles
from gpn.report.rows import as_value, row_names, score_table
from gpn.tables.model import TableModel, fit_table
from tests.report.conftest import MARKUP


def quiet(text: str) -> None:
    pass


@pytest.mark.parametrize(("inside", "n"), [(95, 100), (0, 10), (10, 10), (1, 3), (9500, 10_000)])
def test_the_confidence_interval_is_wilsons(inside: int, n: int) -> None:
    exact = binomtest(inside, n).proportion_ci(method="wilson")
    assert performance.wilson(inside / n, n) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_tiles_show_confidence_and_baseline() -> None:
    summary = {"rows": 100, "rmse": 2.0, "coverage_95": 0.95}
    found = tiles(
        summary, performance.confidence(summary), {"name": "ridge", "rows": 9, "rmse": 3.5}
    )
    details = [tile["details"] for tile in found]
    assert details == [[], ["ridge: 3.5"], ["88.8% to 97.8% with 95 % confidence"]]


def test_the_confusion_matrix_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 4, (2, 300))
    found = performance.confusion(predicted, true, 5)
    assert np.array_equal(found, confusion_matrix(true, predicted, labels=range(5)))


def test_the_baseline_of_numbers_is_a_ridge_regression(
    regression_model: TableModel, test_rows: pd.DataFrame
) -> None:
    x, y = regression_model.encoder.transform(test_rows), test_rows["yield <i>"].to_numpy()
    record = regression_model.record
    assert record is not None
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
    found = performance.baseline(regression_model, x, y)
    assert found is not None
    assert found["r2"] == pytest.approx(ridge.fit(record.x, record.y).score(x, y))
    bare = TableModel(regression_model.estimator, regression_model.encoder, "yield <i>")
    assert performance.baseline(bare, x, y) is None


def test_the_baseline_of_classes_is_the_most_frequent_one(
    classification_model: TableModel, test_rows: pd.DataFrame
) -> None:
    x = classification_model.encoder.transform(test_rows)
    y = np.searchsorted(classification_model.estimator.classes_, test_rows["grade"])
    record = classification_model.record
    assert record is not None
    assert record.y is not None
    found = performance.baseline(classification_model, x, y.astype(float))
    assert found is not None
    assert found["accuracy"] == np.mean(y == np.bincount(record.y.astype(int)).argmax())


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_the_column_that_makes_the_target_matters_most(
    kind: str, request: Any, test_rows: pd.DataFrame
) -> None:
    model = request.getfixturevalue(f"{kind}_model")
    numbers = report_data(model, test_rows, None, quiet)["importance"]
    assert numbers["error"][0]["name"] == "size"
    assert {column["name"] for column in numbers["score"]} == {"size", MARKUP, "colour"}
    assert all(column["value"] >= 0 for column in numbers["score"])


def test_points_are_the_predictions(regression_model: TableModel, test_rows: pd.DataFrame) -> None:
    found = report_data(regression_model, test_rows, None, quiet)["points"]
    order = np.random.default_rng(0).permutation(120)
    x = regression_model.encoder.transform(test_rows)[order]
    assert found["true"] == pytest.approx(test_rows["yield <i>"].to_numpy()[order])
    assert found["predicted"] == pytest.approx(regression_model.estimator.predict(x), rel=1e-5)
    assert found["names"][0] == f"row {order[0]}"


def test_flags_are_the_same_in_tile_and_slider(
    regression_model: TableModel, test_rows: pd.DataFrame
) -> None:
    numbers = report_data(regression_model, test_rows, None, quiet)
    flags = numbers["ood"]["flags"]
    usual = int(np.argmin(np.abs(flags["rates"] - 0.05)))
    assert flags["shares"]["test"][usual] == pytest.approx(numbers["summary"]["flagged"])


def test_a_column_that_names_rows_is_shown(
    regression_model: TableModel, test_rows: pd.DataFrame
) -> None:
    named = test_rows.assign(batch=[f"B{i}" for i in range(len(test_rows))])
    numbers = report_data(regression_model, named, None, quiet)
    row = numbers["ood_rows"][0]
    assert row["name"] == f"B{row['number']}"
    assert row["name"] in row["label"]
    some = report_data(regression_model, named[named.index % 2 == 1], None, quiet)["ood_rows"]
    assert all(row["name"] == f"B{row['number']}" for row in some), "as numbered in the file"
    frame = pd.DataFrame({"a": [1, 1], "b": [0.1, 0.2], "c": ["x", None], "d": [7, 8]})
    assert row_names(frame, set()) == ["7", "8"], "unique, complete, and no measurement"
    assert row_names(frame, {"d"}) is None
    assert row_names(pd.DataFrame({"a": ["x" * 90, "y"]}), set()) == ["x" * 39 + "…", "y"]


def test_dates_are_shown_as_dates(tmp_path: Path) -> None:
    assert as_value(0.0, "date") == "1970-01-01"
    assert as_value(90_061.0, "date") == "1970-01-02 01:01:01"
    assert as_value(3600.0, "duration") == "0 days 01:00:00"
    assert as_value(1234.5678, None) == "1234.6"
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2012-01-28") + pd.to_timedelta(rng.integers(0, 300, 80), unit="D")
    table = pd.DataFrame({"day": days, "x": rng.normal(size=80)})
    table["y"] = table["x"] + rng.normal(0, 0.1, 80)
    model = fit_table(table, "y", config=None, random_state=0)
    numbers = report_data(model, table, None, quiet)
    assert numbers["functions"]["times"] == ["date", ""]
    shown = [
        f for row in numbers["ood_rows"] for near in row["neighbours"] for f in near["features"]
    ]
    texts = [feature["here"] for feature in shown if feature["name"] == "day"]
    assert texts
    assert all(text.startswith("2012-") for text in texts)
    assert "2012-" in write_report(model, table, out=tmp_path / "r.html").read_text()


def test_a_row_with_an_unseen_category_is_flagged(
    regression_model: TableModel, test_rows: pd.DataFrame
) -> None:
    with pytest.warns(UserWarning, match="violet"):
        rows = score_table(regression_model, "test", test_rows.iloc[:3].assign(colour="violet"))
    assert rows.flagged(np.inf).all()
