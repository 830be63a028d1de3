"""Active learning: the loop on a small table, and the number of labels that a level takes."""

import itertools
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import gpn
from experiments import active_learning
from gpn.estimators import GPNRegressor

SMALL = gpn.GPNConfig(
    anchor="independent",
    beta=0.1,
    n_axes=8,
    trunk=gpn.MLPTrunk(widths=(8,)),
    train=gpn.TrainConfig(steps=10),
)


def line(seed: int, folder: Path | None) -> active_learning.Problem:
    x = np.random.default_rng(seed).uniform(-1, 1, (80, 2))
    return active_learning._problem(x, x[:, 0], seed, 40, (6, 8, 11), classes=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(active_learning, "FOLDER", tmp_path)
    monkeypatch.setattr(active_learning, "SEEDS", {"line": range(2)})
    monkeypatch.setattr(active_learning, "PROBLEMS", {"line": line})
    monkeypatch.setattr(active_learning, "GPNRegressor", partial(GPNRegressor, SMALL))
    return tmp_path


def test_strategies_start_alike_and_a_finished_run_is_not_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [active_learning.run("line", name, 0, None) for name in ("suggest", "random")]
    assert rows[0]["measured"][0] == rows[1]["measured"][0]
    assert rows[0]["measured"][1:] != rows[1]["measured"][1:]
    monkeypatch.setattr(active_learning, "PROBLEMS", {})
    again = active_learning.run("line", "suggest", 0, None)
    assert again["measured"] == rows[0]["measured"]


def test_no_row_is_labeled_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    fit = active_learning.Problem.fit

    def spy(self: active_learning.Problem, labeled: np.ndarray, seed: int) -> object:
        seen.append(labeled.tolist())
        return fit(self, labeled, seed)

    monkeypatch.setattr(active_learning.Problem, "fit", spy)
    active_learning.run("line", "suggest", 1, None)
    assert [len(set(labeled)) for labeled in seen] == [6, 8, 11]
    assert all(set(a) <= set(b) for a, b in itertools.pairwise(seen))


@pytest.mark.parametrize(
    ("curve", "level", "labels"),
    [
        ([4.0, 2.0, 1.0], 1.0, 300.0),  # an error falls to its last value
        ([4.0, 2.0, 1.0], 3.0, 150.0),  # half-way between two sizes
        ([0.1, 0.5, 0.9], 0.5, 200.0),  # an accuracy rises
        ([0.1, 0.5, 0.9], 0.05, 100.0),  # reached from the start
        ([4.0, 2.0, 1.0], 0.5, None),  # never
    ],
)
def test_the_labels_that_a_level_takes(
    curve: list[float], level: float, labels: float | None
) -> None:
    assert active_learning.labels_needed([100, 200, 300], np.array(curve), level) == labels


@pytest.mark.parametrize("task", ["superconductor", "digits"])
def test_the_figures_are_of_every_seed_and_strategy(task: str) -> None:
    report = json.loads((active_learning.FOLDER / f"{task}.json").read_text())
    assert set(report["curves"]) == set(active_learning.STRATEGIES)
    seeds = {name: {point["n"] for point in curve} for name, curve in report["curves"].items()}
    asked = {len(active_learning.SEEDS[task])}
    assert seeds == {"suggest": asked, "random": asked, "disagreement": {5}}
    assert report["labels_for_what_random_reaches"]["random"] == report["labels"][-1]


def test_the_readme_has_the_ratios_of_the_figures() -> None:
    """What `suggest` needs for what random choice reaches; on the table, before it ends."""
    digits, table = (
        json.loads((active_learning.FOLDER / f"{task}.json").read_text())
        for task in ("digits", "superconductor")
    )
    page = (Path(gpn.__file__).parents[2] / "docs" / "tutorials" / "active-learning.md").read_text()
    text = " ".join(page.split())
    needed = digits["labels_for_what_random_reaches"]["suggest"]
    before = table["labels_for_what_random_reaches_before"]["suggest"]
    assert f"`suggest` needs {needed:.0f} labels for" in text
    assert (
        f"needs {before:.0f} for the error that random choice has at {table['labels'][-2]}" in text
    )
    gap = table["suggest_minus_random"][-1]
    assert abs(gap["mean"]) < gap["std"] / gap["n"] ** 0.5, "equal at the end"
