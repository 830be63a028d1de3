"""The command line, from a table to flagged rows; and every bad input that we could think of."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import gpn
from gpn.cli import app
from gpn.columns import Columns, TableError
from gpn.table_model import TableModel, fit_table, is_class

Command = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`run("fit", "a.csv", ...)` in a folder of its own, with short fits."""
    monkeypatch.chdir(tmp_path)
    short = gpn.TrainConfig(steps=60, label_batch=64, pool_batch=64, learning_rate=5e-3)
    for name in ("GPNRegressor", "GPNClassifier"):
        kind = getattr(gpn, name)
        config = gpn.GPNConfig(anchor="independent", beta=0.1, noise_std=0.2, train=short)
        made = partial(kind, config)
        monkeypatch.setattr(f"gpn.table_model.{name}", made)
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


def rows(n: int = 200, seed: int = 0, spread: float = 1.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "size": rng.uniform(-spread, spread, n),
            "heat": 300 + 50 * rng.uniform(-spread, spread, n),
            "colour": rng.choice(["red", "green", "blue"], n),
        }
    )
    table.loc[:4, "heat"] = np.nan
    table["yield"] = 10 * table["size"] + (table["colour"] == "red") + rng.normal(0, 0.1, n)
    table["grade"] = np.where(table["size"] > 0, "good", "bad")
    return table


@pytest.fixture
def tables(run: Command, tmp_path: Path) -> Path:
    """labeled.csv, pool.csv, test.csv and strangers.csv."""
    rows().drop(columns="grade").to_csv("labeled.csv", index=False)
    rows(400, 1, 3.0).drop(columns=["yield", "grade"]).to_csv("pool.csv", index=False)
    rows(100, 2).drop(columns="grade").to_csv("test.csv", index=False)
    strangers = rows(100, 3)
    strangers["size"] += 2.5
    strangers.to_csv("strangers.csv", index=False)
    return tmp_path


FIT = ("fit", "labeled.csv", "--target", "yield", "--unlabeled", "pool.csv", "--out", "m.gpn")


