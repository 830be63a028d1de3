"""The page as a file: self-contained, escaped, complete or absent; and its command."""

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gpn
from gpn.cli.commands import app
from gpn.report import write_report
from gpn.report.data import labels_of, report_data
from gpn.report.page import as_json, policy
from gpn.report.rows import score_table
from gpn.tables.fit_record import MAX_STORED_ROWS, FitRecord, rows_to_store
from gpn.tables.model import TableModel, fit_table
from tests.report.conftest import MARKUP, ensemble, model_of


def quiet(text: str) -> None:
    pass


def without_plotly(page: str) -> str:
    """The page without the plotting library."""
    return re.sub(r"<script>.*?</script>", "", page, count=1, flags=re.DOTALL)


def test_nothing_of_the_data_is_markup(pages: Path) -> None:
    for path in pages.glob("*.html"):
        page = without_plotly(path.read_text())
        assert MARKUP not in page
        assert "<img" not in page
        assert "window.hacked" in page, "present, but escaped"
        assert not re.search(r"<script>[^<]{0,9}window", page)


def test_the_page_says_whether_columns_moved(pages: Path) -> None:
    for path in pages.glob("*.html"):
        page = without_plotly(path.read_text())
        section = page[page.index('id="drift"') : page.index('id="ood"')]
        assert "drift in" in section
        assert "<td>size</td>" in section
        assert "coverage is not checked" not in section, "the page has labels elsewhere"


def test_nothing_is_fetched_from_elsewhere(pages: Path) -> None:
    page = without_plotly((pages / "regression.html").read_text())
    assert not re.findall(r"https?://|//cdn|<link rel=.stylesheet|src=.http", page)
    assert "default-src 'none'" in html.unescape(page)


def test_json_cannot_close_its_element() -> None:
    encoded = as_json({"a": "</script><!--", "b": np.arange(3.0), "c": np.int64(2)})
    assert "<" not in encoded
    back = json.loads(encoded)
    assert back["a"] == "</script><!--"
    assert back["b"]["shape"] == [3]
    assert back["c"] == 2
    with pytest.raises(TypeError, match="plain values"):
        as_json({"a": object()})


def test_only_the_pages_own_scripts_may_run() -> None:
    rule = policy(["let a = 1;"])
    assert "sha256-" in rule
    assert "unsafe-inline" not in rule.split("style-src")[0]


def test_a_table_without_the_target_still_makes_a_page(
    regression_model: TableModel, pool_rows: pd.DataFrame, tmp_path: Path
) -> None:
    path = write_report(regression_model, pool_rows, out=tmp_path / "r.html")
    page = without_plotly(path.read_text())
    assert "has no column" in page
    assert 'id="plot-coverage"' not in page
    assert 'id="plot-functions"' in page


def test_unusable_labels_are_left_out_with_a_note(
    regression_model: TableModel, classification_model: TableModel, test_rows: pd.DataFrame
) -> None:
    for model, unusable in ((regression_model, None), (classification_model, "never seen")):
        target = test_rows[model.target].astype(object)
        target.iloc[:7] = unusable
        rows = score_table(model, "test", test_rows.assign(**{model.target: target}))
        indices, y, notes = labels_of(model, rows)
        assert indices[0] == 7
        assert len(y) == len(test_rows) - 7
        assert "7 of 120 test rows are left out" in notes[0]


def test_a_model_without_stored_rows_has_a_note(
    ensemble_model: TableModel, test_rows: pd.DataFrame, tmp_path: Path
) -> None:
    bare = TableModel(ensemble_model.estimator, ensemble_model.encoder, ensemble_model.target)
    page = without_plotly(write_report(bare, test_rows, out=tmp_path / "r.html").read_text())
    assert "stores no labeled rows" in page
    assert 'id="plot-difference"' not in page
    assert "<h3>The code plane" not in page, "only of functions that are affine in a code"


