"""CIFAR-10 with a residual network: runs by importance, resumed, within a time; what draws cost."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import gpn
from experiments import harness
from experiments import modern_images as modern

FIT_SECONDS = 30.0


class Runs:
    """Stands in for fits: what was measured, on a clock that each of them advances."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.now = 0.0

    def measure(self, method: str, seed: int, *_: Any) -> dict[str, Any]:
        self.done.append((method, seed))
        self.now += FIT_SECONDS
        return {"config": {}, "metrics": {"accuracy": 0.9 + 0.01 * seed, "fit_seconds": 1.0}}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    made = Runs()
    monkeypatch.setattr(modern, "measure", made.measure)
    monkeypatch.setattr(modern.time, "perf_counter", lambda: made.now)
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    return made


def written(tmp_path: Path, method: str) -> dict[str, Any]:
    return json.loads((tmp_path / modern.TASK / f"{method}.json").read_text())


def test_every_method_is_measured_by_importance(runs: Runs, tmp_path: Path) -> None:
    modern.main([])
    wanted = [(method, seed) for method, count in modern.PLAN.items() for seed in range(count)]
    assert runs.done == wanted
    assert runs.done[0] == ("gpn", 0)
    assert written(tmp_path, "gpn")["metrics"]["accuracy"]["n"] == 3
    assert {"device", "versions", "seconds"} < written(tmp_path, "plain-wild").keys()


def test_no_run_begins_that_would_not_end_in_time(runs: Runs, tmp_path: Path) -> None:
    modern.main(["--seconds", str(4.5 * FIT_SECONDS)])
    assert runs.done == [("gpn", 0), ("gpn", 1), ("gpn", 2), ("plain", 0)]
    assert written(tmp_path, "plain")["seeds"] == [0], "what was measured is kept"


def test_a_stopped_command_resumes(runs: Runs) -> None:
    modern.main(["--seconds", str(2.5 * FIT_SECONDS)])
    modern.main(["gpn"])
    assert runs.done == [("gpn", 0), ("gpn", 1), ("gpn", 2)]


def test_trials_leave_results_as_they_are(runs: Runs, tmp_path: Path) -> None:
    modern.main(["gpn", "--valid"])
    modern.main(["gpn", "--steps", "3"])
    assert len(runs.done) == 6, "runs of a trial are not those of another"
    assert not (tmp_path / modern.TASK / "gpn.json").exists()


@pytest.mark.filterwarnings("ignore::gpn.core.warnings.AxesWarning")
def test_the_cost_of_draws_is_relative_to_one_pass_of_the_trunk() -> None:
    rng = torch.Generator().manual_seed(0)
    images = torch.randn(40, 3, 8, 8, generator=rng)
    task = gpn.Task(images, torch.arange(40) % 2, pool=images)
    config = gpn.GPNConfig(
        trunk=gpn.ResNetTrunk(channels=(8, 8), widths=(8,)),
        train=gpn.TrainConfig(steps=2, label_batch=8, pool_batch=8, device="cpu"),
        n_axes=6,
        reference_rows=20,
    )
    posterior = gpn.GPN(config).fit(task, rng=0, progress=False)
    found = modern.sampling_cost(posterior, images)
    assert found["sampling_ratio"] == found["sampling_ms"] / found["trunk_ms"] > 0
