"""The command line, from a table to flagged rows; and every bad input that we could think of."""

import gzip
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpn
from gpn.columns.column_types import TableError
from gpn.columns.encoder import TableEncoder, UnseenWarning
from gpn.tables.model import TableModel, fit_table
from gpn.tables.target import is_class
from gpn.training.state import LossTerms, TrainingState
from tests.cli.command import FIT, PREDICT, Command, check_refusal, done, rows


def test_from_a_table_to_flagged_rows(run: Command, tables: Path) -> None:
    fitted = run(*FIT)
    assert fitted.exit_code == 0, fitted.output
    assert "200 labeled rows; 'yield' holds numbers" in fitted.stderr
    assert "5 missing values of 'heat' are taken as its median" in fitted.stderr
    assert "'colour' is a category of 3 values" in fitted.stderr
    assert done(run("predict", "m.gpn", "test.csv", "--out", "scored.csv", "--json"))["rows"] == 100
    scored = pd.read_csv("scored.csv")
    wanted = ["mean", "std", "lower", "upper", "ood_score", "is_ood", "std_total"]
    assert scored.columns.tolist() == ["size", "heat", "colour", "yield", *wanted]
    assert (scored["lower"] < scored["mean"]).all()
    assert np.corrcoef(scored["mean"], scored["yield"])[0, 1] > 0.9
    measured = done(run("evaluate", "m.gpn", "test.csv", "--ood", "ood.csv", "--json"))
    assert measured["rmse"] < 3
    assert measured["ood_auc"] > 0.9
    assert measured["ood_flagged"] > measured["flagged"]
    assert measured["ood_rows"] == 100
    again = run("evaluate", "m.gpn", "test.csv", "--strangers", "ood.csv", "--json")
    assert again.stderr == "warning: --strangers is now called --ood.\n"
    assert done(again) == measured
    assert "strangers" not in run("evaluate", "--help").output
    assert sorted(os.listdir()) == sorted(
        ["labeled.csv", "pool.csv", "test.csv", "ood.csv", "m.gpn", "scored.csv"]
    ), "nothing is left lying about"


def test_classes_are_detected(run: Command, tables: Path) -> None:
    rows().drop(columns="yield").to_parquet("classes.parquet")
    result = done(
        run(
            "fit",
            "classes.parquet",
            "--target",
            "grade",
            "--unlabeled",
            "pool.csv",
            "--out",
            "c.gpn",
            "--json",
        )
    )
    assert result["kind"] == "classes"
    assert run("predict", "c.gpn", "ood.csv", "--out", "s.parquet").exit_code == 0
    scored = pd.read_parquet("s.parquet")
    assert {"class", "p_bad", "p_good", "entropy", "ood_score", "is_ood"} <= set(scored.columns)
    np.testing.assert_allclose(scored["p_bad"] + scored["p_good"], 1, atol=1e-6)
    rows(80, 5).to_csv("more.csv", index=False)
    assert done(run("evaluate", "c.gpn", "more.csv", "--json"))["accuracy"] > 0.8
    draws = done(run("sample", "c.gpn", "more.csv", "-n", 3, "--out", "d.csv", "--json"))
    assert draws["functions"] == 3
    assert set(pd.read_csv("d.csv")["draw_0"]) <= {"bad", "good"}


def test_samples_and_suggestions(run: Command, tables: Path) -> None:
    run(*FIT)
    assert run("sample", "m.gpn", "test.csv", "-n", 4, "--out", "draws.csv.gz").exit_code == 0
    with gzip.open("draws.csv.gz", "rt") as file:
        assert file.readline().strip() == "draw_0,draw_1,draw_2,draw_3"
    picked = done(run("suggest", "m.gpn", "pool.csv", "-n", 6, "--json"))["rows"]
    assert len(set(picked)) == 6
    assert run("suggest", "m.gpn", "pool.csv").exit_code == 0


