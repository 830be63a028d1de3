"""OOD AUC as OOD rows become rare in the pool, and for an OOD set that no pool held."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import harness
from experiments.paper.contamination import SHARES
from experiments.paper.figures import style
from gpn.plots import INK

Rows = list[dict[str, Any]]
# A synthetic pool is no share, and stands apart.
POSITIONS = {name: at + (0.3 if SHARES[name] is None else 0) for at, name in enumerate(SHARES)}


def contamination() -> Figure:
    """A panel per task, a line per method and OOD set."""
    files = style.reports("pool-share")
    figure, every, spare = style.panels(len(files), height=2.9)
    dots: dict[str, Any] = {"color": INK, "marker": "o", "ms": 4}
    every[0].plot([], [], "-", **dots, label="the pool's OOD set")
    every[0].plot([], [], ":", **dots, mfc="white", label="an unseen OOD set\n(KMNIST, textures)")
    for axes, (task, report) in zip(every, files.items(), strict=True):
        _panel(axes, task, report["rows"])
    if spare:
        style.legend(spare[0], every, loc="center", labelspacing=0.9)
    else:
        style.legend(figure, every, loc="outside lower center", ncols=3)
    style.note(figure, "Mean and standard deviation over seeds.")
    return figure


def _panel(axes: Axes, task: str, rows: Rows) -> None:
    unseen = [name for name in rows[0]["metrics"] if name.startswith("ood_auc_unseen_")]
    for metric in ("ood_auc", *unseen):
        _lines(axes, rows, metric)
    names = [share.replace("%", " %") for share in SHARES if SHARES[share] is not None]
    axes.set_xticks(list(POSITIONS.values()), [*names, "uniform noise\nas pool"])
    axes.set(xlabel="OOD rows in the pool", ylabel="OOD AUC")
    axes.set_title(f"{style.TITLES[task]}, {len({row['seed'] for row in rows})} seeds")
    low, high = axes.get_ylim()
    if low < 0.5 < high:
        line = {"color": "0.55", "linewidth": 0.8, "linestyle": (0, (6, 3)), "zorder": 0}
        axes.axhline(0.5, **line, label="chance")


def _lines(axes: Axes, rows: Rows, metric: str) -> None:
    """A line per method with a small offset; a synthetic pool has markers alone."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    seen = metric == "ood_auc"
    for number, method in enumerate(methods):
        points = [point_of(rows, method, share, metric) for share in SHARES]
        offset = (number - (len(methods) - 1) / 2) * 0.06
        line = {**style.marker(method, 4), "capsize": 1.5, "elinewidth": 0.9}
        line |= {"linestyle": "-"} if seen else {"linestyle": ":", "mfc": "white"}
        _error_bars(axes, points[:-1], offset, line, style.label(method) if seen else None)
        apart = 5 * offset + (-0.08 if seen else 0.08)
        _error_bars(axes, points[-1:], apart, {**line, "linestyle": "none"})


Point = tuple[float, float, float]


def _error_bars(
    axes: Axes,
    points: list[Point | None],
    offset: float,
    line: dict[str, Any],
    text: str | None = None,
) -> None:
    known = [point for point in points if point is not None]
    at, means, stds = ([point[i] for point in known] for i in range(3))
    axes.errorbar([x + offset for x in at], means, stds, **line, label=text)


def point_of(rows: Rows, method: str, share: str, metric: str) -> Point | None:
    """The position of a share, and mean and standard deviation there; None if not measured."""
    same = [row for row in rows if (row["method"], row["share"]) == (method, share)]
    if not same:
        return None
    values = harness.summary([row["metrics"][metric] for row in same])
    return POSITIONS[share], values["mean"], values["std"]
