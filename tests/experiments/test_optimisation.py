"""Bayesian optimisation: runs that resume, and the committed results."""

import json
from pathlib import Path

import pytest

from experiments import optimisation

SHORT = ["--seeds", "1", "--steps", "1", "--function", "branin-2"]


def test_a_finished_run_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimisation, "run_all", in_this_process)
    monkeypatch.setattr("gpn.botorch.model.QUICK_STEPS", 20)
    out = tmp_path / "short.json"
    optimisation.main([*SHORT, "--out", str(out)])
    report = json.loads(out.read_text())
    curves = report["regret"]["branin-2"]
    assert {"steps", "seeds", "device", "versions"} <= set(report)
    starts = {curve["mean"][0] for curve in curves.values()}
    assert list(curves) == list(optimisation.METHODS)
    assert len(starts) == 1  # every method has the same first points
    assert all(curve["mean"][1] <= curve["mean"][0] for curve in curves.values())
    assert out.with_suffix(".png").exists()
    assert "| branin-2 |" in capsys.readouterr().out
    monkeypatch.setattr(optimisation, "optimise", None)  # nothing is left to run
    optimisation.main([*SHORT, "--out", str(out)])
    assert json.loads(out.read_text()) == report


def in_this_process(jobs: int, runs: list[tuple[object, ...]]) -> None:
    for run in runs:
        optimisation.run(*run)


def test_a_gpn_beats_random_search_on_three_functions_at_least() -> None:
    report = json.loads(optimisation.SUMMARY.read_text())
    assert len(report["seeds"]) >= 5
    curves = report["regret"].values()
    won = [by["gpn-qlogei"]["mean"][-1] < by["random"]["mean"][-1] for by in curves]
    assert sum(won) >= 3


def test_the_readme_shows_the_table_of_the_figures() -> None:
    report = json.loads(optimisation.SUMMARY.read_text())
    readme = Path(optimisation.__file__).with_name("README.md").read_text()
    assert optimisation.table(report) in readme
