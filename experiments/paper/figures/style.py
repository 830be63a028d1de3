"""What the figures share: the width of a page, the style of each method, legends and notes."""

from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import harness
from experiments.paper.plans import PLANS
from experiments.paper.table import LABELS
from gpn.plots import method_color

WIDTH_INCHES = 7.0  # the width of a page, so that text is printed in the size it has here
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
# A line style and a marker for each method, for readers without colours.
LINES: dict[str, tuple[Any, str]] = {
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


def line(method: str) -> dict[str, Any]:
    """Colour and line of a method, as `plot` takes them."""
    return {"color": method_color(method), "linestyle": LINES[method][0]}


def marker(method: str, size: float = 4.5) -> dict[str, Any]:
    """Colour and marker of a method, as `plot` takes them."""
    return {"color": method_color(method), "marker": LINES[method][1], "markersize": size}


def label(method: str) -> str:
    return LABELS[method].strip("*")


def reports(name: str) -> dict[str, dict[str, Any]]:
    """The file of this name of every task that has one."""
    found = {task: harness.load(harness.RESULTS / task / f"{name}.json") for task in PLANS}
    files = {task: report for task, report in found.items() if report is not None}
    return files or missing(f"no task has {name}.json")


def plot_data(tasks: Iterable[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """What each method saved for the figures, by task and method, for tasks that have any."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for task in tasks:
        folder = harness.RESULTS / task / "pictures"
        for method in PLANS[task].methods:
            if data := harness.load(folder / f"{method}.json"):
                found.setdefault(task, {})[method] = data
    return found or missing("no task has pictures/<method>.json")


def missing(what: str) -> Any:
    raise FileNotFoundError(f"a figure needs result files, {what}; run the experiment first.")


def panels(count: int, height: float = 2.7) -> tuple[Figure, list[Axes], list[Axes]]:
    """A figure with `count` panels in two columns, and the axes that are left over."""
    rows = -(-count // 2)
    figure = Figure((WIDTH_INCHES, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, 2, squeeze=False).flat)
    for spare in axes[count:]:
        spare.axis("off")
    return figure, axes[:count], axes[count:]


def legend(place: Any, every: list[Axes], **options: Any) -> None:
    """One legend for all panels, in the order of the tables, on a figure or on an Axes."""
    shown = {
        text: handle
        for axes in every
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    order = [label(method) for method in LABELS]
    texts = sorted(shown, key=lambda text: [text.startswith(name) for name in order], reverse=True)
    options = {"frameon": False, "fontsize": SMALL} | options
    place.legend([shown[text] for text in texts], texts, **options)


def note(figure: Figure, text: str) -> None:
    """A line above the panels on what they show."""
    figure.suptitle(text, fontsize=SMALL, color="0.25")
