"""What is done is not done again, what is cut is, and no row of another run is lost."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpn
from experiments import results
from experiments.paper import pool_share, scalability
from experiments.paper.finished import complete, same_config
from experiments.paper.place import Place
from experiments.paper.run import Job, run_again, run_method, run_seed, trial
from experiments.paper.settings import PLANS
from tests.experiments.conftest import quiet, tiny

TASK = "superconductor"


@pytest.fixture
def place(table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder of its own, and a plan of a second or two."""
    tiny(monkeypatch, TASK)
    return Place(results=tmp_path, device="cpu")


def choose_first(place: Place) -> None:
    """As if the protocol had chosen the first setting of every method."""
    for method in PLANS[TASK].methods:
        first = PLANS[TASK].dial(method)[1][0]
        results.save(place.file(TASK, method), {"choice": {"chosen": first}})


def rows_in(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["rows"]


class TestFiles:
    def test_a_write_that_fails_leaves_the_file_as_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = results.save(tmp_path / "a.json", {"old": 1})

        def full(handle: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            results.save(path, {"new": 2})
        assert json.loads(path.read_text()) == {"old": 1}
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("content", [b"", b'{"setting": {"noise', b"\xff\xfe", b"[1]"])
    def test_a_cut_file_counts_as_missing(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_bytes(content)
        assert results.kept(tmp_path / "a.json") is None
        assert results.kept(tmp_path / "b.json") is None

    def test_a_cut_run_is_made_again(self, place: Place) -> None:
        first = trial(TASK, "gp", 0, place, quiet)
        path = Job(place, TASK, "gp", 0).path
        path.write_bytes(path.read_bytes()[:100])
        again = trial(TASK, "gp", 0, place, quiet)
        assert again["valid"] == first["valid"]

    def test_results_name_the_version_of_gpn(self) -> None:
        assert results.versions()["gpn"] == gpn.__version__


class TestRuns:
    def test_a_run_of_other_rows_or_other_steps_is_another_run(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quick, other = (Place(place.results, device="cpu", quick=share) for share in (0.5, 0.6))
        trial(TASK, "dropout", 0, quick, quiet)
        assert Job(quick, TASK, "dropout", 0).earlier() is not None
        assert Job(other, TASK, "dropout", 0).earlier() is None
        assert Job(place, TASK, "dropout", 0).earlier() is None
        elsewhere = Place(place.results, device="auto", quick=0.5)
        assert Job(elsewhere, TASK, "dropout", 0).earlier() is not None
        tiny(monkeypatch, TASK, train=PLANS[TASK].train.replace(learning_rate=0.1))
        assert Job(quick, TASK, "dropout", 0).earlier() is None

    def test_what_was_left_open_may_be_anything_and_devices_do_not_count(self) -> None:
        asked = {"anchor": "auto", "prior": None, "train": {"steps": 3, "device": "cpu"}, "new": 1}
        kept = {"anchor": "joint", "prior": {"a": 1}, "train": {"steps": 3, "device": "cuda"}}
        assert same_config(asked, kept)
        assert not same_config(asked, {**kept, "train": {"steps": 4}})
        assert not same_config(asked, None)

    def test_a_complete_summary_is_enough(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in a fresh clone, which has no files of single runs."""
        lines: list[str] = []
        for run in (run_method, run_again):
            run(TASK, "gp", place, quiet)
        shutil.rmtree(place.results / TASK / "runs")
        before = {path: path.read_bytes() for path in place.results.rglob("*.json")}
        for run in (run_method, run_again):
            run(TASK, "gp", place, lines.append)
        assert [line.count("gp is finished") for line in lines] == [1, 1]
        assert "delete that file" in lines[0]
        assert {path: path.read_bytes() for path in place.results.rglob("*.json")} == before
        tiny(monkeypatch, TASK, seeds=3)
        assert run_method(TASK, "gp", place, quiet)["seeds"] == [0, 1, 2]

    @pytest.mark.parametrize("method", PLANS[TASK].methods)
    def test_the_summaries_of_this_repository_are_complete(self, method: str) -> None:
        """So that whoever clones it does not train for hours to see the same table."""
        for task in (task for task in PLANS if method in PLANS[task].methods):
            place = Place()
            settings, seeds = place.settings(task, method), range(PLANS[task].seeds)
            assert complete(place, task, method, settings, seeds, method), task

    def test_one_seed_takes_the_chosen_setting_or_chooses_it(self, place: Place) -> None:
        lines: list[str] = []
        run_seed(TASK, "gp", 3, place, lines.append)
        assert len(lines) == 5 + 1
        assert not place.file(TASK, "gp").exists(), "one seed is no summary"
        chosen = run_method(TASK, "gp", place, lines.append)["choice"]["chosen"]
        assert len(lines) == 5 + 1 + 2
        run_seed(TASK, "gp", 4, place, lines.append)
        assert len(lines) == 5 + 1 + 2 + 1
        assert f"noise_std={chosen} seed 4 (test)" in lines[-1]


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Fits that take no time, forty at most: the method and the seed of each."""
    made: list[tuple[str, int]] = []

    def fit(split: Any, method: Any, seed: int, place: Place) -> tuple[None, dict[str, Any]]:
        made.append((type(method).__name__, seed))
        config = results.plain(method.config)
        return None, {"seed": seed, "seconds": {"fit": 1.0}, "config": config, "device": "CPU"}

    def timed(method: Any, task: Any, seed: int) -> tuple[None, float]:
        if len(made) >= 40:
            raise KeyboardInterrupt
        made.append((type(method).__name__, seed))
        return None, 1.0

    monkeypatch.setattr(scalability, "evaluate", lambda *_, **__: {"ood_auc": 0.5})
    monkeypatch.setattr(pool_share, "fit", fit)
    monkeypatch.setattr(pool_share, "judged", lambda *_: {"ood_auc": 0.5})
    monkeypatch.setattr(scalability, "timed_fit", timed)
    monkeypatch.setattr(scalability, "Together", list)
    return made


class TestShares:
    def test_one_seed_leaves_the_rows_of_the_others(
        self, place: Place, fitted: list[tuple[str, int]]
    ) -> None:
        choose_first(place)
        path = pool_share.run_shares(TASK, place, quiet)
        assert len(rows_in(path)) == len(fitted) == 2 * 5 * 3
        before = rows_in(path)
        pool_share.run_shares(TASK, place, quiet, only=1)
        assert rows_in(path) == before
        pool_share.run_shares(TASK, place, quiet, only=7)
        assert rows_in(path)[:30] == before
        assert [row["seed"] for row in rows_in(path)[30:]] == [7] * 15

    def test_a_summary_without_its_runs_is_added_to_and_not_written_over(
        self, place: Place, fitted: list[tuple[str, int]]
    ) -> None:
        choose_first(place)
        path = pool_share.run_shares(TASK, place, quiet, only=0)
        shutil.rmtree(path.parent / "runs")
        whole = path.read_bytes()
        pool_share.run_shares(TASK, place, quiet, only=0)
        assert len(fitted) == 15, "rows of the summary are done"
        assert path.read_bytes() == whole
        pool_share.run_shares(TASK, place, quiet, methods=["gpn"])
        assert len(fitted) == 15 + 5
        assert len(rows_in(path)) == 15 + 5

    def test_rows_of_another_setting_are_made_again_and_take_their_place(
        self, place: Place, fitted: list[tuple[str, int]]
    ) -> None:
        choose_first(place)
        pool_share.run_shares(TASK, place, quiet)
        other = PLANS[TASK].betas[1]
        results.save(place.file(TASK, "gpn"), {"choice": {"chosen": other}})
        path = pool_share.run_shares(TASK, place, quiet)
        assert len(fitted) == 30 + 10
        assert len(rows_in(path)) == 30
        assert {row["beta"] for row in rows_in(path) if row["method"] == "gpn"} == {other}


class TestScalability:
    def test_a_run_that_is_stopped_goes_on_and_the_old_file_stays_until_then(
        self, place: Place, fitted: list[tuple[str, int]]
    ) -> None:
        choose_first(place)
        path, lines = place.file(TASK, "scalability"), []
        row = {"method": "gpn", "how": "1 of the steps", "members": 0, "seconds": 9.0}
        results.save(path, {"device": "another", "rows": [{**row, "metrics": {"ood_auc": 0.1}}]})
        before = path.read_bytes()
        fitted.extend(
            [("earlier", 0)] * 30
        )  # ten are left: six of a GPN, four of OR, with wake-ups
        with pytest.raises(KeyboardInterrupt):
            scalability.run_scalability(TASK, place, lines.append)
        assert path.read_bytes() == before
        assert len(lines) == 5 + 3
        fitted.clear()
        scalability.run_scalability(TASK, place, lines.append)
        assert len(lines) == 5 + 6 + 6, "no row is measured twice"
        assert [row["members"] for row in rows_in(path)] == [0] * 5 + [2, 4, 6, 8, 10, 10] * 2
        assert all(row["seconds"] < 9 or row["members"] == 10 for row in rows_in(path))

    def test_a_finished_one_is_left_alone_with_or_without_its_runs(
        self, place: Place, fitted: list[tuple[str, int]]
    ) -> None:
        choose_first(place)
        path, lines = scalability.run_scalability(TASK, place, quiet), []
        before = path.read_bytes()
        shutil.rmtree(path.parent / "runs")
        fitted.clear()
        scalability.run_scalability(TASK, place, lines.append)
        assert path.read_bytes() == before
        assert not fitted
        assert "is finished" in lines[0]
        assert "delete that file" in lines[0]
