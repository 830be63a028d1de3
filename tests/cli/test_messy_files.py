"""Files as they come, and what the commands say about them: each thing once, in a line."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gpn
from gpn.cli.commands import app
from gpn.cli.output import heartbeat
from gpn.columns.column_types import TableError
from gpn.columns.encoder import UnseenWarning
from gpn.tables.explain import explain_rows
from gpn.tables.files import read_table
from gpn.tables.model import fit_table
from gpn.tables.reading import Reading, ReadingWarning
from gpn.tables.summary import behind_baseline
from gpn.tables.target import is_class, split_unlabeled, target_numbers
from tests.cli.command import FIT, Command, done, rows


def test_blank_labels_are_unlabeled_rows(run: Command, tables: Path) -> None:
    table = pd.read_csv("labeled.csv")
    table.loc[:19, "yield"] = np.nan
    table.to_csv("labeled.csv", index=False)
    fitted = run(*FIT[:4], "--out", "m.gpn")
    assert "180 labeled rows; 'yield' holds numbers" in fitted.stderr
    assert "20 rows without 'yield': taken as unlabeled" in fitted.stderr
    assert gpn.load("m.gpn").record.unlabeled == 20
    test = pd.read_csv("test.csv")
    test.loc[:9, "yield"] = np.nan
    test.to_csv("test.csv", index=False)
    found = done(run("evaluate", "m.gpn", "test.csv", "--json"))
    assert (found["rows"], found["rows_without_label"]) == (90, 10)
    calibrated = run("calibrate", "m.gpn", "test.csv", "--out", "c.gpn")
    assert calibrated.exit_code == 0
    assert "10 rows without 'yield': skipped" in calibrated.stderr
    reported = run("report", "m.gpn", "test.csv", "--out", "r.html")
    assert "10 rows without 'yield': skipped" in reported.stderr


def test_a_target_with_thousands_is_a_number() -> None:
    y = pd.Series([f"{467 + i},629" for i in range(30)], name="y")
    assert not is_class(y)
    assert target_numbers(y).iloc[0] == 467629.0
    assert is_class(pd.Series(["4WD", "2WD"] * 20))
    known, blank = split_unlabeled(pd.DataFrame({"y": [*y, "?", "n/a", None]}), "y")
    assert (len(known), len(blank)) == (30, 3)
    known, blank = split_unlabeled(pd.DataFrame({"y": ["yes", "no", "unknown", None]}), "y")
    assert (len(known), len(blank)) == (3, 1), "a class may be called unknown"


def test_how_a_file_is_written_is_kept_in_the_model(run: Command, tables: Path) -> None:
    for name in ("labeled.csv", "test.csv"):
        pd.read_csv(name).to_csv(name, index=False, sep=";", decimal=",")
    pd.read_csv("pool.csv").to_csv("pool.csv", index=False, sep=";", decimal=",")
    fitted = run(*FIT, "--sep", ";", "--decimal", ",")
    assert fitted.exit_code == 0, fitted.output
    assert done(run("predict", "m.gpn", "test.csv", "--out", "o.csv", "--json"))["rows"] == 100
    scored = pd.read_csv("o.csv")
    assert scored["size"].between(-1, 1).all()
    assert done(run("evaluate", "m.gpn", "test.csv", "--json"))["r2"] > 0.5


@pytest.mark.parametrize(
    ("encoding", "message"),
    [("latin-1", r"is no UTF-8 .* read as Latin-1"), ("utf-16", "is read as UTF-16")],
)
def test_encodings_are_found_and_said(encoding: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("name,size\nZoë,1.5\nJosé,2.5\n".encode(encoding))
    with pytest.warns(ReadingWarning, match=message):
        found = read_table(path)
    assert found["name"].tolist() == ["Zoë", "José"]
    assert found["size"].tolist() == [1.5, 2.5]
    said = read_table(path, reading=Reading(encoding=encoding))
    pd.testing.assert_frame_equal(said, found)


def test_bytes_that_are_no_text_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(bytes(range(256)) * 4)
    with pytest.raises(TableError, match=r"must be a text in UTF-8, Latin-1 or UTF-16"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(TableError, match="an encoding must be one that Python knows"):
        Reading(encoding="klingon")


@pytest.mark.parametrize("sep", [";", "\t", "|"])
def test_separators_are_found_and_said(sep: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"a{sep}b\n1{sep}2\n")
    with pytest.warns(ReadingWarning, match="are separated by"):
        assert read_table(tmp_path / "t.csv").columns.tolist() == ["a", "b"]
    (tmp_path / "t.tsv").write_text("a\tb\n1\t2\n")
    assert read_table(tmp_path / "t.tsv").columns.tolist() == ["a", "b"]


def test_columns_are_chosen_by_options(run: Command, tables: Path) -> None:
    table = pd.read_csv("labeled.csv").assign(
        day=[f"{1 + i % 12:02}/{1 + i // 17:02}/2012" for i in range(200)],
        name=[f"n{i // 2}" for i in range(200)],
        order=range(200),
    )
    table.to_csv("labeled.csv", index=False)
    options = ("--drop", "heat", "--id", "name", "--keep", "order", "--date", "day=%d/%m/%Y")
    fitted = run(*FIT[:4], "--out", "m.gpn", *options)
    assert fitted.exit_code == 0, fitted.output
    model = gpn.load("m.gpn")
    assert model.encoder.names == ["size", "day", "order", "colour"]
    assert model.encoder.layouts == {"day": "%d/%m/%Y"}
    assert model.ids == ("name",)
    shown = done(run("suggest", "m.gpn", "labeled.csv", "-n", 2, "--json"))
    assert set(shown["values"][0]) == {"name", *model.encoder.names}
    assert run("suggest", "m.gpn", "labeled.csv", "-n", 3, "--out", "next.csv").exit_code == 0
    assert len(pd.read_csv("next.csv")) == 3


def test_each_note_comes_once(run: Command, tables: Path) -> None:
    fitted = run(*FIT)
    assert fitted.output.count("'colour' is a category of 3 values") == 1
    predicted = run("predict", "m.gpn", "ood.csv", "--out", "o.csv").stdout
    flagged = int(pd.read_csv("o.csv")["is_ood"].sum())
    assert f"{flagged} (" in predicted
    assert "0 rows with a value that the fit has not seen" in predicted
    inspected = run("inspect", "m.gpn").stdout
    assert "'yield', a number" in inspected
    assert "axes" not in inspected
    assert "axes" in run("inspect", "m.gpn", "--details").stdout


@pytest.mark.parametrize("target", ["yield", "grade"])
def test_a_fit_says_how_well_it_predicts_left_out_labels(target: str, tmp_path: Path) -> None:
    other = "grade" if target == "yield" else "yield"
    rows(150).drop(columns=other).to_csv(tmp_path / "t.csv", index=False)
    arguments = ["fit", tmp_path / "t.csv", "--target", target, "--out", tmp_path / "m.gpn"]
    fitted = done(CliRunner().invoke(app, [*map(str, arguments), "--json"]))["summary"]
    assert fitted["seconds"] > 0
    new = rows(300, 7)
    measured = gpn.load(tmp_path / "m.gpn").evaluate(new)
    if target == "yield":
        assert fitted["left_out_labels"] == 150
        assert fitted["r2"] == pytest.approx(measured["r2"], abs=0.02)
        assert fitted["ridge_r2"] > 0.9
        assert fitted["coverage_95"] == pytest.approx(0.95, abs=0.05)
    else:
        assert fitted["accuracy"] == pytest.approx(measured["accuracy"], abs=0.06)
        assert fitted["majority_accuracy"] < 0.6


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({"r2": 0.93, "ridge_r2": 0.95}, None),
        ({"r2": -0.2, "ridge_r2": -0.01}, "better than their mean does, got an R² of -0.200"),
        ({"r2": -0.18, "ridge_r2": 0.982}, "R² of -0.180 where ridge regression has 0.982"),
        ({"nll": 0.5, "majority_nll": 0.7}, None),
        ({"nll": 0.9, "majority_nll": 0.7}, "NLL of 0.900 where these have 0.700"),
        ({"seconds": 1.0}, None),
    ],
)
def test_a_fit_that_a_baseline_beats_says_so(summary: dict[str, float], said: str | None) -> None:
    found = behind_baseline(summary)
    assert found is None if said is None else said in str(found)


@pytest.mark.filterwarnings("ignore:a fit should see unlabeled rows")
def test_a_planted_shift_is_explained() -> None:
    """One column is moved; the explanation names it first, and what near rows have."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(200, 4)), columns=list("abcd"))
    table["b"] += table["a"]
    table["kind"] = rng.choice(["x", "y"], 200)
    table["target"] = table["a"] + table["c"]
    model = fit_table(table, "target", random_state=0)
    new = table.drop(columns="target").head(20).copy()
    moved = np.resize(["a", "b", "c", "d"], 20)
    for i, name in enumerate(moved):
        new.loc[i, name] += 8.0
    shifts = explain_rows(model, new, model.encoder.transform(new))
    assert np.mean([s[0].column == name for s, name in zip(shifts, moved, strict=True)]) >= 0.9
    assert all(s[0].score < 1 for s in shifts)
    known = explain_rows(model, table.head(20), model.encoder.transform(table.head(20)))
    assert sum(map(len, known)) <= 6


