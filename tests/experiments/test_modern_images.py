"""CIFAR-10 with a residual network: runs by importance, resumed, within a time; what draws cost."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import gpn
from experiments import harness
from experiments import modern_images as modern
from experiments.paper.tasks.split import Rows, Split, balanced_pool
from gpn import metrics

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
    assert runs.done == [*wanted[:-1], ("plain", 3), ("plain", 4)], "an ensemble is not trained"
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


SMALL = gpn.GPNConfig(
    trunk=gpn.ResNetTrunk(channels=(8, 8), widths=(8,)),
    train=gpn.TrainConfig(steps=2, label_batch=8, pool_batch=8, device="cpu"),
    n_axes=6,
    reference_rows=20,
)


def small_split(seed: int, folder: Path | None) -> Split:
    rng = torch.Generator().manual_seed(seed)

    def noise(count: int) -> torch.Tensor:
        return torch.randn(count, 3, 16, 16, generator=rng)

    x, ood = noise(80), noise(20)
    task = gpn.Task(x, torch.arange(80) % 4, pool=balanced_pool(x, ood), n_classes=4)
    rows = [Rows(noise(24), torch.arange(24) % 4, noise(12)) for _ in range(2)]
    return Split(task, *rows, ood, {"textures": noise(20)}, balanced=True)


@pytest.mark.filterwarnings("ignore::gpn.core.warnings.AxesWarning")
def test_the_cost_of_draws_is_relative_to_one_pass_of_the_trunk() -> None:
    rng = torch.Generator().manual_seed(0)
    images = torch.randn(40, 3, 8, 8, generator=rng)
    task = gpn.Task(images, torch.arange(40) % 2, pool=images)
    posterior = gpn.GPN(SMALL).fit(task, rng=0, progress=False)
    found = modern.sampling_cost(posterior, images)
    assert found["sampling_ratio"] == found["sampling_ms"] / found["trunk_ms"] > 0


def members(tmp_path: Path, count: int) -> list[torch.Tensor]:
    """Kept runs of `plain`, each with its own opinion; their logits at known rows."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    options = argparse.Namespace(valid=False, steps=None)
    kept = []
    for seed in range(count):
        logits = {"id": torch.randn(60, 3, generator=rng).double()}
        logits["id"][torch.arange(60), y] += 2.0
        logits |= {name: torch.randn(40, 3, generator=rng).double() for name in ("", "_unseen_a")}
        path = modern.run_path("plain", seed, options)
        harness.save(path, {"config": {"beta": 1}, "metrics": {"fit_seconds": 10.0 + seed}})
        modern._keep(logits, y, path.with_suffix(".pt"))
        kept.append(logits["id"])
    return kept


def test_an_ensemble_is_the_mean_of_kept_members(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its probabilities are the mean ones, so that its NLL is at most their mean NLL (Jensen)."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    kept = members(tmp_path, 3)
    modern.write_ensemble(argparse.Namespace(valid=False, steps=None))
    found = written(tmp_path, "ensemble")
    assert found["config"] == {"beta": 1, "members": 3}
    measured = {name: each["mean"] for name, each in found["metrics"].items()}
    y, p = torch.arange(60) % 3, torch.stack(kept).softmax(-1).mean(0)
    assert measured["nll"] == pytest.approx(float(metrics.class_nll(p, y)))
    assert measured["nll"] < sum(float(metrics.class_nll(m.softmax(-1), y)) for m in kept) / 3
    assert measured["fit_seconds"] == 33.0
    assert measured["ood_auc_variance_unseen_a"] > 0.5


def test_one_member_is_no_ensemble(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    members(tmp_path, 1)
    modern.write_ensemble(argparse.Namespace(valid=False, steps=None))
    assert "must have two members, got 1; run plain first" in capsys.readouterr().out
    assert not (tmp_path / modern.TASK / "ensemble.json").exists()


@pytest.mark.filterwarnings("ignore::gpn.core.warnings.AxesWarning")
@pytest.mark.filterwarnings("ignore::gpn.core.warnings.PoolWarning")
def test_every_method_runs_on_small_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two steps of each on noise, from data to result files, with one smoothing of labels."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(modern, "cifar10", small_split)
    monkeypatch.setattr(modern, "WILD_LABELS", 40)
    monkeypatch.setattr(modern, "CONFIG", SMALL)
    monkeypatch.setattr(modern, "PLAN", dict.fromkeys(modern.PLAN, 1))
    monkeypatch.setattr(modern, "MEMBERS", 2)
    modern.main([])
    for method in modern.PLAN:
        found = written(tmp_path, method)
        wanted = {"accuracy", "nll", "ece", "ood_auc", "ood_fpr95_unseen_textures"}
        assert wanted < found["metrics"].keys()
        assert found["config"]["label_smoothing"] == 0.05
    assert written(tmp_path, "ensemble")["config"]["members"] == 2
