"""Nearest rows by brute force, features by hand, and rows to look at."""

import numpy as np
import pandas as pd
import pytest

from gpn.report.neighbours import comparisons, differences, nearest
from gpn.report.rows import Picked, Rows, features, most_unknown, rows_of, typical
from gpn.tables.encoder import UnseenWarning
from gpn.tables.model import TableModel
from tests.report.conftest import MARKUP, WORD


def test_nearest_rows_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(0)
    x, known, scale = rng.normal(size=(7, 4)), rng.normal(size=(50, 4)), rng.uniform(0.1, 3, 4)
    order, distances = nearest(x, known, scale, 5)
    for row, found, lengths in zip(x, order, distances, strict=True):
        exact = np.sqrt((((known - row) / scale) ** 2).sum(1))
        assert found.tolist() == np.argsort(exact)[:5].tolist()
        assert lengths == pytest.approx(np.sort(exact)[:5])


def test_squared_differences_add_up_to_the_distance(
    numbers_model: TableModel, test_rows: pd.DataFrame
) -> None:
    rows = rows_of(numbers_model, "test", test_rows)
    for row in comparisons(numbers_model, most_unknown(rows, 5)):
        for near in row["neighbours"]:
            units = [feature["units"] for feature in near["features"]]
            assert np.linalg.norm(units) == pytest.approx(near["distance"])
            assert np.abs(units).tolist() == sorted(np.abs(units), reverse=True)


def test_a_row_that_was_changed_in_one_feature_differs_in_that_one(
    numbers_model: TableModel, test_rows: pd.DataFrame
) -> None:
    table = test_rows.iloc[:1].assign(**{MARKUP: 1e4, "colour": "violet"})
    with pytest.warns(UnseenWarning, match="such as 'violet'"):
        rows = rows_of(numbers_model, "test", table)
    other = numbers_model.encoder.transform(test_rows.iloc[:1])[0]
    found = differences(numbers_model, Picked(rows, 0, "unknown"), other)
    assert [feature["name"] for feature in found] == [MARKUP, "colour"]
    scale = numbers_model.estimator.x_scale_.scale[1]
    assert found[0]["units"] == pytest.approx((1e4 - other[1]) / scale)
    assert found[1]["here"] == "violet", "a word that was never seen is shown as it stands"
    assert found[1]["there"] == test_rows["colour"].iloc[0]


def test_the_most_unknown_come_first_and_once() -> None:
    x = np.array([[1.0], [2.0], [2.0], [3.0]])
    rows = Rows("test", pd.DataFrame(x), x, np.array([0.1, 5.0, 5.0, 2.0]), np.arange(4), 4)
    assert [row.place for row in most_unknown(rows, 3)] == [1, 3, 0]
    assert [row.place for row in typical(rows)] == [0, 3, 1]


def test_features_cover_every_number_of_a_row(numbers_model: TableModel) -> None:
    places = dict(features(numbers_model.encoder))
    assert list(places) == ["size", MARKUP, "colour"]
    assert [place.stop for place in places.values()] == [1, 2, 5]


def test_classes_are_named(classes_model: TableModel, test_rows: pd.DataFrame) -> None:
    rows = rows_of(classes_model, "test", test_rows)
    found = comparisons(classes_model, most_unknown(rows, 5))
    assert {near["target"] for row in found for near in row["neighbours"]} <= {"good", "bad", WORD}
    assert all(row["truth"] in ("good", "bad", WORD) for row in found)
