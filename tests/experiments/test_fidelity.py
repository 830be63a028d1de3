"""The fidelity suite: its measures on the exact posterior itself, and its committed files."""

import json
from pathlib import Path

import pytest
import torch

from experiments import harness
from experiments.fidelity import reach, report
from experiments.fidelity.measure import distance_to_gp
from experiments.fidelity.problems import PROBLEMS
from experiments.fidelity.truth import class_logits, exact_posterior
from experiments.fidelity.variants import variants

PAGE = (Path(__file__).parents[2] / "docs" / "exact.md").read_text()


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "three-classes"])
def test_the_truth_has_no_distance_to_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.fidelity.measure.REPEATS", 2)
    problem = PROBLEMS[name]()
    truth = exact_posterior(problem)
    measured = distance_to_gp(truth, problem, truth)
    for key in ("w2", "covariance_error"):
        assert measured[key] < 1e-9
    assert measured["joint_w2"] < 1e-3
    assert measured["band_coverage"] == pytest.approx(0.95, abs=1e-6)
    assert measured["w2_draws"] == pytest.approx(measured["w2_exact_draws"])
    assert measured["data_variance_ratio_min"] == pytest.approx(1.0)


def test_class_chains_converge_and_fit_the_labels() -> None:
    problem = PROBLEMS["three-classes"]()
    near = problem.task.x_obs.mean(0, keepdim=True).repeat(1, 1)
    small = type(problem)(problem.task, torch.cat([problem.task.x_obs, near]), None)
    logits, convergence = class_logits(small, chains=16, steps=100, warm_up=100)
    assert convergence["rhat"] < 1.1
    probabilities = logits.softmax(-1).mean(0)[:30]
    right = probabilities.argmax(-1) == problem.task.y_obs
    assert float(right.double().mean()) > 0.8


def test_every_variant_of_the_table_can_be_built() -> None:
    for make in PROBLEMS.values():
        assert set(variants(make())) <= set(report.NAMES)


def test_the_readme_shows_the_tables_that_the_files_give() -> None:
    assert report.table() in PAGE
    assert reach.table() in PAGE


def test_result_files_say_how_they_were_made() -> None:
    files = sorted((harness.RESULTS / "fidelity").rglob("*.json"))
    assert files
    for file in files:
        content = json.loads(file.read_text())
        assert {"task", "method", "config", "seeds", "device", "versions", "seconds"} <= set(
            content
        )
        assert all({"mean", "std", "n"} == set(value) for value in content["metrics"].values())
