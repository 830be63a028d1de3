"""CIFAR-10 with a residual network: accuracy, detection and seconds of each method."""

import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments import harness
from experiments.paper.figures import style
from gpn.plots import INK, PALETTE

TASK = "cifar10-modern"
LABELS = {
    "gpn": "GPN, pool half of SVHN",
    "gpn-synthetic": "GPN, pool without OOD images",
    "plain": "plain training",
    "ensemble": "ensemble of plain training",
    "dropout": "MC dropout",
    "outlier-exposure": "outlier exposure",
    "gpn-wild-0.1": "GPN, half of the labels, pool 10 % OOD",
    "gpn-wild-0.01": "GPN, half of the labels, pool 1 % OOD",
    "plain-wild": "plain training, half of the labels",
}
SCORES = {"gpn": "_mutual_information", "dropout": "_variance"}  # else the largest probability
COLORS = {"gpn": PALETTE["ours"], "outlier-exposure": PALETTE["paper"], "ensemble": INK}
AUC_TICKS = 0.7, 0.9, 0.97, 0.99, 0.999, 0.9999
MAX_AUC = 0.99995  # what is drawn of an AUC of 1
SETS = {"ood_auc": ("SVHN", "o"), "ood_auc_unseen_textures": ("textures", "s")}
Metrics = dict[str, dict[str, float]]


def modern() -> Figure:
    """A row per method that has a result file; error bars are standard deviations over seeds."""
    found = measured()
    figure = Figure((style.WIDTH_INCHES, 1.1 + 0.36 * len(found)), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True, width_ratios=(2, 3, 2))
    for row, (method, metrics) in enumerate(found.items()):
        look = {"color": _color(method), "markersize": 5, "elinewidth": 1.0}
        _point(panels[0], row, metrics["accuracy"], scale=100, fmt="o", **look)
        for name, (_, symbol) in SETS.items():
            auc = metrics[detection_key(method, name)]
            shown = auc | {"mean": min(MAX_AUC, auc["mean"]), "std": 0.0}
            face = _color(method) if symbol == "o" else "white"
            _point(panels[1], row, shown, fmt=symbol, markerfacecolor=face, **look)
        _point(panels[2], row, metrics["fit_seconds"], fmt="o", **look)
    _format(panels, list(found))
    for label, symbol in SETS.values():
        face = "0.3" if symbol == "o" else "white"
        panels[1].plot([], [], symbol, color="0.3", markerfacecolor=face, ms=5, label=label)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=style.SMALL)
    style.note(figure, "Means over seeds; bars are standard deviations where there are several.")
    return figure


def measured() -> dict[str, Metrics]:
    """The metrics of each method that has a result file, in the order of the table."""
    files = {name: harness.load(harness.RESULTS / TASK / f"{name}.json") for name in LABELS}
    found = {name: report["metrics"] for name, report in files.items() if report is not None}
    return found or style.missing(f"{TASK} has no <method>.json")


def detection_key(method: str, key: str) -> str:
    """The name of a detection metric by the method's score, such as ood_auc_variance."""
    measure, _, rows = key.partition("_unseen")
    score = SCORES.get(_family(method), "")
    return f"{measure}{score}_unseen{rows}" if rows else f"{measure}{score}"


def _family(method: str) -> str:
    return "gpn" if method.startswith("gpn") else method


def _color(method: str) -> str:
    """One for all GPNs; plain training is grey."""
    return COLORS.get(_family(method), PALETTE["grey"])


def _point(
    axes: Axes, row: int, metric: dict[str, float], *, scale: float = 1, **look: Any
) -> None:
    spread = scale * metric["std"] if metric["n"] > 1 else None
    axes.errorbar(scale * metric["mean"], row, xerr=spread, **look)


def _format(panels: Any, methods: list[str]) -> None:
    first, detection, seconds = panels
    first.set_yticks(range(len(methods)), [textwrap.fill(LABELS[name], 26) for name in methods])
    first.invert_yaxis()
    first.set_xlabel("accuracy, %")
    detection.set(xscale="logit", xlabel="AUC", xlim=(None, 0.99998))
    detection.xaxis.set_major_locator(FixedLocator(AUC_TICKS))
    detection.xaxis.set_minor_locator(NullLocator())
    detection.xaxis.set_major_formatter(lambda auc, _: f"{auc:.4g}")
    seconds.set(xlabel="seconds of a fit", xlim=(0, None))
    for axes in panels:
        axes.grid(color="0.92", linewidth=0.6)
        axes.set_axisbelow(True)
