"""The paper's figures, drawn from the result files alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import results
from experiments.paper.pool_share import SHARES
from experiments.paper.settings import PLANS
from experiments.paper.table import LABELS
from gpn import plots
from gpn.plots import INK, method_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {
    "superconductor": "Superconductor",
    "superconductor-grouped": "Superconductor, grouped",
    "mnist": "MNIST / Fashion-MNIST",
    "cifar10": "CIFAR-10 / SVHN",
}
CLASSES = {
    "mnist": [str(digit) for digit in range(10)],
    "cifar10": ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
}


def figure(name: str) -> Path:
    """Draw one of `FIGURES` into `results/figures/`."""
    picture = FIGURES[name]()
    path = results.RESULTS / "figures" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=150)
    return path


def scalability() -> "Figure":
    """AUC against training time: lines are ensembles that grow, and one GPN trained for longer."""
    from matplotlib.ticker import LogLocator

    files = _found("scalability")
    picture, every = _panels(len(files))
    for axes, (task, report) in zip(every, files.items(), strict=True):
        for (method, how), rows in _lines(report["rows"]).items():
            _growth(axes, method, how, rows)
        axes.set(xscale="log", yscale="logit", xlabel="training time in seconds", ylabel="OOD AUC")
        axes.yaxis.set_major_formatter(lambda auc, _: f"{auc:.4g}")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_formatter(lambda value, _: "")
        axes.set_title(TITLES[task])
    _legend(picture, every)
    return picture


def _lines(rows: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        how = "steps" if row["method"] == "gpn" else row["how"]
        lines.setdefault((row["method"], how), []).append(row)
    return lines


def _growth(axes: "Axes", method: str, how: str, rows: list[dict[str, Any]]) -> None:
    seconds = [row["seconds"] for row in rows]
    aucs = [row["metrics"]["ood_auc"] for row in rows]
    label = _label(method) + {"steps": ", more steps", "all at once": ", ten at once"}.get(how, "")
    marker = {"steps": "o", "all at once": "D"}.get(how, "s")
    axes.plot(seconds, aucs, marker=marker, color=method_color(method), label=label, markersize=5)
    if how == "all at once":
        return
    last = rows[-1]["members"] or "all steps"
    axes.annotate(str(last), (seconds[-1], aucs[-1]), (4, -10), textcoords="offset points", size=8)


def roc() -> "Figure":
    """How many strangers are found at the price of how many false alarms."""
    tasks = [task for task in PLANS if _pictures(task)]
    picture, every = _panels(len(tasks))
    for axes, task in zip(every, tasks, strict=True):
        for method, report in _pictures(task).items():
            color, width = method_color(method), 2.4 if method == "gpn" else 1.3
            curve = (np.array(report["roc"][name]) for name in ("false", "true"))
            plots.roc_curve(axes, *curve, color=color, label=_label(method), linewidth=width)
        axes.set_title(TITLES[task])
    _legend(picture, every)
    return picture


def boxes() -> "Figure":
    """Class probabilities of every draw at one known and one strange image, method by method."""
    from matplotlib.figure import Figure

    tasks = [task for task in CLASSES if _pictures(task)]
    methods = [m for m in PLANS[tasks[0]].methods if all(m in _pictures(t) for t in tasks)]
    size = (1.6 + 1.9 * len(methods), 1.9 * 2 * len(tasks))
    picture = Figure(size, layout="constrained")
    grid = picture.subplots(
        2 * len(tasks), 1 + len(methods), width_ratios=[1, *[1.5] * len(methods)]
    )
    rows = [(task, kind) for task in tasks for kind in ("id", "ood")]
    for line, (task, kind) in zip(grid, rows, strict=True):
        _image(line[0], task, kind)
        for axes, method in zip(line[1:], methods, strict=True):
            draws = np.array(_pictures(task)[method]["draws"][kind])
            plots.class_boxes(axes, draws, CLASSES[task], color=method_color(method))
            axes.set_ylabel("class probability" if axes is line[1] else "", fontsize=8)
            axes.tick_params(labelsize=7)
    for axes, method in zip(grid[0][1:], methods, strict=True):
        axes.set_title(_label(method), fontsize=10)
    return picture


def _image(axes: "Axes", task: str, kind: str) -> None:
    pixels = np.array(results.read(f"{task}/pictures", "images")[kind])
    axes.imshow(pixels[..., 0] if pixels.shape[-1] == 1 else pixels, cmap="gray")
    axes.set(xticks=[], yticks=[])
    axes.set_ylabel("known" if kind == "id" else "stranger", fontsize=10)


def shares() -> "Figure":
    """AUC as strangers become rare in the pool, and for an OOD set that no pool has ever held."""
    files = _found("pool-share")
    picture, every = _panels(len(files))
    for axes, (task, report) in zip(every, files.items(), strict=True):
        for method in dict.fromkeys(row["method"] for row in report["rows"]):
            _share_line(axes, report["rows"], method, "ood_auc", "-")
            unseen = [name for name in report["rows"][0]["metrics"] if _is_unseen(name)]
            for name in unseen:
                _share_line(axes, report["rows"], method, name, ":")
        axes.set_xticks(range(len(SHARES)), [_share_name(share) for share in SHARES])
        axes.set(xlabel="strangers in the pool", ylabel="OOD AUC", title=TITLES[task])
    every[0].plot([], [], ":", color=INK, label="a set that no pool held")
    _legend(picture, every)
    return picture


def _share_line(
    axes: "Axes", rows: list[dict[str, Any]], method: str, metric: str, style: str
) -> None:
    """A line over the shares; where there is no pool to share, a mark of its own."""
    look: dict[str, Any] = {"color": method_color(method), "capsize": 2, "marker": "o", "ms": 3}
    points = [_point(rows, method, share, metric) for share in SHARES]
    line = [point for point in points[:-1] if point is not None]
    label = _label(method) if style == "-" else None
    axes.errorbar(*zip(*line, strict=True), linestyle=style, label=label, **look)
    if points[-1] is not None:
        axes.errorbar(*points[-1], **look, mfc="none" if style == ":" else None)


def _point(
    rows: list[dict[str, Any]], method: str, share: str, metric: str
) -> tuple[int, float, float] | None:
    """Where a share stands, the mean there and its spread; None where nothing was measured."""
    same = [row for row in rows if (row["method"], row["share"]) == (method, share)]
    values = [row["metrics"][metric] for row in same]
    return (list(SHARES).index(share), np.mean(values), np.std(values)) if values else None


def _share_name(share: str) -> str:
    return "no pool" if SHARES[share] is None else share.replace("%", " %")


def _is_unseen(name: str) -> bool:
    return name.startswith("ood_auc_unseen_")


FIGURES: dict[str, Callable[[], Any]] = {
    "scalability": scalability,
    "roc": roc,
    "boxes": boxes,
    "shares": shares,
}


def _found(name: str) -> dict[str, dict[str, Any]]:
    """The tasks that have a file of this name, and what it says."""
    paths = {task: results.RESULTS / task / f"{name}.json" for task in PLANS}
    found = {task: json.loads(path.read_text()) for task, path in paths.items() if path.exists()}
    if not found:
        raise FileNotFoundError(
            f"a figure needs result files, no task has {name}.json; run the experiment first."
        )
    return found


def _pictures(task: str) -> dict[str, dict[str, Any]]:
    folder = results.RESULTS / task / "pictures"
    found = [m for m in PLANS[task].methods if (folder / f"{m}.json").exists()]
    return {method: results.read(f"{task}/pictures", method) for method in found}


def _panels(count: int) -> tuple["Figure", list["Axes"]]:
    """Up to three panels side by side, more in two columns."""
    from matplotlib.figure import Figure

    columns = count if count <= 3 else 2
    rows = -(-count // columns)
    picture = Figure((4.6 * columns, 0.7 + 3.6 * rows), layout="constrained")
    every = list(picture.subplots(rows, columns, squeeze=False).flat)
    for spare in every[count:]:
        spare.remove()
    return picture, every[:count]


def _legend(picture: "Figure", every: list["Axes"]) -> None:
    """One legend for all panels, in the order of the tables."""
    found = {
        label: handle
        for axes in every
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    order = [label.strip("*") for label in LABELS.values()]
    labels = sorted(
        found, key=lambda text: [text.startswith(label) for label in order], reverse=True
    )
    handles = [found[label] for label in labels]
    picture.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, frameon=False)


def _label(method: str) -> str:
    return LABELS[method].strip("*")
