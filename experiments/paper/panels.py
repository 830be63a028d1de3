"""What the figures share: a page's width, the look of each method, legends and notes."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from experiments import results
from experiments.paper.settings import PLANS
from experiments.paper.table import LABELS
from gpn.plots import method_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.0  # inches, the width of a page, so that text is printed in the size it has here
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.4,
    "savefig.dpi": 200,
}
SMALL = 7.5
TITLES = {
    "superconductor": "Superconductor",
    "superconductor-grouped": "Superconductor, grouped",
    "mnist": "MNIST / Fashion-MNIST",
    "cifar10": "CIFAR-10 / SVHN",
}
# A line and a mark of its own for each method, for readers without colours.
LOOKS: dict[str, tuple[Any, str]] = {
    "dropout": ((0, (1, 1)), "v"),
    "dkl": ((0, (6, 1.5, 1, 1.5, 1, 1.5)), "<"),
    "sngp": ((0, (7, 2)), ">"),
    "ensemble-pr": ((0, (3, 1, 1, 1)), "s"),
    "ensemble-or": ((0, (1.2, 1.6)), "^"),
    "ensemble": ((0, (2.5, 1)), "P"),
    "gp": ("-", "X"),
    "gpn-paper": ((0, (4, 2.5)), "D"),
    "gpn": ("-", "o"),
}


def look(method: str) -> dict[str, Any]:
    """Colour and line of a method, as `plot` takes them."""
    return {"color": method_color(method), "linestyle": LOOKS[method][0]}


def marks(method: str, size: float = 4.5) -> dict[str, Any]:
    """Colour and marks of a method, as `plot` takes them."""
    return {"color": method_color(method), "marker": LOOKS[method][1], "markersize": size}


def label(method: str) -> str:
    return LABELS[method].strip("*")


def found(name: str) -> dict[str, dict[str, Any]]:
    """The tasks that have a file of this name, and what it says."""
    paths = {task: results.RESULTS / task / f"{name}.json" for task in PLANS}
    files = {task: json.loads(path.read_text()) for task, path in paths.items() if path.exists()}
    return files or missing(f"no task has {name}.json")


def pictures(tasks: Iterable[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """What each method left for the figures, by task and method; tasks without any are left out."""
    every = {task: _pictures(task) for task in tasks}
    kept = {task: methods for task, methods in every.items() if methods}
    return kept or missing("no task has pictures/<method>.json")


def _pictures(task: str) -> dict[str, dict[str, Any]]:
    folder = results.RESULTS / task / "pictures"
    there = [m for m in PLANS[task].methods if (folder / f"{m}.json").exists()]
    return {method: results.read(f"{task}/pictures", method) for method in there}


def missing(what: str) -> Any:
    raise FileNotFoundError(f"a figure needs result files, {what}; run the experiment first.")


def panels(count: int, height: float = 2.7) -> tuple["Figure", list["Axes"], list["Axes"]]:
    """A page with `count` panels in two columns, and the places that are left over."""
    from matplotlib.figure import Figure

    rows = -(-count // 2)
    picture = Figure((WIDTH, height * rows), layout="constrained")
    every = list(picture.subplots(rows, 2, squeeze=False).flat)
    for spare in every[count:]:
        spare.axis("off")
    return picture, every[:count], every[count:]


def legend(place: Any, every: list["Axes"], **where: Any) -> None:
    """One legend for all panels, in the order of the tables, on a figure or on an Axes."""
    shown = {
        text: handle
        for axes in every
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    order = [label(method) for method in LABELS]
    texts = sorted(shown, key=lambda text: [text.startswith(name) for name in order], reverse=True)
    how = {"frameon": False, "fontsize": SMALL} | where
    place.legend([shown[text] for text in texts], texts, **how)


def note(picture: "Figure", text: str) -> None:
    """A line above the panels on what they show."""
    picture.suptitle(text, fontsize=SMALL, color="0.25")
