"""Figures and commands, from synthetic result files alone."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import __main__ as command
from experiments import active_learning, harness
from experiments.paper import figures
from experiments.paper.contamination import METHODS, SHARES
from experiments.paper.evaluate import first_images
from experiments.paper.figures.contamination import point_of
from experiments.paper.figures.modern import LABELS, SETS, TASK, detection_key
from experiments.paper.plans import PLANS
from experiments.paper.tasks.split import Rows
from gpn.plots import method_color


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of every kind for every task."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    for task, plan in PLANS.items():
        harness.save(tmp_path / task / "pool-share.json", {"rows": share_rows(task)})
        for method in plan.methods:
            harness.save(tmp_path / task / "pictures" / f"{method}.json", picture(task))
    for task in ("superconductor", "cifar10"):
        harness.save(tmp_path / task / "scalability.json", {"rows": growth_rows()})
    for method in LABELS:
        harness.save(tmp_path / TASK / f"{method}.json", {"metrics": modern_metrics(method)})
    for task, shape in (("mnist", (28, 28, 1)), ("cifar10", (32, 32, 3))):
        shown = {kind: torch.rand(shape).tolist() for kind in ("id", "ood")}
        harness.save(tmp_path / task / "pictures" / "images.json", shown)
    return tmp_path


def modern_metrics(method: str) -> dict[str, Any]:
    means = {"accuracy": 0.95, "fit_seconds": 20}
    means |= {detection_key(method, name): auc for name, auc in zip(SETS, (1.0, 0.97), strict=True)}
    return {name: {"mean": mean, "std": 0.001, "n": 3} for name, mean in means.items()}


def share_rows(task: str) -> list[dict[str, Any]]:
    unseen = {} if "super" in task else {"ood_auc_unseen_textures": 0.7}
    return [
        {"method": m, "share": share, "seed": seed, "metrics": {"ood_auc": 0.8, **unseen}}
        for m in METHODS
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


@pytest.mark.parametrize("name", figures.FIGURES)
def test_every_figure_is_drawn_from_files_alone(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["figure", name])
    path = Path(capsys.readouterr().out.strip())
    assert path == folder / "figures" / f"{figures.FILES.get(name, name)}.png"
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


def words(picture: Any) -> list[Any]:
    """Every visible text."""
    from matplotlib.text import Text

    picture.canvas.draw()
    return [text for text in picture.findobj(Text) if text.get_text().strip()]


@pytest.mark.parametrize("name", figures.FIGURES)
def test_a_figure_is_as_wide_as_a_page_and_its_words_can_be_read_there(
    name: str, folder: Path
) -> None:
    from matplotlib import rc_context

    with rc_context(figures.STYLE):
        picture = figures.FIGURES[name]()
        assert picture.get_figwidth() == 7
        assert all(text.get_fontsize() >= 7 for text in words(picture))


def test_roc_curves_of_one_seed_have_the_mean_auc_in_the_legend(folder: Path) -> None:
    harness.save(folder / "mnist" / "gpn.json", {"metrics": {"ood_auc": {"mean": 0.98765}}})
    picture = figures.roc()
    shown = [text.get_text() for text in words(picture)]
    assert "GPN, ours (0.9877)" in shown
    assert any("Curves of seed 0" in text for text in shown)
    assert {axes.get_xscale() for axes in picture.axes} == {"log"}
    lines = [line.get_linestyle() for line in picture.axes[0].lines]
    assert len(lines) - lines.count("-") >= 7, "lines differ by more than their colour"


def test_lines_that_are_all_at_the_top_are_named(folder: Path) -> None:
    best = {"roc": {"false": [0.0, 0.01, 1.0], "true": [1.0, 1.0, 1.0]}}
    for method in ("gpn", "gpn-paper"):
        harness.save(folder / "mnist" / "pictures" / f"{method}.json", best)
    texts = {axes.get_title(): axes.texts for axes in figures.roc().axes}
    assert not texts["CIFAR-10 / SVHN"]
    assert "GPN, paper preset\nGPN, ours" in texts["MNIST / Fashion-MNIST"][0].get_text()


def test_spreads_are_those_of_the_tables(folder: Path) -> None:
    rows = [
        {"method": "gpn", "share": "1%", "metrics": {"ood_auc": auc}} for auc in (0.7, 0.8, 0.9)
    ]
    assert point_of(rows, "gpn", "1%", "ood_auc") == pytest.approx((2, 0.8, 0.1))
    assert point_of(rows, "gpn", "0%", "ood_auc") is None


def test_a_score_stands_between_the_metric_and_the_rows() -> None:
    assert detection_key("plain", "ood_auc_unseen_textures") == "ood_auc_unseen_textures"
    assert detection_key("dropout", "ood_auc") == "ood_auc_variance"
    wild = detection_key("gpn-wild-0.1", "ood_fpr95_unseen_textures")
    assert wild == "ood_fpr95_mutual_information_unseen_textures"


def test_methods_without_a_file_have_no_row(folder: Path) -> None:
    (folder / TASK / "ensemble.json").unlink()
    shown = [text.get_text() for text in words(figures.modern())]
    assert "outlier exposure" in shown
    assert "ensemble of plain training" not in shown


def test_noise_is_named_and_chance_is_drawn_where_it_is_visible(folder: Path) -> None:
    rows = share_rows("superconductor")
    rows[0]["metrics"]["ood_auc"] = 0.1
    harness.save(folder / "superconductor" / "pool-share.json", {"rows": rows})
    first, *others = figures.contamination().axes
    assert first.get_xticklabels()[-1].get_text() == "uniform noise\nas pool"
    assert "chance" in [line.get_label() for line in first.lines]
    assert all("chance" not in [line.get_label() for line in axes.lines] for axes in others)


def test_boxes_name_the_images_and_the_number_of_draws(folder: Path) -> None:
    report = {"roc": {}, "draws": dict.fromkeys(("id", "ood"), [[0.1] * 10] * 7)}
    for task in ("mnist", "cifar10"):
        harness.save(folder / task / "pictures" / "ensemble.json", report)
    shown = [text.get_text() for text in words(figures.boxes())]
    titles = ("MNIST: a 7", "Fashion-MNIST: ankle boot", "CIFAR-10: a cat", "SVHN: a 4")
    assert all(any(text.endswith(what) for text in shown) for what in titles)
    assert "Ensemble,\nplain\n7 draws" in shown
    assert "GPN,\nours\n10 draws" in shown


def test_images_are_saved_as_they_were_before_standardisation() -> None:
    rng = torch.Generator().manual_seed(0)
    images = torch.randint(256, (2, 5, 3, 8, 8), generator=rng) / 255
    images[:, 0] = 0.3 + 0.1 * images[:, 0]  # what is shown is neither black nor white
    images[1, 1, :, 0, 0], images[1, 1, :, 0, 1] = 0.0, 1.0
    mean, std = (
        torch.tensor(values).view(3, 1, 1) for values in ([0.5, 0.4, 0.3], [0.2, 0.3, 0.1])
    )
    known, ood = (images - mean) / std
    saved = first_images(Rows(known, torch.zeros(5), ood))
    for kind, true in zip(("id", "ood"), images[:, 0], strict=True):
        torch.testing.assert_close(
            torch.tensor(saved[kind]), true.movedim(0, -1), atol=6e-4, rtol=0
        )


def test_strategies_have_the_colours_of_the_methods_that_choose(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    styles = active_learning.STYLES
    assert styles["suggest"][0] == method_color("gpn")
    assert styles["disagreement"][0] == method_color("ensemble")
    assert len({colour for colour, *_ in styles.values()}) == 3
    path = figures.figure("active-learning")
    assert path == folder / "figures" / "active-learning.png"
    monkeypatch.setattr(active_learning, "FOLDER", folder)
    with pytest.raises(FileNotFoundError, match="a figure needs result files"):
        figures.figure("active-learning")


@pytest.mark.parametrize("name", ["scalability", "roc", "boxes", "contamination"])
def test_missing_results_are_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    with pytest.raises(SystemExit, match=r"error: a figure needs result files, no task has .*json"):
        command.main(["figure", name])


def test_missing_data_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setenv("GPN_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=r"error: .*train\.csv"):
        command.main(["run", "superconductor", "--method", "gp", "--quick"])


def test_a_table_is_printed_from_files_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = dict.fromkeys(
        ("accuracy", "id_entropy", "ood_entropy", "ood_auc"), harness.summary([0.5, 0.7])
    )
    (folder / "mnist" / "gpn.json").write_text(json.dumps({"metrics": metrics}))
    command.main(["table", "mnist"])
    first, more = capsys.readouterr().out.split("\n\n")
    assert "60.00 ± 14.14 %" in first.splitlines()[-1]
    assert "0.6000 ± 0.1414" in more
