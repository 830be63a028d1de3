"""Tables of everyday life: identities, dates, codes, values that a model has not seen."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import typer

import gpn
from gpn.cli.output import errors
from gpn.core.priors.cholesky import NotPositiveDefinite, cholesky
from tests.cli.command import FIT, PREDICT, Command, check_refusal, done, rows


def test_identities_dates_and_codes_of_a_csv(run: Command, tables: Path) -> None:
    days = pd.date_range("2024-01-01", periods=200, freq="h")
    zips = np.resize(["00012", "10115", "20095"], 200)
    labeled = pd.read_csv("labeled.csv").assign(day=days, zip=zips)
    labeled["id"] = [f"n{i}" for i in range(200)]
    labeled.to_csv("labeled.csv", index=False)
    pool = pd.read_csv("pool.csv").assign(day="2024-01-03", zip="00012")
    pool.to_csv("pool.csv", index=False)
    notes = done(run(*FIT, "--json"))["columns"]
    assert "'id' has 200 values in 200 rows and is left out" in notes
    assert "'day' holds dates" in notes
    assert "'zip' is a category of 3 values" in notes
    new = pd.read_csv("test.csv").assign(day="2024-01-02", zip="00012", batch="007")
    new.to_csv("test.csv", index=False)
    assert run(*PREDICT).exit_code == 0, "with no id at all"
    scored = pd.read_csv("o.csv", dtype=str)
    assert len(scored) == 100
    assert set(scored["batch"]) == {"007"}, "what the model does not read comes out as it went in"


def test_unseen_values_are_flagged_and_told_once(
    run: Command, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*FIT)
    monkeypatch.setattr("gpn.tables.files.CHUNK_ROWS", 30)
    table = pd.read_csv("test.csv")
    table.loc[20:, "colour"] = "purple"
    table.to_csv("test.csv", index=False)
    done = run(*PREDICT)
    assert done.exit_code == 0
    said = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert len(said) == 1
    assert said[0].startswith("warning: 'colour': 80 of 100 rows hold values that the fit has")
    assert pd.read_csv("o.csv")["is_ood"][20:].all()


def test_nothing_but_what_is_said_goes_to_a_pipe(run: Command, tables: Path) -> None:
    """No counter of rows, and no blank line of one; pandas' own index does not matter."""
    lines = [line for line in run(*FIT).stderr.splitlines() if not line.startswith("fitting: ")]
    assert lines[1:] == [
        "400 unlabeled rows",
        "5 missing values of 'heat' are taken as its median, "
        f"{pd.read_csv('labeled.csv')['heat'].median():.4g}",
        "'colour' is a category of 3 values",
    ]
    assert run(*FIT, "--json").stderr == ""
    assert run(*PREDICT, "--json").stderr == ""
    assert run("sample", "m.gpn", "test.csv", "--out", "d.csv", "--json").stderr == ""
    report = run("report", "m.gpn", "test.csv", "--out", "r.html", "--json")
    assert done(report)["rows"] == 100
    assert report.stderr == ""


def test_a_level_of_a_classifier_is_checked(run: Command, tables: Path) -> None:
    rows().drop(columns="yield").to_csv("labeled.csv", index=False)
    assert run(*FIT[:3], "grade", *FIT[4:]).exit_code == 0
    check_refusal(run, (*PREDICT, "--level", "95"), "level must lie strictly between 0 and 1")


def test_columns_of_one_name_are_refused(run: Command, tables: Path) -> None:
    Path("twice.csv").write_text("a,b,a,yield\n" + "1,2,3,4\n" * 30)
    check_refusal(run, ("fit", "twice.csv", *FIT[2:]), "column names must differ, got 'a' twice")


def test_a_count_that_was_never_seen_is_explained(run: Command, tables: Path) -> None:
    table = pd.read_csv("labeled.csv").assign(**{"yield": np.arange(200) % 5})
    table.to_csv("labeled.csv", index=False)
    assert done(run(*FIT, "--json"))["kind"] == "classes"
    table.assign(**{"yield": 9}).to_csv("test.csv", index=False)
    check_refusal(run, ("evaluate", "m.gpn", "test.csv"), "fit it as numbers: gpn fit --kind reg")


def test_classes_of_codes_keep_their_zeros(run: Command, tables: Path) -> None:
    code = np.where(np.arange(200) % 2, "01", "1")
    pd.read_csv("labeled.csv").assign(**{"yield": code}).to_csv("labeled.csv", index=False)
    assert done(run(*FIT, "--json"))["kind"] == "classes"
    assert gpn.load("m.gpn").estimator.classes_.tolist() == ["01", "1"]
    assert done(run("evaluate", "m.gpn", "labeled.csv", "--json"))["rows"] == 200


@pytest.mark.parametrize(
    "error",
    [
        NotPositiveDefinite("a matrix must be positive definite"),
        MemoryError(),
        OverflowError("too large"),
        ValueError("wrong"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_are_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        with pytest.raises(typer.Exit), errors(as_json=as_json):
            raise error
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        text = json.loads(message)["error"] if as_json else message.removeprefix("error: ").strip()
        assert text == (str(error) or "MemoryError")


def test_a_matrix_without_a_factor_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), errors(as_json=False):
        cholesky(-torch.eye(3), "the covariance")
    assert capsys.readouterr().err.count("\n") == 1