def done(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_from_a_table_to_flagged_rows(run: Command, tables: Path) -> None:
    told = run(*FIT)
    assert told.exit_code == 0, told.output
    assert "200 labeled rows; 'yield' holds numbers" in told.stderr
    assert "5 missing values of 'heat' are taken as its median" in told.stderr
    assert "'colour' is a category of 3 values" in told.stderr
    assert done(run("predict", "m.gpn", "test.csv", "--out", "scored.csv", "--json"))["rows"] == 100
    scored = pd.read_csv("scored.csv")
    wanted = ["mean", "std", "lower", "upper", "ood_score", "is_ood"]
    assert scored.columns.tolist() == ["size", "heat", "colour", "yield", *wanted]
    assert (scored["lower"] < scored["mean"]).all()
    assert np.corrcoef(scored["mean"], scored["yield"])[0, 1] > 0.9
    measured = done(run("evaluate", "m.gpn", "test.csv", "--strangers", "strangers.csv", "--json"))
    assert measured["rmse"] < 3
    assert measured["ood_auc"] > 0.9
    assert measured["strangers_flagged"] > measured["flagged"]
    assert sorted(os.listdir()) == sorted(
        ["labeled.csv", "pool.csv", "test.csv", "strangers.csv", "m.gpn", "scored.csv"]
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
    assert run("predict", "c.gpn", "strangers.csv", "--out", "s.parquet").exit_code == 0
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


def test_a_large_table_goes_through_in_pieces(
    run: Command, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows, whole and in pieces of 30; no more than that is ever held."""
    run(*FIT)
    run("predict", "m.gpn", "test.csv", "--out", "whole.csv")
    seen: list[int] = []
    predict = TableModel.predict

    def counted(self: TableModel, table: pd.DataFrame, *more: Any) -> pd.DataFrame:
        seen.append(len(table))
        return predict(self, table, *more)

    monkeypatch.setattr(TableModel, "predict", counted)
    monkeypatch.setattr("gpn.frames.pieces_of.__defaults__", ((), 30))
    for out in ("pieces.csv", "pieces.csv.gz", "pieces.parquet"):
        assert run("predict", "m.gpn", "test.csv", "--out", out).exit_code == 0
        read = pd.read_parquet if out.endswith("parquet") else pd.read_csv
        pd.testing.assert_frame_equal(
            read(out), pd.read_csv("whole.csv"), check_dtype=False, rtol=1e-5
        )
    assert seen == [30, 30, 30, 10] * 3


@pytest.mark.filterwarnings("ignore:a fit should see unlabeled rows")
@pytest.mark.parametrize("method", ["gp", "gpn"])
def test_a_function_is_one_function_however_many_pieces(
    method: str, run: Command, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole and in pieces of 30, a row has the same values under every function."""
    pd.read_csv("test.csv").head(40).to_csv("few.csv", index=False)
    assert run(*FIT, "--method", method).exit_code == 0
    drawn = []
    for rows_at_once in (1000, 30):
        monkeypatch.setattr("gpn.frames.pieces_of.__defaults__", ((), rows_at_once))
        assert run("sample", "m.gpn", "few.csv", "-n", 3, "--out", "draws.csv").exit_code == 0
        drawn.append(pd.read_csv("draws.csv"))
    pd.testing.assert_frame_equal(*drawn, rtol=1e-5)
    assert drawn[0].std().min() > 1, "and it is no constant"


def test_a_column_that_changes_type_is_named(
    run: Command, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet has one type per column, and a piece that does not fit comes late; CSV takes both."""
    run(*FIT)
    monkeypatch.setattr("gpn.frames.pieces_of.__defaults__", ((), 30))
    table = pd.read_csv("test.csv")
    table["batch"] = [str(i) if i < 60 else "none" for i in range(100)]
    table.to_csv("test.csv", index=False)
    check_refusal(run, (*PREDICT[:-1], "o.parquet"), "'batch' was int64 and is")
    said = run(*PREDICT[:-1], "o.parquet").stderr
    assert "from row 60 on (Failed to parse string: 'none'" in said
    assert run(*PREDICT).exit_code == 0
    assert len(pd.read_csv("o.csv")) == 100


def test_methods_demo_and_help(run: Command) -> None:
    assert "ensemble-or" in done(run("methods", "--json"))["methods"]
    for command in ("demo", "fit", "predict", "sample", "suggest", "evaluate", "methods"):
        shown = run(command, "--help")
        assert shown.exit_code == 0
        assert "Example: gpn" in shown.output


def spoil(name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[], Any]:
    return lambda: change(pd.read_csv(name)).to_csv(name, index=False)


def cut(name: str) -> Callable[[], Any]:
    return lambda: Path(name).write_bytes(Path(name).read_bytes()[:2000])


def empty(name: str) -> Callable[[], Any]:
    return lambda: Path(name).write_text("")


PREDICT = ("predict", "m.gpn", "test.csv", "--out", "o.csv")
BAD_FITS: list[tuple[Callable[[], Any], tuple[str, ...], str]] = [
    (lambda: None, (*FIT[:3], "nothing", *FIT[4:]), "target must be a column, got 'nothing'"),
    (
        spoil("labeled.csv", lambda t: t.assign(**{"yield": np.nan})),
        FIT,
        "must be known in every row",
    ),
    (spoil("labeled.csv", lambda t: t.assign(**{"yield": "same"})), FIT, "two classes at least"),
    (
        spoil("labeled.csv", lambda t: t.assign(id=[f"n{i}" for i in range(len(t))])),
        FIT,
        "'id' has 200",
    ),
    (spoil("labeled.csv", lambda t: t[["yield"]]), FIT, "must have columns beside 'yield'"),
    (
        spoil("labeled.csv", lambda t: t.assign(gap=np.nan)),
        FIT,
        "at least one number, 'gap' has none",
    ),
    (spoil("pool.csv", lambda t: t.head(0)), FIT, "at least one row, pool.csv has none"),
    (spoil("pool.csv", lambda t: t.drop(columns="heat")), FIT, "'heat' is missing"),
    (empty("labeled.csv"), FIT, "at least one row, labeled.csv has none"),
    (lambda: None, ("fit", "none.csv", *FIT[2:]), "a file that exists, got none.csv"),
    (lambda: None, ("fit", "labeled.txt", *FIT[2:]), "must end in .csv"),
    (
        lambda: None,
        (*FIT[:-1], "no/such/m.gpn"),
        "folder of no/such/m.gpn must exist and be writable",
    ),
    (lambda: None, (*FIT, "--method", "magic"), "a method must be one of"),
    (lambda: None, (*FIT, "--kind", "ordinal"), "kind must be auto, regression or classification"),
    (lambda: None, (*FIT, "--device", "cuda:7"), "device must be one that this machine has"),
]


def check_refusal(run: Command, arguments: tuple[str, ...], message: str) -> None:
    """Status 1 and one line that says why, as text or as JSON; no file appears or goes."""
    before = sorted(os.listdir())
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.count("error: ") == 1
    assert message in result.stderr
    as_json = run(*arguments, "--json")
    assert message in json.loads(as_json.stderr)["error"]
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(("spoilt", "arguments", "message"), BAD_FITS)
def test_bad_fits_are_refused_and_leave_nothing(
    spoilt: Callable[[], Any],
    arguments: tuple[str, ...],
    message: str,
    run: Command,
    tables: Path,
) -> None:
    spoilt()
    check_refusal(run, arguments, message)


BAD_QUESTIONS: list[tuple[Callable[[], Any], tuple[str, ...], str]] = [
    (spoil("test.csv", lambda t: t.drop(columns="size")), PREDICT, "'size' is missing"),
    (
        spoil("test.csv", lambda t: t.assign(size="tall")),
        PREDICT,
        "finite numbers, got 'tall'",
    ),
    (spoil("test.csv", lambda t: t.assign(size=np.inf)), PREDICT, "must hold finite numbers"),
    (empty("test.csv"), PREDICT, "at least one row"),
    (cut("m.gpn"), PREDICT, "truncated or of another kind"),
    (lambda: Path("m.gpn").write_bytes(b"PK"), PREDICT, "truncated or of another kind"),
    (lambda: Path("m.gpn").unlink(), PREDICT, "m.gpn does not exist"),
    (lambda: None, (*PREDICT[:-1], "no/o.csv"), "must exist and be writable"),
    (lambda: None, (*PREDICT[:-1], "o.xlsx"), "must end in .csv"),
    (lambda: None, (*PREDICT, "--level", "2"), "level must lie strictly between"),
    (lambda: None, ("evaluate", "m.gpn", "pool.csv"), "target must be a column, got 'yield'"),
]


@pytest.mark.parametrize(("spoilt", "arguments", "message"), BAD_QUESTIONS)
def test_bad_questions_are_refused_and_leave_nothing(
    spoilt: Callable[[], Any],
    arguments: tuple[str, ...],
    message: str,
    run: Command,
    tables: Path,
) -> None:
    run(*FIT)
    spoilt()
    check_refusal(run, arguments, message)


def test_a_wrong_option_is_status_2(run: Command) -> None:
    assert run("fit", "a.csv").exit_code == 2
    assert run("predict", "--nonsense").exit_code == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_writable(run: Command, tables: Path) -> None:
    Path("locked").mkdir(mode=0o500)
    result = run(*FIT[:-1], "locked/m.gpn")
    assert result.exit_code == 1
    assert "must exist and be writable" in result.stderr


def test_gpn_load_gives_the_model_of_a_table(run: Command, tables: Path) -> None:
    run(*FIT)
    model = gpn.load("m.gpn")
    assert isinstance(model, TableModel)
    assert model.target == "yield"
    assert model.predict(pd.read_csv("test.csv")).shape == (100, 6)
    gpn.save(model.estimator.posterior_, "p.gpn")
    refused = run("predict", "p.gpn", "test.csv", "--out", "o.csv")
    assert "without columns; use gpn.load" in refused.stderr


def test_the_command_is_installed() -> None:
    shown = subprocess.run([sys.executable, "-m", "gpn", "--help"], capture_output=True, text=True)
    assert shown.returncode == 0
    assert "suggest" in shown.stdout


def test_columns_survive_json_and_new_values() -> None:
    table = rows().drop(columns="grade")
    columns = Columns.of(table, "yield")
    again = Columns(**json.loads(json.dumps(columns.facts())))
    np.testing.assert_array_equal(again.encode(table), columns.encode(table))
    new = table.head(2).assign(colour=["violet", None], heat=[np.nan, 310.0])
    encoded = again.encode(new)
    assert encoded[0, 2:].sum() == 0, "an unknown category is none of the known ones"
    assert encoded[0, 1] == table["heat"].median()
    with pytest.raises(TableError, match="'size' is missing"):
        again.encode(new.drop(columns="size"))


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
    """ "01" is a category also in a file, or a piece, where all others are numbers."""
    code = np.where(np.arange(200) % 2, "01", "02")
    code[:9] = "A"
    rows().drop(columns="grade").assign(code=code).to_csv("labeled.csv", index=False)
    assert run("fit", "labeled.csv", "--target", "yield", "--out", "m.gpn").exit_code == 0
    rows(50, 4).assign(code="01").to_csv("coded.csv", index=False)
    assert run("predict", "m.gpn", "coded.csv", "--out", "o.csv").exit_code == 0
    assert set(pd.read_csv("o.csv", dtype={"code": str})["code"]) == {"01"}
    encoded = gpn.load("m.gpn").columns.encode(pd.read_csv("coded.csv", dtype={"code": str}))
    assert (encoded[:, -3] == 1).all()


def test_a_spoilt_number_in_the_target_is_named(run: Command, tables: Path) -> None:
    table = pd.read_csv("labeled.csv").astype({"yield": object})
    table.loc[7, "yield"] = "oops"
    table.to_csv("labeled.csv", index=False)
    result = run(*FIT)
    assert result.exit_code == 1
    assert "numbers but for 'oops' and 0 other cells" in result.stderr


def test_columns_that_would_be_overwritten_are_refused(run: Command, tables: Path) -> None:
    run(*FIT)
    pd.read_csv("test.csv").assign(mean=1.0).to_csv("test.csv", index=False)
    for out in ("o.csv", "o.parquet"):
        result = run("predict", "m.gpn", "test.csv", "--out", out)
        assert result.exit_code == 1
        assert "a column that is to be written, got 'mean'; rename it" in result.stderr
        assert not Path(out).exists()


def test_an_index_that_was_saved_is_no_feature(run: Command, tables: Path) -> None:
    pd.read_csv("labeled.csv").to_csv("labeled.csv")
    told = run(*FIT)
    assert "'Unnamed: 0' looks like a saved index and is left out" in told.stderr
    assert "Unnamed: 0" not in gpn.load("m.gpn").columns.names


def test_files_have_ordinary_permissions(run: Command, tables: Path) -> None:
    run(*FIT)
    run(*PREDICT)
    Path("plain").touch()
    assert len({os.stat(name).st_mode for name in ("plain", "m.gpn", "o.csv")}) == 1


@pytest.mark.parametrize("device", ["nonsense", "cuda:7"])
def test_devices_that_are_not_there(device: str, run: Command, tables: Path) -> None:
    run(*FIT)
    result = run(*PREDICT, "--device", device)
    assert result.exit_code == 1
    assert "device must be" in result.stderr
    other = run(*FIT, "--method", "ensemble", "--device", device)
    assert "for the method gpn only" in other.stderr


def test_a_folder_is_no_file(run: Command, tables: Path) -> None:
    Path("models").mkdir()
    assert "must be a file, got the folder models" in run(*FIT[:-1], "models").stderr


def test_one_row_has_no_r2(run: Command, tables: Path) -> None:
    run(*FIT)
    pd.read_csv("test.csv").head(1).to_csv("one.csv", index=False)
    assert done(run("evaluate", "m.gpn", "one.csv", "--json"))["r2"] is None


def test_names_are_texts_and_come_once() -> None:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 3)))
    columns = Columns.of(table, "2")
    assert columns.names == ["0", "1"]
    assert columns.encode(table).shape == (9, 2)
    table.columns = ["a", "a", "b"]
    with pytest.raises(TableError, match="a name of its own, got 'a' twice"):
        Columns.of(table, "b")
