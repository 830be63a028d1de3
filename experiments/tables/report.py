"""The suite's table, summary and figure, from its result files alone."""

import math
import statistics
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import harness
from experiments.paper.figures.style import SMALL, STYLE, WIDTH_INCHES
from experiments.tables.methods import METHODS
from gpn.plots import PALETTE, method_color

LABELS = {
    "gpn": "GPN",
    "gpn-network": "GPN, network",
    "gp-ard": "GP, ARD",
    "deep-ensemble": "deep ensemble",
    "gradient-boosting": "gradient boosting",
    "random-forest": "random forest",
    "ngboost": "NGBoost",
    "catboost": "CatBoost",
}
COLORS = {
    "gpn": method_color("gpn"),
    "gpn-network": PALETTE["light"],
    "gp-ard": method_color("gp"),
    "deep-ensemble": method_color("ensemble"),
    "gradient-boosting": PALETTE["orange"],
    "random-forest": PALETTE["green"],
    "ngboost": PALETTE["pink"],
    "catboost": method_color("dkl"),
}
NEAR_NLL, NEAR_RMSE = 0.05, 1.03
Means = dict[str, dict[str, float]]  # by method, then by metric
assert LABELS.keys() == METHODS.keys() == COLORS.keys()


def write_report() -> str:
    """Write `results/tables/tables.md` and `results/figures/tables.png`; returns what they say."""
    text = f"{table()}\n\n{summary()}"
    page = harness.RESULTS / "tables" / "tables.md"
    picture = figure(harness.RESULTS / "figures" / "tables.png")
    page.write_text(text + "\n")
    return f"{text}\n\n{page}\n{picture}"


def measured() -> dict[str, Means]:
    """The means of every table and method, over the splits that all methods of a table have."""
    found = {}
    for folder in sorted((harness.RESULTS / "tables").glob("*/")):
        files = {name: harness.load(folder / f"{name}.json") for name in LABELS}
        rows = {name: report["rows"] for name, report in files.items() if report is not None}
        if rows:
            found[folder.name] = _means_of_shared_splits(rows)
    if not found:
        raise FileNotFoundError(
            "a report must have result files, got none; try python -m experiments tables."
        )
    return found


def _means_of_shared_splits(rows: dict[str, list[dict[str, Any]]]) -> Means:
    shared = set.intersection(*({row["split"] for row in each} for each in rows.values()))
    means = {}
    for method, each in rows.items():
        kept = [row for row in each if row["split"] in shared]
        numbers = [name for name in each[0] if name != "device"]
        means[method] = {name: _mean(row[name] for row in kept) for name in numbers}
    return means


def _mean(values: Any) -> float:
    numbers = list(values)
    return statistics.fmean(numbers) if numbers else math.nan


def table() -> str:
    """Markdown: NLL and, below it, RMSE of each measured method; the best of each in bold."""
    rows, found = [], measured()
    shown = [method for method in LABELS if any(method in means for means in found.values())]
    for name, means in found.items():
        size = next(iter(means.values()))
        count = round(size["n_train"] + size["n_test"])
        cells = [_cell(means, method) for method in shown]
        coverage = f"{means['gpn']['coverage_95']:.1%}" if "gpn" in means else ""
        rows.append([name, f"{count:,}", f"{size['n_columns']:.0f}", *cells, coverage])
    heads = ["table", "rows", "columns", *(LABELS[method] for method in shown), "GPN coverage"]
    return harness.markdown(heads, rows)


def _cell(means: Means, method: str) -> str:
    if method not in means:
        return ""
    texts = (_bold(means, method, "nll", ".2f"), _bold(means, method, "rmse", ".3g"))
    return "<br>".join(texts)


def _bold(means: Means, method: str, metric: str, digits: str) -> str:
    text = format(means[method][metric], digits)
    best = format(min(one[metric] for one in means.values()), digits)
    return f"**{text}**" if text == best else text


def summary() -> str:
    """Markdown: how far each method is from the best of each table."""
    found = measured()
    rows = []
    for method, label in LABELS.items():
        tables = [means for means in found.values() if method in means]
        if tables:
            rows.append([label, str(len(tables)), *_summary_cells(tables, method)])
    heads = ["method", "tables", "NLL within 0.05 of the best", "mean rank", "largest gap"]
    heads += ["RMSE within 3 % of the best", "mean rank", "geometric mean ratio", "largest ratio"]
    return harness.markdown([*heads, "coverage", "from … to", "fit seconds, mean"], rows)


