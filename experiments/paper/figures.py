"""The paper's figures, drawn from the result files alone."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import active_learning, results
from experiments.paper.boxes import boxes
from experiments.paper.panels import (
    SMALL,
    STYLE,
    TITLES,
    found,
    label,
    legend,
    look,
    marks,
    note,
    panels,
    pictures,
)
from experiments.paper.pool_share import SHARES
from experiments.paper.settings import PLANS
from gpn.plots import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = list[dict[str, Any]]
ROC_NOTE = (
    "Curves of seed 0; in brackets the AUC of the table, the mean over all seeds. "
    "The grey line is mere chance."
)
# Noise as a pool is no share, and stands apart.
SHARE_PLACES = {name: at + (0.3 if SHARES[name] is None else 0) for at, name in enumerate(SHARES)}
AUC_TICKS = {
    0.99: (0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98),
    1.0: (0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998),
}


def figure(name: str) -> Path:
    """Draw one of `FIGURES` into `results/figures/`."""
    from matplotlib import rc_context

    path = results.RESULTS / "figures" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        FIGURES[name]().savefig(path)
    return path


def scalability() -> "Figure":
    """AUC against training time: lines are ensembles that grow, and one GPN trained for longer."""
    files = found("scalability")
    picture, every, _ = panels(len(files), height=3.7)
    for axes, (task, report) in zip(every, files.items(), strict=True):
        for (method, how), rows in _lines(report["rows"]).items():
            _growth(axes, method, how, rows)
        _growth_axes(axes, max(row["metrics"]["ood_auc"] for row in report["rows"]))
        axes.set_title(TITLES[task])
    legend(picture, every, loc="outside lower center", ncols=3)
    note(picture, "One run each, of seed 0. A number at the end of a line is that of its members.")
    return picture


def _lines(rows: Rows) -> dict[tuple[str, str], Rows]:
    lines: dict[tuple[str, str], Rows] = {}
    for row in rows:
        how = "steps" if row["method"] == "gpn" else row["how"]
        lines.setdefault((row["method"], how), []).append(row)
    return lines


def _growth(axes: "Axes", method: str, how: str, rows: Rows) -> None:
    """A line with its last point named; members that were trained at once are a hollow mark."""
    seconds = [row["seconds"] for row in rows]
    aucs = [row["metrics"]["ood_auc"] for row in rows]
    if how == "all at once":
        hollow: dict[str, Any] = {"mfc": "white", "mew": 1.4, "linestyle": "none"}
        axes.plot(
            seconds, aucs, **marks(method, 6), **hollow, label=f"{label(method)}, ten at once"
        )
        return
    more = ", trained for longer" if how == "steps" else ", growing"
    axes.plot(seconds, aucs, **look(method) | marks(method), label=label(method) + more)
    last = str(rows[-1]["members"] or "all steps")
    beside: dict[str, Any] = {"textcoords": "offset points", "va": "center", "size": SMALL}
    axes.annotate(last, (seconds[-1], aucs[-1]), (5, -1), **beside)


def _growth_axes(axes: "Axes", highest: float) -> None:
    from matplotlib.ticker import FixedLocator, LogLocator

    axes.set(xscale="log", yscale="logit", xlabel="training time in seconds", ylabel="OOD AUC")
    axes.margins(x=0.14, y=0.1)
    ticks = next(ticks for most, ticks in AUC_TICKS.items() if highest <= most)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(lambda auc, _: f"{auc:.4g}")
    axes.yaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    axes.xaxis.set_minor_formatter(lambda seconds, _: "")
    axes.grid(color="0.92", linewidth=0.6)


def roc() -> "Figure":
    """How many strangers are found at the price of how many false alarms."""
    files = pictures(PLANS)
    picture, every, _ = panels(len(files), height=3.7)
    below = {"loc": "upper center", "bbox_to_anchor": (0.46, -0.16), "fontsize": 7}
    tight = {"ncols": 2, "columnspacing": 0.8, "handlelength": 2.8, "handletextpad": 0.5}
    for axes, (task, methods) in zip(every, files.items(), strict=True):
        _roc_panel(axes, task, {method: report["roc"] for method, report in methods.items()})
        legend(axes, [axes], **below, **tight)
    note(picture, ROC_NOTE)
    return picture


def _roc_panel(axes: "Axes", task: str, curves: dict[str, dict[str, list[float]]]) -> None:
    """From the smallest share of false alarms that the test rows can tell up to all."""
    fewest = min(share for curve in curves.values() for share in curve["false"] if share > 0)
    prices = np.geomspace(fewest, 1, 400)
    heights = {m: np.interp(prices, curve["false"], curve["true"]) for m, curve in curves.items()}
    axes.plot(prices, prices, ":", color="0.6", linewidth=0.8, zorder=1)
    for method, height in heights.items():
        _roc_line(axes, prices, height, task, method)
    axes.set(xscale="log", xlim=(fewest, 1), ylim=(-0.02, 1.04), title=TITLES[task])
    axes.set(xlabel="false alarms (log scale)", ylabel="strangers found")
    _name_the_perfect(axes, [label(m) for m, height in heights.items() if height.min() > 0.999])


def _roc_line(axes: "Axes", prices: np.ndarray, height: np.ndarray, task: str, method: str) -> None:
    """Those that coincide lie on one another, the broadest below: each can still be seen."""
    width, order = {"gpn": (4.2, 2), "gpn-paper": (2.2, 3)}.get(method, (1.3, 4))
    text = label(method) + _auc(task, method)
    axes.plot(prices, height, **look(method), linewidth=width, zorder=order, label=text)


def _name_the_perfect(axes: "Axes", names: list[str]) -> None:
    """Lines that cannot be told apart because all of them are at the top are named below it."""
    if len(names) > 1:
        text = "at the top, one on another:\n" + "\n".join(names)
        axes.text(0.03, 0.93, text, transform=axes.transAxes, va="top", size=7, color=INK)


def _auc(task: str, method: str) -> str:
    """The mean of the table, where there is one."""
    if not (results.RESULTS / task / f"{method}.json").exists():
        return ""
    mean = results.read(task, method)["metrics"]["ood_auc"]["mean"]
    return f" ({mean:.3f})" if task.startswith("super") else f" ({mean:.4f})"


def shares() -> "Figure":
    """AUC as strangers become rare in the pool, and for an OOD set that no pool has ever held."""
    files = found("pool-share")
    picture, every, spare = panels(len(files), height=2.9)
    how: dict[str, Any] = {"color": INK, "marker": "o", "ms": 4}
    unseen = "a set that no pool held\n(KMNIST, textures)"
    every[0].plot([], [], "-", **how, label="strangers such as the pool's")
    every[0].plot([], [], ":", **how, mfc="white", label=unseen)
    for axes, (task, report) in zip(every, files.items(), strict=True):
        _share_panel(axes, task, report["rows"])
    if spare:
        legend(spare[0], every, loc="center", labelspacing=0.9)
    else:
        legend(picture, every, loc="outside lower center", ncols=3)
    note(picture, "Mean and standard deviation over seeds.")
    return picture


def _share_panel(axes: "Axes", task: str, rows: Rows) -> None:
    unseen = [name for name in rows[0]["metrics"] if _is_unseen(name)]
    for metric in ("ood_auc", *unseen):
        _share_lines(axes, rows, metric)
    axes.set_xticks(list(SHARE_PLACES.values()), [_share_name(share) for share in SHARES])
    seeds = len({row["seed"] for row in rows})
    axes.set(xlabel="strangers in the pool", ylabel="OOD AUC")
    axes.set_title(f"{TITLES[task]}, {seeds} seeds")
    _chance(axes)


def _share_lines(axes: "Axes", rows: Rows, metric: str) -> None:
    """A line per method, each a little beside the others; a pool of noise has marks alone."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    seen = metric == "ood_auc"
    for number, method in enumerate(methods):
        points = [_point(rows, method, share, metric) for share in SHARES]
        line = [point for point in points[:-1] if point is not None]
        aside = (number - (len(methods) - 1) / 2) * 0.06
        how = {**marks(method, 4), "capsize": 1.5, "elinewidth": 0.9}
        how |= {"linestyle": "-"} if seen else {"linestyle": ":", "mfc": "white"}
        _bars(axes, line, aside, how, label(method) if seen else None)
        alone = [point for point in points[-1:] if point is not None]
        _bars(axes, alone, 5 * aside + (-0.08 if seen else 0.08), {**how, "linestyle": "none"})


