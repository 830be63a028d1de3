"""Figures and commands, from made-up result files alone."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import __main__ as command
from experiments import results
from experiments.paper import figures
from experiments.paper.pool_share import METHODS as SHARE_METHODS
from experiments.paper.pool_share import SHARES
from experiments.paper.settings import PLANS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of every kind for every task."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    for task, plan in PLANS.items():
        results.save(tmp_path / task / "pool-share.json", {"rows": share_rows(task)})
        for method in plan.methods:
            results.save(tmp_path / task / "pictures" / f"{method}.json", picture(task))
    for task in ("superconductor", "cifar10"):
        results.save(tmp_path / task / "scalability.json", {"rows": growth_rows()})
    for task, shape in (("mnist", (28, 28, 1)), ("cifar10", (32, 32, 3))):
        shown = {kind: torch.rand(shape).tolist() for kind in ("id", "ood")}
        results.save(tmp_path / task / "pictures" / "images.json", shown)
    return tmp_path


def share_rows(task: str) -> list[dict[str, Any]]:
    unseen = {} if "super" in task else {"ood_auc_unseen_textures": 0.7}
    return [
        {"method": m, "share": share, "seed": seed, "metrics": {"ood_auc": 0.8, **unseen}}
        for m in SHARE_METHODS
        for share in SHARES
        for seed in range(2)
    ]


def growth_rows() -> list[dict[str, Any]]:
    kinds = [("gpn", f"{s} of the steps", 0) for s in (0.5, 1)]
    kinds += [(m, "2 at a time", 2) for m in ("ensemble-pr", "ensemble-or")]
    kinds += [("ensemble-or", "all at once", 10)]
    return [
        {"method": m, "how": how, "members": n, "seconds": 3.0 + i, "metrics": {"ood_auc": 0.9}}
        for i, (m, how, n) in enumerate(kinds)
    ]


def picture(task: str) -> dict[str, Any]:
    curve = {"false": [0.0, 0.1, 1.0], "true": [0.0, 0.8, 1.0]}
    draws = torch.rand(10, 10).softmax(1).tolist()
    return (
        {"roc": curve}
        if "super" in task
        else {"roc": curve, "draws": dict.fromkeys(("id", "ood"), draws)}
    )


@pytest.mark.parametrize("name", command.FIGURES)
def test_every_figure_is_drawn_from_files_alone(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["figure", name])
    path = Path(capsys.readouterr().out.strip())
    assert path == folder / "figures" / f"{name}.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000


def test_a_panel_per_task_and_a_line_per_method(folder: Path) -> None:
    assert [len(axes.lines) for axes in figures.roc().axes] == [10, 10, 9, 9]
    grown = figures.scalability().axes
    assert [len(axes.lines) for axes in grown] == [4, 4]
    assert len(figures.boxes().axes) == 4 * 9


def test_a_method_has_one_colour_everywhere(folder: Path) -> None:
    def colour(axes: Any) -> str:
        return next(line.get_color() for line in axes.lines if "ours" in str(line.get_label()))

    assert len({colour(figure().axes[0]) for figure in (figures.roc, figures.scalability)}) == 1


def test_what_is_missing_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    with pytest.raises(SystemExit, match=r"error: a figure needs result files.*scalability"):
        command.main(["figure", "scalability"])
    monkeypatch.setenv("GPN_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=r"error: .*train\.csv"):
        command.main(["run", "superconductor", "--method", "gp", "--quick"])


def test_a_seed_belongs_to_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["run", "mnist", "--seed", "1"])
    assert "--seed tests one setting and needs --setting" in capsys.readouterr().err


def test_a_table_is_printed_from_files_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = dict.fromkeys(
        ("accuracy", "id_entropy", "ood_entropy", "ood_auc"), results.summary([0.5, 0.7])
    )
    (folder / "mnist" / "gpn.json").write_text(json.dumps({"metrics": metrics}))
    command.main(["table", "mnist"])
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert "60.00 ± 14.14 %" in last
