"""The experiments' command line: what it runs, where results go, and what it refuses."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import gpn
from experiments import __main__ as command
from experiments import harness
from experiments.paper.context import RunContext
from experiments.paper.figures import FIGURES
from experiments.paper.plans import PLANS
from gpn.data import tables
from tests.experiments.conftest import tiny

TASK = "superconductor"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of results and cache."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    return tmp_path


def refused(*arguments: str) -> str:
    """The error message, which must be one line, with exit status 1."""
    with pytest.raises(SystemExit) as caught:
        command.main(list(arguments))
    message = caught.value.code
    assert isinstance(message, str), "a text gives exit status 1"
    assert message.startswith("error: ")
    assert "\n" not in message
    return message


class TestSeeds:
    def test_a_seed_alone_takes_the_chosen_setting(
        self, folder: Path, table: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tiny(monkeypatch, TASK)
        command.main(["run", TASK, "--method", "gp", "--seed", "1", "--device", "cpu"])
        names = [path.name for path in (folder / "results" / TASK / "runs").iterdir()]
        assert len([name for name in names if name.endswith("-valid.json")]) == 5
        assert len([name for name in names if name.endswith("-1.json")]) == 1

    @pytest.mark.parametrize("words", [["run", "mnist"], ["contamination", "mnist"], ["all"]])
    @pytest.mark.parametrize("seed", ["-1", "1.5", "one", "", "99999999999999999999"])
    def test_other_seeds_are_refused(
        self, words: list[str], seed: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            command.main([*words, f"--seed={seed}"])
        assert f"must be a whole number from 0 to 4294967295, got {seed!r}" in (
            capsys.readouterr().err
        )


class TestErrors:
    def test_devices_that_are_not_there(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
        for name in ("foo", "cuda"):
            message = refused("run", TASK, "--device", name)
            assert "device must be" in message
            assert repr(name) in message

    @pytest.mark.parametrize("task", PLANS)
    def test_a_data_folder_that_cannot_be_looked_up(self, task: str, folder: Path) -> None:
        method = PLANS[task].methods[0]
        message = refused("run", task, "--quick", "--method", method, "--data", "x" * 300)
        assert "must be a path that can be looked up" in message

    def test_a_table_that_is_cut(self, folder: Path) -> None:
        path = folder / "superconductivity" / "train.csv"
        path.parent.mkdir()
        path.write_text(",".join([*tables.COLUMNS, tables.TARGET]) + "\n1,2")
        message = refused("run", TASK, "--quick", "--method", "gp", "--data", str(folder))
        assert "there must be 21263 rows below the names, got 1" in message

    def test_results_that_cannot_be_written(
        self, folder: Path, table: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (folder / "cache").write_text("a file where a folder must be")
        refused("run", TASK, "--quick", "--method", "gp", "--device", "cpu")

    @pytest.mark.parametrize("bug", [ValueError("x"), TypeError("x"), KeyError("x")])
    def test_a_bug_keeps_its_traceback(
        self, bug: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(options: Any) -> None:
            raise bug

        monkeypatch.setitem(command.COMMANDS, "table", broken)
        with pytest.raises(type(bug)):
            command.main(["table", "mnist"])


class TestQuick:
    def test_it_says_what_it_runs_and_resumes(
        self, folder: Path, table: SimpleNamespace, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["run", TASK, "--quick", "--method", "gp", "--device", "cpu"]
        command.main(words)
        first = capsys.readouterr().out.splitlines()
        results = folder / "cache" / "gpn" / "quick"
        assert "10.0% of the rows, 600 steps, one setting, one seed" in first[0]
        assert str(results) in first[0]
        assert len(first) == 1 + 2
        assert (results / TASK / "gp.json").exists()
        assert not (folder / "results").exists()
        command.main(words)
        again = capsys.readouterr().out.splitlines()
        assert again[0] == first[0]
        assert "gp is finished" in again[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["again", "mnist"], ["confirm", "mnist"]),
        (["shares", "mnist", "--seed", "1"], ["contamination", "mnist", "--seed", "1"]),
        (["figure", "shares"], ["figure", "contamination"]),
    ],
)
def test_former_names_still_work_with_a_warning(words: list[str], expected: list[str]) -> None:
    with pytest.warns(FutureWarning, match=f"is now called {expected[0].removeprefix('figure')}"):
        assert command._renamed(words) == expected


Calls = list[tuple[Any, ...]]


@pytest.fixture
def calls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Every experiment, table and figure is recorded in place of being run."""
    made: Calls = []

    def recorded(name: str) -> Callable[..., str]:
        def record(*arguments: Any, **options: Any) -> str:
            plain = [a.task if isinstance(a, RunContext) else a for a in arguments]
            made.append((name, *plain, *options.values()))
            return name

        return record

    for module, names in {
        "experiments.paper.protocol": ("run_method", "run_seed", "run_one"),
        "experiments.paper.contamination": ("run_contamination",),
        "experiments.paper.scalability": ("run_scalability",),
        "experiments.paper.figures": ("figure",),
        "experiments.__main__": ("tables",),
    }.items():
        for name in names:
            monkeypatch.setattr(f"{module}.{name}", recorded(name))
    return made


