"""What commands print for people: plain words, names of rows, and what is usual."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpn
from gpn.columns.column_types import TableError, close_name
from gpn.columns.encoder import TableEncoder
from gpn.tables.describe import METRICS, naming_columns
from gpn.tables.files import map_table
from gpn.tables.model import fit_table
from tests.cli.command import FIT, PREDICT, Command, done, rows


def test_suggestions_name_their_rows(run: Command, tables: Path) -> None:
    """By the columns of --id, or by one that names each row and that the model does not read."""
    names = [f"n{i}" for i in range(400)]
    pd.read_csv("pool.csv").assign(code=names, colour="red").to_csv("pool.csv", index=False)
    run(*FIT)
    shown = run("suggest", "m.gpn", "pool.csv", "-n", 2)
    picked = done(run("suggest", "m.gpn", "pool.csv", "-n", 2, "--json"))
    first = picked["rows"][0]
    assert picked["values"][0]["code"] == f"n{first}"
    assert "row  code" in shown.stdout
    assert f"row {first} is line {first + 2}" in shown.stderr
    line = Path("pool.csv").read_text().splitlines()[first + 1]
    assert f"n{first}" in line.split(",")
    table = pd.read_csv("pool.csv")
    assert naming_columns(gpn.load("m.gpn"), table) == ["code"]
    assert naming_columns(gpn.load("m.gpn"), table.assign(code="same")) == []
    explained = run("explain", "m.gpn", "pool.csv", "--row", 3).stdout
    assert explained.startswith("row 3 (n3) is ")


def test_suggestions_that_are_flagged_are_said(run: Command, tables: Path) -> None:
    """A typing error is what a model knows least of."""
    run(*FIT)
    pool = pd.read_csv("pool.csv")
    pool.loc[5, "size"] = 900.0
    pool.to_csv("pool.csv", index=False)
    found = done(run("suggest", "m.gpn", "pool.csv", "-n", len(pool), "--json"))
    assert found["is_ood"][found["rows"].index(5)]
    assert "of these are flagged" in run("suggest", "m.gpn", "pool.csv", "-n", len(pool)).stderr


def test_a_few_rows_of_the_fit_are_refused_for_a_calibration(run: Command, tables: Path) -> None:
    """They are a small share of the fit, but all that there is to calibrate with."""
    run(*FIT)
    seen = pd.read_csv("labeled.csv").dropna(subset="yield").head(25)
    seen.to_csv("seen.csv", index=False)
    refused = run("calibrate", "m.gpn", "seen.csv", "--out", "c.gpn")
    assert refused.exit_code == 1
    assert "shares 100% with those it learnt from" in " ".join(refused.stderr.split())


def test_a_prediction_says_how_many_flags_are_usual(run: Command, tables: Path) -> None:
    run(*FIT)
    usual = run(*PREDICT, "--fpr", "0.1")
    assert "by design about 10 % of known rows are" in usual.stdout
    pd.read_csv("test.csv").assign(size=40.0).to_csv("test.csv", index=False)
    many = run(*PREDICT)
    assert "100 (100.0 %), see is_ood" in many.stdout
    assert "gpn watch m.gpn test.csv says which columns have changed, --explain why" in many.stderr


def test_an_evaluation_is_in_words(run: Command, tables: Path) -> None:
    run(*FIT)
    shown = run("evaluate", "m.gpn", "test.csv", "--ood", "ood.csv").stdout
    assert "_" not in shown
    for words in ("typical error (RMSE)", "labels inside their 95 % intervals", "FPR95: labeled"):
        assert words in shown
    found = done(run("evaluate", "m.gpn", "test.csv", "--ood", "ood.csv", "--json"))
    assert set(found) <= set(METRICS)


@pytest.mark.parametrize("target", ["yield", "grade"])
def test_a_calibration_says_what_it_changed(target: str, run: Command, tables: Path) -> None:
    other = "grade" if target == "yield" else "yield"
    for name, seed in (("labeled", 0), ("held", 5)):
        rows(200, seed).drop(columns=other).to_csv(f"{name}.csv", index=False)
    run(*FIT[:3], target, *FIT[4:])
    calibrated = ("calibrate", "m.gpn", "held.csv", "--out", "c.gpn")
    shown, found = run(*calibrated).stdout, done(run(*calibrated, "--json"))
    after = gpn.load("c.gpn").evaluate(pd.read_csv("held.csv"))
    assert found["after"] == {key: after[key] for key in found["after"]}
    if target == "yield":
        assert 0.94 < found["after"]["coverage_95"] < 0.97
        assert "95 % intervals before" in shown
        assert f"mean width of {after['width_95']:.4g}" in shown
    else:
        assert found["before"] == {}
        assert f"with {after['set_size_95']:.2f} classes on average" in shown
        assert found["after"]["set_coverage_95"] > 0.94


def test_a_name_that_is_nearly_right_is_named(run: Command, tables: Path) -> None:
    assert close_name("Heat", ["size", "heat"]) == "heat"
    assert close_name("colour", ["size", "heat"]) is None
    assert "did you mean 'yield'?" in run(*FIT[:3], "Yeild", *FIT[4:]).stderr
    assert "did you mean 'heat'?" in run(*FIT, "--drop", "haet").stderr
    run(*FIT)
    pd.read_csv("test.csv").rename(columns={"heat": "Heat"}).to_csv("test.csv", index=False)
    assert "'heat' is missing (there is 'Heat'); add it, or fit again" in run(*PREDICT).stderr
    encoder = gpn.load("m.gpn").encoder
    with pytest.raises(TableError, match="'size', 'colour' are missing; add them"):
        encoder.transform(pd.DataFrame({"heat": [1.0]}))


def test_what_says_that_a_cell_is_empty_is_named(run: Command, tables: Path) -> None:
    table = pd.read_csv("labeled.csv").astype({"size": object, "yield": object})
    table.loc[:3, "size"] = ["?", "?", "unknown", "-"]
    table.loc[10:12, "yield"] = "?"
    table.to_csv("labeled.csv", index=False)
    said = run(*FIT).stderr
    assert "3 rows without 'yield' ('?'): taken as unlabeled" in said
    assert said.count("4 missing values of 'size' ('?', ") == 1
    many = pd.Series(["?", "-", "--", "none", *map(str, range(40))], name="a")
    notes = TableEncoder.fit(pd.DataFrame({"a": many})).notes
    assert notes[0].endswith(", …) are taken as its median, 19.5")


def test_a_stray_cell_of_an_unlabeled_row_does_not_stop_a_fit(run: Command, tables: Path) -> None:
    """As in labeled rows, a few cells that are no numbers are missing; many are an error."""
    table = pd.read_csv("labeled.csv").astype({"size": object})
    table.loc[:19, "yield"] = np.nan
    table.loc[5, "size"] = "broken"
    table.to_csv("labeled.csv", index=False)
    fitted = run(*FIT)
    assert fitted.exit_code == 0, fitted.output
    note = "of the unlabeled rows, 1 cell of 'size' holds no number, but 'broken': taken as missing"
    assert note in fitted.stderr
    table.loc[:19, "size"] = "broken"
    table.to_csv("labeled.csv", index=False)
    assert "must hold finite numbers, got 'broken' in row 0" in run(*FIT).stderr


def test_a_bad_cell_has_its_number_in_the_whole_file(tmp_path: Path) -> None:
    cells = ["1.5"] * 70
    cells[43] = "tall"
    (tmp_path / "t.csv").write_text("\n".join(["size", *cells]))
    encoder = TableEncoder.fit(pd.DataFrame({"size": np.arange(30) / 2}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpn.tables.files.CHUNK_ROWS", 20)
        with pytest.raises(TableError, match=r"got 'tall' in row 43 \(rows count from 0\); corr"):
            map_table(
                tmp_path / "t.csv",
                tmp_path / "o.csv",
                lambda rows: pd.DataFrame(encoder.transform(rows), rows.index),
                encoder,
                append=True,
                on_rows=lambda count: None,
            )


@pytest.mark.filterwarnings("ignore:a fit should see unlabeled rows")
def test_both_deviations_are_given() -> None:
    table = rows(150).drop(columns="grade")
    model = fit_table(table, "yield", mean=None, random_state=0)
    found = model.predict(table)
    x = model.encoder.transform(table)
    np.testing.assert_array_equal(found["std"], model.estimator.predict(x, return_std=True)[1])
    total = model.estimator.predict_distribution(x).std()
    np.testing.assert_allclose(found["std_total"], total)
    assert (found["std_total"] > found["std"]).mean() > 0.9
    assert found.columns[-1] == "std_total"


def test_help_has_one_paragraph_on_each_line(run: Command) -> None:
    shown = " ".join(run("watch", "--help").stdout.split())
    assert "compared with their intervals; blank cells are not known yet." in shown
    for option in ("--sep", "--decimal", "--encoding", "--device", "--json", "--false-alarms"):
        assert option in shown
