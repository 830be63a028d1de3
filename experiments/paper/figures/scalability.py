"""OOD AUC against training time: ensembles that grow, and one GPN trained for longer."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator

from experiments.paper.figures import style
from experiments.paper.scalability import ONE_AXIS

Rows = list[dict[str, Any]]
AUC_TICKS = {
    0.99: (0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98),
    1.0: (0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998),
}


def scalability() -> Figure:
    """A panel per task, a line per method and way of training."""
    files = style.reports("scalability")
    figure, every, _ = style.panels(len(files), height=3.7)
    for axes, (task, report) in zip(every, files.items(), strict=True):
        lines: dict[tuple[str, str], Rows] = {}
        for row in report["rows"]:
            how = "steps" if row["method"] == "gpn" else row["how"]
            lines.setdefault((row["method"], how), []).append(row)
        for (method, how), rows in lines.items():
            _line(axes, method, how, rows)
        _format_axes(axes, max(row["metrics"]["ood_auc"] for row in report["rows"]))
        axes.set_title(style.TITLES[task])
    style.legend(figure, every, loc="outside lower center", ncols=3)
    style.note(figure, "One run each, of seed 0. Numbers at the end of a line count members.")
    return figure


def _line(axes: Axes, method: str, how: str, rows: Rows) -> None:
    """A line with its last point annotated; members trained as one axis are a hollow marker."""
    seconds = [row["seconds"] for row in rows]
    aucs = [row["metrics"]["ood_auc"] for row in rows]
    if how == ONE_AXIS:
        hollow = {**style.marker(method, 6), "mfc": "white", "mew": 1.4, "linestyle": "none"}
        axes.plot(seconds, aucs, **hollow, label=f"{style.label(method)}, ten at once")
        return
    suffix = ", trained for longer" if how == "steps" else ", growing"
    line = style.line(method) | style.marker(method)
    axes.plot(seconds, aucs, **line, label=style.label(method) + suffix)
    last = str(rows[-1]["members"] or "all steps")
    offset: dict[str, Any] = {"textcoords": "offset points", "va": "center", "size": style.SMALL}
    axes.annotate(last, (seconds[-1], aucs[-1]), (5, -1), **offset)


def _format_axes(axes: Axes, highest: float) -> None:
    axes.set(xscale="log", yscale="logit", xlabel="training time in seconds", ylabel="OOD AUC")
    axes.margins(x=0.14, y=0.1)
    ticks = next(ticks for limit, ticks in AUC_TICKS.items() if highest <= limit)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(lambda auc, _: f"{auc:.4g}")
    axes.yaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    axes.xaxis.set_minor_formatter(lambda seconds, _: "")
    axes.grid(color="0.92", linewidth=0.6)