def test_long_tables_are_sampled_with_a_note(
    ensemble_model: TableModel, test_rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpn.report.rows.MAX_ROWS", 30)
    numbers = report_data(ensemble_model, test_rows, test_rows, quiet)
    assert "A random sample of 30 of the 120 test rows is used." in numbers["notes"]
    assert numbers["tables"] == {"test": 120, "pool": 120}
    shown = [row["number"] for row in numbers["ood_rows"]]
    scores = ensemble_model.estimator.ood_score(ensemble_model.encoder.transform(test_rows))
    found = [row["score"] for row in numbers["ood_rows"]]
    assert found == pytest.approx(scores[shown], rel=1e-6), "rows keep their numbers"


def test_progress_goes_to_the_callback_under_either_name(
    ensemble_model: TableModel, test_rows: pd.DataFrame, tmp_path: Path
) -> None:
    messages: dict[str, list[str]] = {"on_progress": [], "tell": []}
    path = tmp_path / "r.html"
    write_report(ensemble_model, test_rows, out=path, on_progress=messages["on_progress"].append)
    with pytest.warns(DeprecationWarning, match="on_progress"):
        write_report(ensemble_model, test_rows, out=path, tell=messages["tell"].append)
    assert messages["tell"] == messages["on_progress"]
    assert messages["tell"][-1] == "writing the page"


def test_a_page_appears_complete_or_not_at_all(
    ensemble_model: TableModel,
    test_rows: pd.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(numbers: Any) -> str:
        raise OSError("full")

    monkeypatch.setattr("gpn.report.page.render", fail)
    with pytest.raises(OSError, match="full"):
        write_report(ensemble_model, test_rows, out=tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="must exist and be writable"):
        write_report(ensemble_model, test_rows, out=tmp_path / "no" / "r.html")


def test_the_fit_is_remembered_in_the_file(regression_model: TableModel, tmp_path: Path) -> None:
    regression_model.save(tmp_path / "m.gpn")
    back = gpn.load(tmp_path / "m.gpn").record
    assert regression_model.record is not None
    assert back.to_dict() == regression_model.record.to_dict()
    assert np.array_equal(back.x, regression_model.record.x)
    assert np.array_equal(back.y, regression_model.record.y)


def test_a_file_carries_few_rows_of_many() -> None:
    x = np.arange(60_000.0).reshape(-1, 2)
    some, y = rows_to_store(x, x[:, 0])
    assert len(some) == MAX_STORED_ROWS
    assert np.array_equal(some[:, 0], y)
    assert rows_to_store(np.zeros((3000, 1000)), np.zeros(3000))[0].shape == (250, 1000)
    assert FitRecord(3, None).arrays() == {}


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test_rows: pd.DataFrame
) -> None:
    monkeypatch.chdir(tmp_path)
    table = test_rows.drop(columns="grade")
    model_of(ensemble(), table, "yield <i>", table).save("m.gpn")
    table.to_csv("test.csv", index=False)
    command = ["report", "m.gpn", "test.csv", "--pool", "test.csv", "--out", "r.html", "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "rows": 120,
        "out": "r.html",
        "bytes": Path("r.html").stat().st_size,
    }
    bad = CliRunner().invoke(app, [*command[:-2], "no/r.html"])
    assert bad.exit_code == 1
    assert "must exist and be writable" in bad.output


def test_a_fit_remembers_its_warnings_and_can_forget_its_rows(
    monkeypatch: pytest.MonkeyPatch, test_rows: pd.DataFrame
) -> None:
    monkeypatch.setattr("gpn.tables.model.PosteriorRegressor", lambda **options: ensemble())
    table = test_rows.drop(columns="grade").iloc[:30]
    with pytest.warns(UserWarning, match="synthetic rows"):
        model = fit_table(table, "yield <i>", method="ensemble", keep_rows=False)
    assert model.record is not None
    assert "synthetic rows" in model.record.warnings[0]
    assert model.record.unlabeled is None
    assert model.record.x is None