def _summary_cells(tables: list[Means], method: str) -> list[str]:
    gaps = [above_best(means, method) for means in tables]
    ratios = [ratio_to_best(means, method) for means in tables]
    coverage = [means[method]["coverage_95"] for means in tables]
    return [
        str(sum(gap <= NEAR_NLL for gap in gaps)),
        f"{_mean(rank(means, method, 'nll') for means in tables):.2f}",
        f"{max(gaps):.2f}",
        str(sum(ratio <= NEAR_RMSE for ratio in ratios)),
        f"{_mean(rank(means, method, 'rmse') for means in tables):.2f}",
        f"{statistics.geometric_mean(ratios):.3f}",
        f"{max(ratios):.2f}",
        f"{_mean(coverage):.1%}",
        f"{min(coverage):.1%} … {max(coverage):.1%}",
        f"{_mean(means[method]['fit_seconds'] for means in tables):.1f}",
    ]


def above_best(means: Means, method: str) -> float:
    """NLL minus the lowest NLL of the table."""
    return means[method]["nll"] - min(one["nll"] for one in means.values())


def ratio_to_best(means: Means, method: str) -> float:
    """RMSE over the lowest RMSE of the table."""
    return means[method]["rmse"] / min(one["rmse"] for one in means.values())


def rank(means: Means, method: str, metric: str) -> int:
    """1 is the best."""
    return 1 + sum(one[metric] < means[method][metric] for one in means.values())


def figure(path: Path) -> Path:
    """One dot per table: NLL above the best, and RMSE over the best, a row for each method."""
    found = measured()
    shown = [method for method in LABELS if any(method in means for means in found.values())]
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        picture = Figure((WIDTH_INCHES, 0.9 + 0.36 * len(shown)), layout="constrained")
        left, right = picture.subplots(1, 2, sharey=True)
        _strips(left, {method: _each(found, method, above_best) for method in shown})
        _strips(right, {method: _each(found, method, ratio_to_best) for method in shown})
        left.set_xscale("symlog", linthresh=NEAR_NLL, linscale=0.6)
        left.set(xlim=(-0.006, None), xlabel="NLL minus the table's best, in nats")
        right.set_xscale("log")
        right.set(xlim=(0.985, None), xlabel="RMSE divided by the table's best")
        for axes in (left, right):
            axes.set_xlim(right=1.15 * axes.get_xlim()[1])
        _ticks(left, (0, 0.05, 0.1, 0.3, 1, 3, 10, 30, 100))
        _ticks(right, (1, 2, 3, 5, 10, 20, 50, 100))
        for axes, limit in ((left, NEAR_NLL), (right, NEAR_RMSE)):
            axes.axvline(limit, color="0.6", linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
        left.set_yticks(range(len(shown)), [LABELS[method] for method in shown])
        left.invert_yaxis()
        note = "a dot is a table, a bar the median; dashed: 0.05 nats and 3 % behind the best"
        picture.suptitle(note, fontsize=SMALL, color="0.25")
        _write_ranks(left, found, shown, "nll")
        _write_ranks(right, found, shown, "rmse")
        picture.savefig(path)
    return path


def _each(found: dict[str, Means], method: str, distance: Any) -> list[float]:
    return [distance(means, method) for means in found.values() if method in means]


def _strips(axes: Axes, by_method: dict[str, list[float]]) -> None:
    for place, (method, values) in enumerate(by_method.items()):
        spread = [place + 0.24 * (index % 5 - 2) / 2 for index in range(len(values))]
        options = {"color": COLORS[method], "alpha": 0.75, "linewidths": 0}
        axes.scatter(values, spread, s=16, clip_on=False, zorder=2, **options)
        middle = statistics.median(values)
        axes.plot([middle] * 2, [place - 0.34, place + 0.34], color=COLORS[method], linewidth=2)
    axes.grid(axis="x", color="0.92", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _ticks(axes: Axes, values: tuple[float, ...]) -> None:
    largest = axes.get_xlim()[1]
    kept = [value for value in values if value <= largest]
    axes.set_xticks(kept, [f"{value:g}" for value in kept])
    axes.set_xticks([], minor=True)


def _write_ranks(axes: Axes, found: dict[str, Means], shown: list[str], metric: str) -> None:
    """The mean rank at the right end of each row."""
    options = {"transform": axes.get_yaxis_transform(), "fontsize": SMALL, "color": "0.25"}
    axes.text(1.07, -0.75, "mean rank", ha="center", **options)
    for place, method in enumerate(shown):
        tables = [means for means in found.values() if method in means]
        mean = _mean(rank(means, method, metric) for means in tables)
        axes.text(1.07, place, f"{mean:.1f}", va="center", ha="center", **options)
