"""Finished runs are not repeated, truncated ones are, and no row of another run is lost."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpn
from experiments import harness
from experiments.paper import contamination, scalability
from experiments.paper.context import RunContext
from experiments.paper.plans import PLANS
from experiments.paper.protocol import Run, confirm, run_method, run_one, run_seed
from experiments.paper.resume import finished_report, same_config
from tests.experiments.conftest import quiet, tiny

TASK = "superconductor"


@pytest.fixture
def context(table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunContext:
    """A folder of its own, and a plan that takes a second or two."""
    tiny(monkeypatch, TASK)
    return RunContext(TASK, tmp_path, device="cpu")


def choose_first(context: RunContext) -> None:
    """As if the protocol had chosen the first value of every method."""
    for method in PLANS[TASK].methods:
        first = PLANS[TASK].grid(method)[1][0]
        harness.save(context.file(method), {"choice": {"chosen": first}})


def rows_in(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["rows"]


class TestFiles:
    def test_a_write_that_fails_leaves_the_file_as_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = harness.save(tmp_path / "a.json", {"old": 1})

        def full(handle: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            harness.save(path, {"new": 2})
        assert json.loads(path.read_text()) == {"old": 1}
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("content", [b"", b'{"setting": {"noise', b"\xff\xfe", b"[1]"])
    def test_a_truncated_file_counts_as_missing(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_bytes(content)
        assert harness.load(tmp_path / "a.json") is None
        assert harness.load(tmp_path / "b.json") is None

    def test_a_truncated_run_is_repeated(self, context: RunContext) -> None:
        first = run_one(context, "gp", 0.1, log=quiet)
        path = Run(context, "gp", 0.1).path
        path.write_bytes(path.read_bytes()[:100])
        again = run_one(context, "gp", 0.1, log=quiet)
        assert again["valid"] == first["valid"]

    def test_results_name_the_version_of_gpn(self) -> None:
        assert harness.versions()["gpn"] == gpn.__version__


class TestRuns:
    def test_a_run_of_other_rows_or_other_steps_is_another_run(
        self, context: RunContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quick, other = (replace(context, quick=share) for share in (0.5, 0.6))
        run_one(quick, "dropout", 0.05, log=quiet)
        assert Run(quick, "dropout", 0.05).saved() is not None
        assert Run(other, "dropout", 0.05).saved() is None
        assert Run(context, "dropout", 0.05).saved() is None
        elsewhere = replace(quick, device="auto")
        assert Run(elsewhere, "dropout", 0.05).saved() is not None
        tiny(monkeypatch, TASK, train=PLANS[TASK].train.replace(learning_rate=0.1))
        assert Run(quick, "dropout", 0.05).saved() is None

    def test_open_values_may_be_anything_and_devices_do_not_count(self) -> None:
        config = {"anchor": "auto", "prior": None, "train": {"steps": 3, "device": "cpu"}, "new": 1}
        saved = {"anchor": "joint", "prior": {"a": 1}, "train": {"steps": 3, "device": "cuda"}}
        assert same_config(config, saved)
        assert not same_config(config, {**saved, "train": {"steps": 4}})
        assert not same_config(config, None)

    def test_a_complete_summary_is_enough(
        self, context: RunContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in a fresh clone, which has no files of single runs."""
        lines: list[str] = []
        for run in (run_method, confirm):
            run(context, "gp", quiet)
        shutil.rmtree(context.results / TASK / "runs")
        before = {path: path.read_bytes() for path in context.results.rglob("*.json")}
        for run in (run_method, confirm):
            run(context, "gp", lines.append)
        assert [line.count("gp is finished") for line in lines] == [1, 1]
        assert "delete that file" in lines[0]
        assert {path: path.read_bytes() for path in context.results.rglob("*.json")} == before
        tiny(monkeypatch, TASK, seeds=3)
        assert run_method(context, "gp", quiet)["seeds"] == [0, 1, 2]

    @pytest.mark.parametrize("method", PLANS[TASK].methods)
    def test_the_summaries_of_this_repository_are_complete(self, method: str) -> None:
        """So that whoever clones it does not train for hours to see the same table."""
        for task in (task for task in PLANS if method in PLANS[task].methods):
            context, seeds = RunContext(task), range(PLANS[task].seeds)
            values = context.values(method)
            assert finished_report(context, method, values, seeds, method), task

    def test_one_seed_uses_the_choice_or_makes_it(self, context: RunContext) -> None:
        lines: list[str] = []
        run_seed(context, "gp", 3, lines.append)
        assert len(lines) == 5 + 1
        assert not context.file("gp").exists(), "one seed is no summary"
        chosen = run_method(context, "gp", lines.append)["choice"]["chosen"]
        assert len(lines) == 5 + 1 + 2
        run_seed(context, "gp", 4, lines.append)
        assert len(lines) == 5 + 1 + 2 + 1
        assert f"noise_std={chosen} seed 4 (test)" in lines[-1]


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Fits that take no time, forty at most: the method and the seed of each."""
    made: list[tuple[str, int]] = []

    def fit(context: Any, split: Any, method: Any, seed: int) -> tuple[None, dict[str, Any]]:
        made.append((type(method).__name__, seed))
        config = harness.plain(method.config)
        return None, {"seed": seed, "seconds": {"fit": 1.0}, "config": config, "device": "CPU"}

    def timed(method: Any, task: Any, seed: int) -> tuple[None, float]:
        if len(made) >= 40:
            raise KeyboardInterrupt
        made.append((type(method).__name__, seed))
        return None, 1.0

    monkeypatch.setattr(scalability, "evaluate", lambda *_, **__: {"ood_auc": 0.5})
    monkeypatch.setattr(contamination, "fit", fit)
    monkeypatch.setattr(contamination, "evaluate", lambda *_: {"ood_auc": 0.5})
    monkeypatch.setattr(harness, "timed_fit", timed)
    monkeypatch.setattr(scalability, "JoinedEnsembles", list)
    return made


class TestContamination:
    def test_one_seed_leaves_the_rows_of_the_others(
        self, context: RunContext, fitted: list[tuple[str, int]]
    ) -> None:
        choose_first(context)
        path = contamination.run_contamination(context, quiet)
        assert len(rows_in(path)) == len(fitted) == 2 * 5 * 3
        before = rows_in(path)
        contamination.run_contamination(context, quiet, seed=1)
        assert rows_in(path) == before
        contamination.run_contamination(context, quiet, seed=7)
        assert rows_in(path)[:30] == before
        assert [row["seed"] for row in rows_in(path)[30:]] == [7] * 15

    def test_a_summary_without_its_runs_is_added_to_and_not_written_over(
        self, context: RunContext, fitted: list[tuple[str, int]]
    ) -> None:
        choose_first(context)
        path = contamination.run_contamination(context, quiet, seed=0)
        shutil.rmtree(path.parent / "runs")
        whole = path.read_bytes()
        contamination.run_contamination(context, quiet, seed=0)
        assert len(fitted) == 15, "rows of the summary are finished"
        assert path.read_bytes() == whole
        contamination.run_contamination(context, quiet, methods=["gpn"])
        assert len(fitted) == 15 + 5
        assert len(rows_in(path)) == 15 + 5

    def test_rows_of_another_value_are_repeated_and_replaced(
        self, context: RunContext, fitted: list[tuple[str, int]]
    ) -> None:
        choose_first(context)
        contamination.run_contamination(context, quiet)
        other = PLANS[TASK].betas[1]
        harness.save(context.file("gpn"), {"choice": {"chosen": other}})
        path = contamination.run_contamination(context, quiet)
        assert len(fitted) == 30 + 10
        assert len(rows_in(path)) == 30
        assert {row["beta"] for row in rows_in(path) if row["method"] == "gpn"} == {other}


class TestScalability:
    def test_a_stopped_run_resumes_and_the_old_file_stays_until_then(
        self, context: RunContext, fitted: list[tuple[str, int]]
    ) -> None:
        choose_first(context)
        path, lines = context.file("scalability"), []
        row = {"method": "gpn", "how": "1 of the steps", "members": 0, "seconds": 9.0}
        harness.save(path, {"device": "another", "rows": [{**row, "metrics": {"ood_auc": 0.1}}]})
        before = path.read_bytes()
        fitted.extend(
            [("earlier", 0)] * 30
        )  # ten are left: six of a GPN, four of OR, with wake-ups
        with pytest.raises(KeyboardInterrupt):
            scalability.run_scalability(context, lines.append)
        assert path.read_bytes() == before
        assert len(lines) == 5 + 3
        fitted.clear()
        scalability.run_scalability(context, lines.append)
        assert len(lines) == 5 + 6 + 6, "no row is measured twice"
        assert [row["members"] for row in rows_in(path)] == [0] * 5 + [2, 4, 6, 8, 10, 10] * 2
        assert all(row["seconds"] < 9 or row["members"] == 10 for row in rows_in(path))

    def test_a_finished_file_is_not_touched_with_or_without_its_runs(
        self, context: RunContext, fitted: list[tuple[str, int]]
    ) -> None:
        choose_first(context)
        path, lines = scalability.run_scalability(context, quiet), []
        before = path.read_bytes()
        shutil.rmtree(path.parent / "runs")
        fitted.clear()
        scalability.run_scalability(context, lines.append)
        assert path.read_bytes() == before
        assert not fitted
        assert "is finished" in lines[0]
        assert "delete that file" in lines[0]