def _bars(
    axes: "Axes",
    points: list[tuple[float, float, float]],
    aside: float,
    how: dict[str, Any],
    text: str | None = None,
) -> None:
    at = [place + aside for place, _, _ in points]
    axes.errorbar(at, [p[1] for p in points], [p[2] for p in points], **how, label=text)


def _point(rows: Rows, method: str, share: str, metric: str) -> tuple[float, float, float] | None:
    """Where a share stands, the mean there and its spread; None where nothing was measured."""
    same = [row for row in rows if (row["method"], row["share"]) == (method, share)]
    if not same:
        return None
    values = results.summary([row["metrics"][metric] for row in same])
    return SHARE_PLACES[share], values["mean"], values["std"]


def _share_name(share: str) -> str:
    return "uniform noise\nas pool" if SHARES[share] is None else share.replace("%", " %")


def _is_unseen(name: str) -> bool:
    return name.startswith("ood_auc_unseen_")


def _chance(axes: "Axes") -> None:
    """A thin line at 0.5 where that is in sight."""
    low, high = axes.get_ylim()
    if low < 0.5 < high:
        axes.axhline(
            0.5, color="0.55", linewidth=0.8, linestyle=(0, (6, 3)), zorder=0, label="chance"
        )


FIGURES: dict[str, Callable[[], Any]] = {
    "scalability": scalability,
    "roc": roc,
    "boxes": boxes,
    "shares": shares,
    "active-learning": active_learning.curves,
}