@pytest.mark.filterwarnings("ignore:a fit should see unlabeled rows")
@pytest.mark.filterwarnings("ignore:a fit should predict left-out labels better than their mean")
def test_an_explanation_writes_values_as_the_table_does() -> None:
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=120).strftime("%d.%m.%Y")
    table = pd.DataFrame({"day": days, "load": [f"{w:.1f} kg" for w in rng.normal(60, 5, 120)]})
    table["target"] = rng.normal(size=120)
    model = fit_table(table, "target", random_state=0)
    new = pd.DataFrame({"day": ["15.02.2024", "15.02.2031"], "load": ["900 kg", "60 kg"]})
    load, day = explain_rows(model, new, model.encoder.transform(new))
    assert (load[0].column, day[0].column) == ("load", "day")
    assert load[0].usual is not None
    assert load[0].usual.endswith(" kg")
    assert day[0].usual is not None
    assert day[0].usual.endswith(".2024")


def test_explanations_of_the_command(run: Command, tables: Path) -> None:
    run(*FIT)
    ood = pd.read_csv("ood.csv")
    ood.loc[:, "size"] = 9.0
    ood.loc[3, "colour"] = "purple"
    ood.to_csv("ood.csv", index=False)
    run("predict", "m.gpn", "ood.csv", "--out", "o.csv", "--explain")
    why = pd.read_csv("o.csv")["why"]
    assert why.str.contains("size = 9 (near rows: ", regex=False).mean() > 0.9
    assert why[3].startswith("colour = purple (never seen)")
    found = done(run("explain", "m.gpn", "ood.csv", "--row", 5, "--json"))
    assert found["columns"][0]["column"] == "size"
    assert "row 5 is flagged" in run("explain", "m.gpn", "ood.csv", "--row", 5).stdout
    assert "--row must be below 100" in run("explain", "m.gpn", "ood.csv", "--row", 100).stderr
    run(*FIT, "--forget-rows")
    assert "this model stores none" in run("explain", "m.gpn", "ood.csv", "--row", 5).stderr


