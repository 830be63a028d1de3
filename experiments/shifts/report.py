"""The suite's table and figure, from its result files alone."""

from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from experiments import harness
from experiments.paper.figures.style import STYLE, WIDTH_INCHES
from experiments.shifts.data import POOLS
from experiments.shifts.methods import METHODS
from gpn.plots import PALETTE, method_color

LABELS = {
    "gpn": "GPN",
    "knn": "5 neighbours",
    "isolation-forest": "isolation forest",
    "mahalanobis": "Mahalanobis",
    "ensemble": "ensemble",
}
OTHERS = ("knn", "isolation-forest", "mahalanobis")
COLORS = {
    "gpn": method_color("gpn"),
    "knn": PALETTE["orange"],
    "isolation-forest": PALETTE["green"],
    "mahalanobis": PALETTE["pink"],
    "ensemble": method_color("ensemble"),
}
NEAR = 0.02
Metrics = dict[str, dict[str, float]]  # by method, then by metric


def write_report() -> str:
    """Write `results/shifts/shifts.md` and `results/figures/shifts.png`; returns what they say."""
    found = measured()
    text = f"{table(found)}\n\n{summary(found)}"
    page = harness.RESULTS / "shifts" / "shifts.md"
    page.write_text(text + "\n")
    picture = figure(found, harness.RESULTS / "figures" / "shifts.png")
    return f"{text}\n\n{page}\n{picture}"


def measured() -> dict[str, Metrics]:
    """The metrics of every table that all methods have a result for."""
    found = {}
    for folder in sorted((harness.RESULTS / "shifts").glob("*/")):
        files = {name: harness.load(folder / f"{name}.json") for name in METHODS}
        if all(files.values()):
            found[folder.name] = {
                method: {name: each["mean"] for name, each in report["metrics"].items()}
                for method, report in files.items()
                if report is not None
            }
    if not found:
        raise FileNotFoundError(
            "a report must have result files, got none; try python -m experiments shifts."
        )
    return found


def shifts_of(found: dict[str, Metrics]) -> list[str]:
    keys = [key for one in found.values() for key in one["gpn"] if key.startswith("auc/")]
    return list(dict.fromkeys(key.split("/")[1] for key in keys))


def table(found: dict[str, Metrics]) -> str:
    """The mean AUC of each shift over the tables that have it."""
    rows = []
    for shift in shifts_of(found):
        for pool in POOLS:
            key = f"auc/{shift}/{pool}"
            some = [one for one in found.values() if key in one["gpn"]]
            means = [np.mean([one[method][key] for one in some]) for method in METHODS]
            best = np.mean([max(one[method][key] for method in OTHERS) for one in some])
            numbers = [f"{mean:.3f}" for mean in (*means, best)]
            rows.append([shift, pool, str(len(some)), *numbers])
    heads = ["shift", "pool", "tables", *(LABELS[name] for name in METHODS), "best of three"]
    return harness.markdown(heads, rows)


def summary(found: dict[str, Metrics]) -> str:
    """How often GPN is near the best of three, false alarms, and flags of far rows."""
    lines = []
    for pool in POOLS:
        keys = [
            (one, key)
            for one in found.values()
            for key in one["gpn"]
            if key.startswith("auc/") and key.endswith(f"/{pool}")
        ]
        own = np.array([one["gpn"][key] for one, key in keys])
        best = np.array([max(one[name][key] for name in OTHERS) for one, key in keys])
        alarms = np.mean([one["gpn"][f"false_alarms/{pool}"] for one in found.values()])
        far = [one["gpn"][f"flagged/one column +20 sd/{pool}"] for one in found.values()]
        lines.append(
            f"- pool {pool}: mean AUC {own.mean():.3f} (best of three, cell by cell: "
            f"{best.mean():.3f}); within {NEAR} of the best in {np.mean(own >= best - NEAR):.0%} "
            f"of {len(own)} cells; false alarms {alarms:.1%} of 5 %; one column +20 sd flagged: "
            f"{np.mean(far):.1%}."
        )
    return "\n".join(lines)


def figure(found: dict[str, Metrics], path: Path) -> Path:
    """Mean AUC of each shift, without a pool; GPN also with a mixed one."""
    shifts = shifts_of(found)
    with rc_context(STYLE):
        picture = Figure(figsize=(WIDTH_INCHES, 3.6), layout="constrained")
        axes = picture.subplots()
        for method in METHODS:
            axes.plot(_means(found, method, "none"), range(len(shifts)), "o", color=COLORS[method])
            axes.lines[-1].set_label(LABELS[method])
        axes.plot(_means(found, "gpn", "mixed"), range(len(shifts)), "o", mfc="none")
        axes.lines[-1].set(color=COLORS["gpn"], label="GPN, mixed pool")
        axes.set_yticks(range(len(shifts)), shifts)
        axes.invert_yaxis()
        axes.set_xlabel("mean AUC of known against shifted rows")
        picture.legend(loc="outside lower center", ncols=3, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.savefig(path, dpi=200)
    return path


def _means(found: dict[str, Metrics], method: str, pool: str) -> list[float]:
    keys = [f"auc/{shift}/{pool}" for shift in shifts_of(found)]
    return [
        float(np.mean([one[method][key] for one in found.values() if key in one[method]]))
        for key in keys
    ]