def named(calls: Calls, name: str) -> list[tuple[Any, ...]]:
    return [call[1:] for call in calls if call[0] == name]


class TestAll:
    def test_every_task_then_follow_ups_then_tables_and_figures(self, calls: Calls) -> None:
        command.main(["all"])
        assert len(named(calls, "run_method")) == sum(len(p.methods) for p in PLANS.values())
        contaminated = [task for task, _ in named(calls, "run_contamination")]
        assert contaminated == ["superconductor", "mnist", "cifar10"]
        assert [task for task, _ in named(calls, "run_scalability")] == [
            "superconductor",
            "cifar10",
        ]
        last = [("tables", task) for task in PLANS] + [("figure", name) for name in FIGURES]
        assert calls[-len(last) :] == last

    def test_one_method_is_all_that_is_run(self, calls: Calls) -> None:
        command.main(["all", "--method", "ensemble-pr"])
        assert {method for _, method in named(calls, "run_method")} == {"ensemble-pr"}
        assert not named(calls, "run_contamination")
        assert {tuple(methods) for _, methods in named(calls, "run_scalability")} == {
            ("ensemble-pr",)
        }

    def test_one_setting_or_one_seed_is_all_that_is_run(self, calls: Calls) -> None:
        third = {task: plan.betas[2] for task, plan in PLANS.items()}
        for words, name, rest in (
            (["--seed", "3"], "run_seed", lambda task: (3,)),
            (["--setting", "2"], "run_one", lambda task: (third[task], None)),
            (["--setting", "2", "--seed", "3"], "run_one", lambda task: (third[task], 3)),
        ):
            calls.clear()
            command.main(["all", "--method", "gpn", *words])
            assert named(calls, name) == [(task, "gpn", *rest(task)) for task in PLANS]
            assert {call[0] for call in calls} == {name, "tables", "figure"}

    def test_a_figure_without_results_does_not_stop_the_others(
        self, calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def missing(name: str) -> None:
            raise FileNotFoundError("a figure needs result files")

        monkeypatch.setattr("experiments.paper.figures.figure", missing)
        command.main(["all", "--method", "gp"])
        assert capsys.readouterr().out.count("a figure needs result files") == len(FIGURES)

    def test_a_quick_run_ends_with_the_tasks(self, calls: Calls) -> None:
        command.main(["all", "--quick", "--method", "gpn"])
        assert {call[0] for call in calls} == {"run_method"}


class TestOtherOODSets:
    @pytest.fixture
    def small(self, folder: Path, pictures: None, monkeypatch: pytest.MonkeyPatch) -> Path:
        trunk = gpn.ConvTrunk(channels=(2,), widths=(8,))
        train = gpn.TrainConfig(steps=2, label_batch=16, pool_batch=16)
        tiny(monkeypatch, "cifar10", trunk=trunk, ensemble_trunk=trunk, train=train, seeds=1)
        monkeypatch.setitem(command.QUICK_SHARE, "cifar10", 0.5)
        return folder / "cache" / "gpn" / "quick"

    @pytest.mark.parametrize(
        ("name", "results"),
        [("svhn", "cifar10-svhn"), ("own.npz", "cifar10-own"), ("svhn10k", "cifar10")],
    )
    def test_their_results_have_a_folder_of_their_own(
        self, name: str, results: str, small: Path
    ) -> None:
        words = ["--quick", "--method", "dropout", "--device", "cpu", "--ood", name]
        command.main(["run", "cifar10", *words])
        assert [path.name for path in small.iterdir()] == [results]
        report = harness.load(small / results / "dropout.json")
        assert report is not None
        assert report["task"] == results

    def test_images_of_another_shape_are_refused(self, small: Path) -> None:
        words = ["--quick", "--method", "dropout", "--device", "cpu", "--ood", "fashion-mnist"]
        message = refused("run", "cifar10", *words)
        assert "must have the shape (3, 32, 32) of cifar10's, got (1, 28, 28)" in message

    def test_the_labeled_set_and_other_tasks_are_refused(self, small: Path) -> None:
        words = ["--quick", "--method", "dropout", "--device", "cpu", "--ood", "cifar10"]
        assert "must differ from the labeled set" in refused("run", "cifar10", *words)
        assert "--ood must go with cifar10" in refused("run", "mnist", "--ood", "svhn")

    def test_a_path_is_no_name(self, folder: Path) -> None:
        message = refused("run", "cifar10", "--ood", "../svhn")
        assert "the name of an image set must be one of" in message
