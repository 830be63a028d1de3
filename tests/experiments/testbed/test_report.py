"""The testbed's tables are functions of its result files, which say how they were made."""

import json
from pathlib import Path

import pytest

from experiments import harness
from experiments.testbed import report
from experiments.testbed.problems import classification_settings, regression_settings

PAGE = (Path(__file__).parents[3] / "docs" / "testbed.md").read_text()


def test_the_page_has_the_tables_of_the_result_files() -> None:
    assert report.summary_table() in PAGE
    assert report.split_table(10) in PAGE
    assert report.split_table(1) in PAGE


def test_the_fast_agents_have_every_problem_once() -> None:
    settings = {(s.n_inputs, s.ratio, s.temperature, s.seed) for s in classification_settings()}
    for agent in report.NAMES:
        rows = report.problems_of(agent)
        found = [tuple(row[name] for name in report.COLUMNS[:4]) for row in rows]
        assert len(found) == len(settings)
        assert set(found) == settings


def test_the_exact_process_has_every_regression_problem() -> None:
    found = json.loads((report.FOLDER / "gpn-true-prior.json").read_text())["regression"]
    assert len(found["problems"]) == len(regression_settings())
    place = found["columns"].index("kl")
    assert max(row[place] for row in found["problems"]) < 0.01


def test_metrics_are_those_of_the_problems() -> None:
    for agent in report.NAMES:
        metrics = json.loads((report.FOLDER / f"{agent}.json").read_text())["metrics"]
        for tau in (1, 10):
            found = metrics[f"ratio_tau_{tau}"]["mean"]
            assert found == pytest.approx(report.ratio(agent, tau), rel=1e-4)


def test_result_files_say_how_they_were_made() -> None:
    for file in sorted(report.FOLDER.glob("*.json")):
        content = json.loads(file.read_text())
        assert {"task", "device", "versions", "metrics"} <= set(content), file.name
        if file.stem != "cost":
            assert {"method", "config", "seeds"} <= set(content), file.name


def test_collecting_writes_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "FOLDER", tmp_path / "results")
    place = {"device": "here", "versions": {}, "shared_by": 1, "seconds": 2.0}
    where = {"n_inputs": 2, "ratio": 1, "temperature": 0.1}
    for agent, scale in (("mlp", 1.0), ("epinet", 0.5)):
        lines = [
            {**where, "seed": seed, "kl_tau_1": scale, "kl_tau_10": scale * (seed + 1), **place}
            for seed in (1, 0)
        ]
        text = "\n".join(json.dumps(line) for line in lines)
        (tmp_path / f"{agent}.jsonl").write_text(text + "\n")
    report.collect(tmp_path)
    assert report.ratio("epinet", 10) == pytest.approx(0.5)
    assert report.ratio_on_own("epinet", 1) == pytest.approx(0.5)
    written = harness.load(report.FOLDER / "epinet.json")
    assert written is not None
    assert written["metrics"]["seconds_per_problem"] == {"mean": 2.0, "std": 0.0, "n": 2}
    assert written["seeds"] == [0, 1]


def test_the_figure_is_drawn_from_the_result_files(tmp_path: Path) -> None:
    path = report.figure(tmp_path / "testbed.png")
    assert path.read_bytes().startswith(b"\x89PNG")