def test_a_large_table_is_predicted_in_chunks(
    run: Command, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows, whole and in chunks of 30; no more than that is ever held."""
    run(*FIT)
    run("predict", "m.gpn", "test.csv", "--out", "whole.csv")
    seen: list[int] = []
    predict = TableModel.predict_inputs

    def counted(self: TableModel, x: Any, *options: Any) -> pd.DataFrame:
        seen.append(len(x))
        return predict(self, x, *options)

    monkeypatch.setattr(TableModel, "predict_inputs", counted)
    monkeypatch.setattr("gpn.tables.files.CHUNK_ROWS", 30)
    for out in ("chunks.csv", "chunks.csv.gz", "chunks.parquet"):
        assert run("predict", "m.gpn", "test.csv", "--out", out).exit_code == 0
        read = pd.read_parquet if out.endswith("parquet") else pd.read_csv
        pd.testing.assert_frame_equal(
            read(out), pd.read_csv("whole.csv"), check_dtype=False, rtol=1e-5
        )
    assert seen == [30, 30, 30, 10] * 3


@pytest.mark.filterwarnings("ignore:a fit should see unlabeled rows")
@pytest.mark.parametrize("method", ["gp", "gpn"])
def test_a_function_is_one_function_in_any_chunks(
    method: str, run: Command, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole and in chunks of 30, a row has the same values under every function."""
    pd.read_csv("test.csv").head(40).to_csv("few.csv", index=False)
    assert run(*FIT, "--method", method).exit_code == 0
    drawn = []
    for chunk_rows in (1000, 30):
        monkeypatch.setattr("gpn.tables.files.CHUNK_ROWS", chunk_rows)
        assert run("sample", "m.gpn", "few.csv", "-n", 3, "--out", "draws.csv").exit_code == 0
        drawn.append(pd.read_csv("draws.csv"))
    pd.testing.assert_frame_equal(*drawn, rtol=1e-5)
    assert drawn[0].std().min() > 1, "and it is no constant"


def test_a_column_that_changes_type_is_named(
    run: Command, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet has one type per column, and a chunk that does not fit comes late; CSV takes both."""
    run(*FIT)
    monkeypatch.setattr("gpn.tables.files.CHUNK_ROWS", 30)
    table = pd.read_csv("test.csv")
    table["batch"] = [str(i) if i < 60 else "none" for i in range(100)]
    table.to_csv("test.csv", index=False)
    check_refusal(run, (*PREDICT[:-1], "o.parquet"), "'batch' was int64 and is")
    message = run(*PREDICT[:-1], "o.parquet").stderr
    assert "from row 60 on (Failed to parse string: 'none'" in message
    assert run(*PREDICT).exit_code == 0
    assert len(pd.read_csv("o.csv")) == 100


def test_methods_demo_and_help(run: Command) -> None:
    assert "ensemble-or" in done(run("methods", "--json"))["methods"]
    for command in ("demo", "fit", "predict", "sample", "suggest", "evaluate", "methods"):
        shown = run(command, "--help")
        assert shown.exit_code == 0
        assert "Example: gpn" in shown.output


def test_gpn_load_gives_the_model_of_a_table(run: Command, tables: Path) -> None:
    run(*FIT)
    model = gpn.load("m.gpn")
    assert isinstance(model, TableModel)
    assert model.target == "yield"
    assert model.predict(pd.read_csv("test.csv")).shape == (100, 7)
    gpn.save(model.estimator.posterior_, "p.gpn")
    refused = run("predict", "p.gpn", "test.csv", "--out", "o.csv")
    assert "without columns; use gpn.load" in refused.stderr


def test_the_command_is_installed() -> None:
    shown = subprocess.run([sys.executable, "-m", "gpn", "--help"], capture_output=True, text=True)
    assert shown.returncode == 0
    assert "suggest" in shown.stdout


def test_columns_survive_json_and_new_values() -> None:
    table = rows().drop(columns="grade")
    columns = TableEncoder.fit(table, "yield")
    again = TableEncoder.from_dict(json.loads(json.dumps(columns.to_dict())))
    np.testing.assert_array_equal(again.transform(table), columns.transform(table))
    new = table.head(2).assign(colour=["violet", None], heat=[np.nan, 310.0])
    with pytest.warns(UnseenWarning, match="2 of 2 rows hold .* such as 'violet'; it knows 'blue'"):
        encoded = again.transform(new)
    assert encoded[0, 2:].sum() == 0, "an unknown category is none of the known ones"
    assert encoded[0, 1] == table["heat"].median()
    with pytest.raises(TableError, match="'size' is missing"):
        again.transform(new.drop(columns="size"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", "b"], True),
        ([True, False], True),
        ([0, 1, 2] * 3, True),
        ([100, 250, 900], False),
        (list(range(50)), False),
        ([0.5, 1.5], False),
        ([0.0, 1.0], False),
    ],
)
def test_what_counts_as_a_class(values: list[Any], expected: bool) -> None:
    assert is_class(pd.Series(values)) == expected


@pytest.mark.filterwarnings("ignore:a fit should see unlabeled rows")
def test_another_method_makes_a_model_of_a_table() -> None:
    table = rows(60).drop(columns=["yield", "colour"])
    model = fit_table(table, "grade", method="ensemble", device="cpu", random_state=0)
    assert model.evaluate(table)["accuracy"] > 0.8


def test_codes_are_read_as_they_stand(run: Command, tables: Path) -> None:
    """ "01" is a category also in a file, or a chunk, where all others are numbers."""
    code = np.where(np.arange(200) % 2, "01", "02")
    code[:9] = "A"
    rows().drop(columns="grade").assign(code=code).to_csv("labeled.csv", index=False)
    assert run("fit", "labeled.csv", "--target", "yield", "--out", "m.gpn").exit_code == 0
    rows(50, 4).assign(code="01").to_csv("coded.csv", index=False)
    assert run("predict", "m.gpn", "coded.csv", "--out", "o.csv").exit_code == 0
    assert set(pd.read_csv("o.csv", dtype={"code": str})["code"]) == {"01"}
    encoded = gpn.load("m.gpn").encoder.transform(pd.read_csv("coded.csv", dtype={"code": str}))
    assert (encoded[:, -3] == 1).all()


def test_an_index_that_was_saved_is_no_feature(run: Command, tables: Path) -> None:
    pd.read_csv("labeled.csv").to_csv("labeled.csv")
    fitted = run(*FIT)
    assert "'Unnamed: 0' looks like a saved index and is left out" in fitted.stderr
    assert "Unnamed: 0" not in gpn.load("m.gpn").encoder.names


def test_files_have_ordinary_permissions(run: Command, tables: Path) -> None:
    run(*FIT)
    run(*PREDICT)
    Path("plain").touch()
    assert len({os.stat(name).st_mode for name in ("plain", "m.gpn", "o.csv")}) == 1


def test_one_row_has_no_r2(run: Command, tables: Path) -> None:
    run(*FIT)
    pd.read_csv("test.csv").head(1).to_csv("one.csv", index=False)
    assert done(run("evaluate", "m.gpn", "one.csv", "--json"))["r2"] is None


def test_names_are_texts_and_come_once() -> None:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 3)))
    columns = TableEncoder.fit(table, "2")
    assert columns.names == ["0", "1"]
    assert columns.transform(table).shape == (9, 2)
    table.columns = ["a", "a", "b"]
    with pytest.raises(TableError, match="column names must differ, got 'a' twice"):
        TableEncoder.fit(table, "b")


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_ctrl_c_leaves_the_model_that_was_there(
    run: Command, tables: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    """Status 130, as shells have it, one line, and no file changes or appears."""
    done(run(*FIT, "--json"))
    before, names = Path("m.gpn").read_bytes(), sorted(os.listdir())
    record, steps = TrainingState.record, itertools.count(1)

    def stopped(self: TrainingState, terms: LossTerms) -> None:
        if next(steps) == 40:
            raise KeyboardInterrupt
        record(self, terms)

    monkeypatch.setattr(TrainingState, "record", stopped)
    result = run(*FIT, "--seed", "1", *option)
    assert result.exit_code == 130
    assert result.stderr.count("stopped by Ctrl-C") == 1
    assert "Traceback" not in result.output
    assert (Path("m.gpn").read_bytes(), sorted(os.listdir())) == (before, names)


def test_a_folder_of_tables_is_predicted(run: Command, tables: Path) -> None:
    run(*FIT)
    (tables / "new").mkdir()
    for number in range(2):
        rows(30, number).drop(columns=["yield", "grade"]).to_parquet(f"new/{number}.parquet")
    result = done(run("predict", "m.gpn", "new", "--out", "scored", "--json"))
    assert result["rows"] == 60
    assert sorted(path.name for path in (tables / "scored").iterdir()) == ["0.parquet", "1.parquet"]
    scored = pd.concat(pd.read_parquet(path) for path in sorted((tables / "scored").iterdir()))
    assert result["flagged"] == scored["is_ood"].sum()
    refused = run("predict", "m.gpn", "new", "--out", "scored", "--explain")
    assert "--explain must go with one table, got a folder" in refused.stderr
    refused = run("predict", "m.gpn", "test.csv", "--out", "o.csv", "--engine", "ray")
    assert "--engine ray must go with a folder of Parquet files, got test.csv" in refused.stderr
    refused = run("predict", "m.gpn", "new", "--out", "scored", "--engine", "flink")
    assert "--engine must be one of local, ray, dask, got 'flink'" in refused.stderr
