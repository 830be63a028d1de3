"""The command: result files, resuming, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments import __main__ as command
from experiments.tables import run
from experiments.tables.methods import METHODS
from experiments.tables.methods.boosting import GradientBoosting

METRICS = {"rmse", "nll", "crps", "coverage_95", "width_95", "fit_seconds", "predict_seconds"}


def suite(folder: Path, *words: str, method: str = "gradient-boosting") -> None:
    command.main(["tables", "--tables", str(folder), "--methods", method, "--threads", "1", *words])


def saved(results: Path, table: str = "line") -> dict[str, Any]:
    return json.loads((results / "tables" / table / "gradient-boosting.json").read_text())


def test_a_result_file_has_the_format_of_the_others(
    fast: None, results: Path, write_table: Callable[..., Path]
) -> None:
    suite(write_table(n=100))
    report = saved(results)
    assert report["config"] == {"folds": 5, "max_iter": 20}
    assert {"gpn", "torch", "sklearn"} <= report["versions"].keys()
    assert report["device"] == "CPU, 1 threads"
    assert report["seeds"] == [0, 1, 2, 3, 4] == [row["split"] for row in report["rows"]]
    assert report["metrics"].keys() == METRICS
    assert all(each.keys() == {"mean", "std", "n"} for each in report["metrics"].values())
    for name in METRICS:
        values = [row[name] for row in report["rows"]]
        assert report["metrics"][name]["mean"] == pytest.approx(sum(values) / 5)
    assert {row["n_train"] for row in report["rows"]} == {90}


def test_finished_splits_are_not_run_again(
    fast: None,
    results: Path,
    write_table: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = write_table(n=100)
    suite(folder, "--splits", "0", "2")
    first = saved(results)
    assert first["seeds"] == [0, 2]
    suite(folder, "--splits", "1", "2")
    second = saved(results)
    assert second["seeds"] == [0, 1, 2]
    assert second["rows"][::2] == first["rows"]
    monkeypatch.setattr(run, "run_split", None)  # nothing is left to run
    capsys.readouterr()
    suite(folder, "--splits", "0", "1", "2")
    assert capsys.readouterr().out == ""


def test_other_settings_start_anew(
    fast: None, results: Path, write_table: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_table(n=100)
    suite(folder, "--splits", "0")
    monkeypatch.setitem(METHODS, "gradient-boosting", GradientBoosting(folds=3, max_iter=10))
    suite(folder, "--splits", "1")
    assert saved(results)["seeds"] == [1]


def test_only_the_tables_that_are_named(
    fast: None, results: Path, write_table: Callable[..., Path]
) -> None:
    write_table("first", n=60)
    folder = write_table("second", n=60)
    suite(folder, "--splits", "0", "--tables-only", "second")
    assert [path.name for path in (results / "tables").iterdir()] == ["second"]
    with pytest.raises(SystemExit, match="must be one of first, second, got third"):
        suite(folder, "--tables-only", "third")


def test_a_failed_split_does_not_stop_the_others(
    fast: None,
    results: Path,
    write_table: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = run.run_split
    monkeypatch.setattr(run, "run_split", lambda job: whole(job) if job.split else 1 / 0)
    with pytest.raises(SystemExit, match="error: 1 of 2 splits failed"):
        suite(write_table(n=60), "--splits", "0", "1")
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert saved(results)["seeds"] == [1]


def test_a_missing_package_is_one_line(
    write_table: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ngboost", None)
    with pytest.raises(
        SystemExit, match=r"^error: .*package ngboost.*gpn\[experiments\]"
    ) as caught:
        suite(write_table(), method="ngboost")
    assert "\n" not in str(caught.value)


def test_several_processes_write_the_same_file(
    results: Path, write_table: Callable[..., Path]
) -> None:
    suite(write_table(n=60), "--splits", "0", "1", "--jobs", "2")
    assert saved(results)["seeds"] == [0, 1]
