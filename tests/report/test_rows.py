"""Which rows the report shows, and their nearest labeled rows, against brute force."""

import numpy as np
import pandas as pd
import pytest

from gpn.columns.encoder import UnseenWarning
from gpn.report.rows import (
    ScoredTable,
    SelectedRow,
    compare_to_labeled,
    differences,
    feature_slices,
    nearest,
    ood_rows,
    score_table,
    typical_rows,
)
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
    regression_model: TableModel, test_rows: pd.DataFrame
) -> None:
    rows = score_table(regression_model, "test", test_rows)
    for row in compare_to_labeled(regression_model, ood_rows(rows, 5)):
        for near in row["neighbours"]:
            units = [feature["units"] for feature in near["features"]]
            assert np.linalg.norm(units) == pytest.approx(near["distance"])
            assert np.abs(units).tolist() == sorted(np.abs(units), reverse=True)


def test_a_row_that_was_changed_in_one_feature_differs_in_that_one(
    regression_model: TableModel, test_rows: pd.DataFrame
) -> None:
    table = test_rows.iloc[:1].assign(**{MARKUP: 1e4, "colour": "violet"})
    with pytest.warns(UnseenWarning, match="such as 'violet'"):
        rows = score_table(regression_model, "test", table)
    other = regression_model.encoder.transform(test_rows.iloc[:1])[0]
    found = differences(regression_model, SelectedRow(rows, 0, "OOD"), other)
    assert [feature["name"] for feature in found] == [MARKUP, "colour"]
    scale = regression_model.estimator.x_scale_.scale[1]
    assert found[0]["units"] == pytest.approx((1e4 - other[1]) / scale)
    assert found[1]["here"] == "violet", "an unseen category is shown as it stands"
    assert found[1]["there"] == test_rows["colour"].iloc[0]


def test_the_highest_scores_come_first_without_duplicates() -> None:
    x = np.array([[1.0], [2.0], [2.0], [3.0]])
    rows = ScoredTable("test", pd.DataFrame(x), x, np.array([0.1, 5.0, 5.0, 2.0]), np.arange(4), 4)
    assert [row.index for row in ood_rows(rows, 3)] == [1, 3, 0]
    assert [row.index for row in typical_rows(rows)] == [0, 3, 1]


def test_features_cover_every_number_of_a_row(regression_model: TableModel) -> None:
    places = dict(feature_slices(regression_model.encoder))
    assert list(places) == ["size", MARKUP, "colour"]
    assert [place.stop for place in places.values()] == [1, 2, 5]


def test_classes_are_named(classification_model: TableModel, test_rows: pd.DataFrame) -> None:
    rows = score_table(classification_model, "test", test_rows)
    found = compare_to_labeled(classification_model, ood_rows(rows, 5))
    assert {near["target"] for row in found for near in row["neighbours"]} <= {"good", "bad", WORD}
    assert all(row["truth"] in ("good", "bad", WORD) for row in found)
