"""The table and the figure of the suite, from its result files alone."""

from pathlib import Path
from typing import Any

from experiments import harness

PROBLEMS = ("six-points", "gap", "surface", "five-outputs")
CLASSES = "three-classes"
NAMES = {
    "gpn": "default",
    "gpn-paper": "paper preset",
    "gpn-conditioned": "conditioned anchors",
    "gpn-no-target-noise": "no target noise",
    "gpn-independent": "independent anchors, equal weights",
    "gpn-mixture": "independent anchors, mixture weights",
    "gpn-learnt": "learnt codes, joint anchors",
    "gpn-concat": "concat generator, joint anchors",
}


def table() -> str:
    """Markdown: W2 (covariance error) per regression problem, total variation for classes."""
    rows = [
        [name, *(_target_cell(problem, method) for problem in PROBLEMS), _class_cell(method)]
        for method, name in NAMES.items()
    ]
    exact = [_metrics(problem, "gpn")["w2_exact_draws"]["mean"] for problem in PROBLEMS]
    rows.append(["*1,000 exact draws*", *(f"{value:.4f}" for value in exact), ""])
    return harness.markdown(["variant", *PROBLEMS, CLASSES], rows)


def figure(path: Path = harness.RESULTS / "fidelity" / "fidelity.png") -> Path:
    """Distance to the exact posterior, one group of bars per problem, on a log scale."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(9.5, 4.6), layout="constrained")
    axes = picture.subplots()
    shown = [method for method in NAMES if _metrics(PROBLEMS[0], method)]
    width = 0.8 / len(shown)
    for place, method in enumerate(shown):
        found = [(i, _metrics(problem, method)) for i, problem in enumerate(PROBLEMS)]
        bars = [(i, metrics["w2"]) for i, metrics in found if metrics]
        at = [i + (place - (len(shown) - 1) / 2) * width for i, _ in bars]
        heights, errors = [w2["mean"] for _, w2 in bars], [w2["std"] for _, w2 in bars]
        axes.bar(at, heights, width, yerr=errors, color=_color(method), label=NAMES[method])
    for index, problem in enumerate(PROBLEMS):
        level = _metrics(problem, "gpn")["w2_exact_draws"]["mean"]
        axes.plot([index - 0.4, index + 0.4], [level, level], "k--", linewidth=1)
    axes.plot([], [], "k--", linewidth=1, label="1,000 exact draws")
    axes.set_yscale("log")
    axes.set_xticks(range(len(PROBLEMS)), PROBLEMS)
    axes.set_ylabel("W2 to the exact posterior (log scale)")
    picture.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    picture.savefig(path, dpi=150)
    return path


def _color(method: str) -> str:
    from gpn.plots import PALETTE

    fixed = {"gpn": PALETTE["ours"], "gpn-paper": PALETTE["paper"]}
    shades = [s for s in PALETTE.values() if s not in {*fixed.values(), PALETTE["truth"]}]
    rest = [name for name in NAMES if name not in fixed]
    return fixed.get(method) or [*shades, "#F0E442", "#bbbbbb"][rest.index(method)]


def _metrics(problem: str, method: str) -> dict[str, Any]:
    """The metrics of one result file; empty if there is none."""
    report = harness.load(harness.RESULTS / "fidelity" / problem / f"{method}.json")
    return {} if report is None else report["metrics"]


def _target_cell(problem: str, method: str) -> str:
    if not (metrics := _metrics(problem, method)):
        return ""
    w2, error = metrics["w2"], metrics["covariance_error"]["mean"]
    return f"{w2['mean']:.4f} ± {w2['std']:.4f} ({error:.1%})"


def _class_cell(method: str) -> str:
    if not (metrics := _metrics(CLASSES, method)):
        return ""
    value = metrics["total_variation"]
    return f"{value['mean']:.4f} ± {value['std']:.4f}"
