"""ROC curves: OOD rows detected against false positives, on a log scale."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import harness
from experiments.paper.figures import style
from experiments.paper.plans import PLANS
from gpn.plots import INK

NOTE = (
    "Curves of seed 0; in brackets the AUC of the table, the mean over all seeds. "
    "The grey line is chance."
)
WIDTHS_AND_ORDER = {"gpn": (4.2, 2), "gpn-paper": (2.2, 3)}


def roc() -> Figure:
    """A panel per task, a line per method."""
    data = style.plot_data(PLANS)
    figure, every, _ = style.panels(len(data), height=3.7)
    below = {"loc": "upper center", "bbox_to_anchor": (0.46, -0.16), "fontsize": 7}
    tight = {"ncols": 2, "columnspacing": 0.8, "handlelength": 2.8, "handletextpad": 0.5}
    for axes, (task, methods) in zip(every, data.items(), strict=True):
        _panel(axes, task, {method: report["roc"] for method, report in methods.items()})
        style.legend(axes, [axes], **below, **tight)
    style.note(figure, NOTE)
    return figure


def _panel(axes: Axes, task: str, curves: dict[str, dict[str, list[float]]]) -> None:
    """From the smallest false-positive rate that the test rows can resolve up to 1.

    Curves that coincide are drawn with the broadest below, so that each can be seen; those that are
    all at the top are also named.
    """
    lowest = min(rate for curve in curves.values() for rate in curve["false"] if rate > 0)
    rates = np.geomspace(lowest, 1, 400)
    axes.plot(rates, rates, ":", color="0.6", linewidth=0.8, zorder=1)
    perfect = []
    for method, curve in curves.items():
        height = np.interp(rates, curve["false"], curve["true"])
        width, order = WIDTHS_AND_ORDER.get(method, (1.3, 4))
        name = style.label(method)
        line = {**style.line(method), "linewidth": width, "zorder": order}
        axes.plot(rates, height, **line, label=name + _mean_auc(task, method))
        if height.min() > 0.999:
            perfect.append(name)
    axes.set(xscale="log", xlim=(lowest, 1), ylim=(-0.02, 1.04), title=style.TITLES[task])
    axes.set(xlabel="false-positive rate (log scale)", ylabel="true-positive rate")
    if len(perfect) > 1:
        text = "at the top, one on another:\n" + "\n".join(perfect)
        axes.text(0.03, 0.93, text, transform=axes.transAxes, va="top", size=7, color=INK)


def _mean_auc(task: str, method: str) -> str:
    """The mean of the table, if the file exists."""
    report = harness.load(harness.RESULTS / task / f"{method}.json")
    if report is None:
        return ""
    mean = report["metrics"]["ood_auc"]["mean"]
    return f" ({mean:.3f})" if task.startswith("super") else f" ({mean:.4f})"