def test_what_takes_long_says_so_on_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpn.cli.output.QUIET_SECONDS", 0.01)
    with heartbeat("fitting", as_json=False):
        time.sleep(0.2)
    assert capsys.readouterr().err.startswith("fitting: 0 s\n")
    with heartbeat("fitting", as_json=True):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, gpn.cli.commands; print({'torch', 'pandas', 'sklearn'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"


def test_points_are_thousands_where_the_decimal_mark_is_a_comma(tmp_path: Path) -> None:
    amounts = np.random.default_rng(0).integers(500, 30_000, 60)
    written = [f"{amount:,}".replace(",", ".") for amount in amounts]
    path, reading = tmp_path / "t.csv", Reading(sep=";", decimal=",")
    lines = [f"{text};{i % 7},5;{text}" for i, text in enumerate(written)]
    path.write_text("\n".join(["amount;b;y", *lines]))
    model = fit_table(
        read_table(path, reading=reading), "y", reading=reading, mean=None, random_state=0
    )
    again = read_table(path, model.texts, reading)
    assert np.array_equal(model.encoder.transform(again)[:, 0], amounts)
    assert model.encoder.medians["amount"] == np.median(amounts)
    assert model.evaluate(again)["rmse"] < 1000


def test_another_spelling_of_a_constant_is_not_explained() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=40), "b": rng.normal(size=40), "one": "1"})
    model = fit_table(table.assign(y=table["a"]), "y", mean=None, random_state=0)
    new = table[:2].assign(one=["1.0", "2"], a=0.0, b=0.0)
    with pytest.warns(UnseenWarning, match="'one': 1 of 2 rows"):
        assert model.predict(new)["is_ood"].tolist() == [False, True]
    found = explain_rows(model, new, np.zeros((2, 2)))
    assert [[str(shift) for shift in row] for row in found] == [[], ["one = 2 (never seen)"]]
