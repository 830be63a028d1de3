"""The table and the figure of the fidelity benchmark, from its result files alone."""

from pathlib import Path
from typing import Any

from experiments import results
from gpn.plots import PALETTE

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
    heads = ["variant", *PROBLEMS, CLASSES]
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    for method, name in NAMES.items():
        cells = [_regression_cell(problem, method) for problem in PROBLEMS]
        lines.append(" | ".join([name, *cells, _class_cell(method)]))
    exact = [_exact_cell(problem) for problem in PROBLEMS]
    lines.append(" | ".join(["*1,000 exact draws*", *exact, ""]))
    return "\n".join(f"| {line} |" for line in lines)


def figure(path: Path = results.RESULTS / "fidelity" / "fidelity.png") -> Path:
    """Distance to the exact posterior, one group of bars per problem, on a log scale."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(9.5, 4.6), layout="constrained")
    axes = picture.subplots()
    shown = [method for method in NAMES if _found(PROBLEMS[0], method)]
    width = 0.8 / len(shown)
    for place, method in enumerate(shown):
        found = [(i, _metric(p, method, "w2")) for i, p in enumerate(PROBLEMS) if _found(p, method)]
        at = [i + (place - (len(shown) - 1) / 2) * width for i, _ in found]
        heights, errors = [m["mean"] for _, m in found], [m["std"] for _, m in found]
        axes.bar(at, heights, width, yerr=errors, color=_color(method), label=NAMES[method])
    for index, problem in enumerate(PROBLEMS):
        level = _metric(problem, "gpn", "w2_exact_draws")["mean"]
        axes.plot([index - 0.4, index + 0.4], [level, level], "k--", linewidth=1)
    axes.plot([], [], "k--", linewidth=1, label="1,000 exact draws")
    axes.set_yscale("log")
    axes.set_xticks(range(len(PROBLEMS)), PROBLEMS)
    axes.set_ylabel("W2 to the exact posterior (log scale)")
    picture.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    picture.savefig(path, dpi=150)
    return path


def _color(method: str) -> str:
    order = list(PALETTE.values())
    fixed = {"gpn": PALETTE["ours"], "gpn-paper": PALETTE["paper"]}
    shades = [shade for shade in order if shade not in {*fixed.values(), PALETTE["truth"]}]
    rest = [name for name in NAMES if name not in fixed]
    return fixed.get(method) or [*shades, "#F0E442", "#bbbbbb"][rest.index(method)]


def _found(problem: str, method: str) -> bool:
    return (results.RESULTS / "fidelity" / problem / f"{method}.json").exists()


def _metric(problem: str, method: str, name: str) -> dict[str, Any]:
    return results.read(f"fidelity/{problem}", method)["metrics"][name]


def _regression_cell(problem: str, method: str) -> str:
    if not _found(problem, method):
        return ""
    distance = _metric(problem, method, "w2")
    error = _metric(problem, method, "covariance_error")["mean"]
    return f"{distance['mean']:.4f} ± {distance['std']:.4f} ({error:.1%})"


def _class_cell(method: str) -> str:
    if not _found(CLASSES, method):
        return ""
    value = _metric(CLASSES, method, "total_variation")
    return f"{value['mean']:.4f} ± {value['std']:.4f}"


def _exact_cell(problem: str) -> str:
    return f"{_metric(problem, 'gpn', 'w2_exact_draws')['mean']:.4f}"
