"""Active learning: error against labels for `suggest`, random rows, and ensemble disagreement.

    python -m experiments.active_learning superconductor --data FOLDER
    python -m experiments.active_learning digits
    python -m experiments.active_learning figure

All strategies start from the same random labels; after every batch the same GPN is fitted and
tested on the same rows, so that only the choice of rows differs. Finished runs are not repeated.
Writes `results/active-learning/<task>.json`.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from experiments import harness
from gpn import GPNConfig, MLPTrunk, TrainConfig, data
from gpn.estimators import GPNClassifier, GPNRegressor, PosteriorClassifier, PosteriorRegressor
from gpn.plots import INK, method_color

FOLDER = harness.RESULTS / "active-learning"
# Twenty labels are too few to search β, and a small network is enough for 64 pixels.
DIGITS = GPNConfig(
    beta=0.003,
    pool_weights="equal",
    n_axes=50,
    trunk=MLPTrunk(widths=(256, 256), activation="relu", dropout=0.15),
    train=TrainConfig(
        steps=400, label_batch=64, pool_batch=64, learning_rate=2e-3, weight_decay=0.3
    ),
)
SEEDS = {"superconductor": range(20), "digits": range(5)}
N_TABLE_ROWS, N_DIGITS = 4000, 1000
N_MEMBERS = 5
Array = NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """Rows to choose from, rows to test on, and the numbers of labels at which to test."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array
    sizes: tuple[int, ...]
    classes: bool

    def fit(self, labeled: Array, seed: int) -> Any:
        model = GPNClassifier(DIGITS) if self.classes else GPNRegressor()
        model.set_params(random_state=seed)
        return model.fit(self.x[labeled], self.y[labeled], self.x)

    def score(self, model: Any) -> float:
        """Accuracy, or the root mean square error."""
        if self.classes:
            return float(model.score(self.x_test, self.y_test))
        return float(np.sqrt(np.mean((model.predict(self.x_test) - self.y_test) ** 2)))


def superconductor(seed: int, folder: Path | None) -> Problem:
    """4,000 rows to choose from and 4,000 to test on, of a table with 81 features; error in K."""
    table = data.superconductivity(folder)
    sizes = (50, 100, 150, 200, 300, 400)
    return _problem(table.x.numpy(), table.y.numpy(), seed, N_TABLE_ROWS, sizes, classes=False)


def digits(seed: int, folder: Path | None) -> Problem:
    """The 1,797 digits of 8 by 8 pixels in scikit-learn, 1,000 to choose from."""
    x, y = load_digits(return_X_y=True)
    return _problem(x, y, seed, N_DIGITS, (20, 40, 80, 120), classes=True)


def _problem(
    x: Array, y: Array, seed: int, pool: int, sizes: tuple[int, ...], *, classes: bool
) -> Problem:
    order = np.random.default_rng(seed).permutation(len(x))
    train, test = order[:pool], order[pool : 2 * pool]
    return Problem(x[train], y[train], x[test], y[test], sizes, classes)


def choose(strategy: str, problem: Problem, model: Any, labeled: Array, n: int, seed: int) -> Array:
    """The next `n` rows to label: suggested by the model, random, or disputed by an ensemble."""
    rest = np.setdiff1d(np.arange(len(problem.x)), labeled)
    if strategy == "suggest":
        return rest[model.suggest(problem.x[rest], n)]
    if strategy == "random":
        return np.random.default_rng((seed, len(labeled))).permutation(rest)[:n]
    make = PosteriorClassifier if problem.classes else PosteriorRegressor
    ensemble = make("ensemble", settings={"n_members": N_MEMBERS}, random_state=seed)
    ensemble.fit(problem.x[labeled], problem.y[labeled], problem.x)
    return rest[np.argsort(-ensemble.ood_score(problem.x[rest]))[:n]]


PROBLEMS: dict[str, Callable[[int, Path | None], Problem]] = {
    "superconductor": superconductor,
    "digits": digits,
}
STRATEGIES = ("suggest", "random", "disagreement")


def run(task: str, strategy: str, seed: int, folder: Path | None) -> dict[str, Any]:
    """Rounds of fit, test, choose and label."""
    path = FOLDER / "runs" / f"{task}-{strategy}-{seed}.json"
    if path.exists():
        return json.loads(path.read_text())
    problem = PROBLEMS[task](seed, folder)
    labeled = np.random.default_rng(seed).permutation(len(problem.x))[: problem.sizes[0]]
    measured = []
    for size, next_size in zip(problem.sizes, (*problem.sizes[1:], None), strict=True):
        model = problem.fit(labeled, seed)
        measured.append(problem.score(model))
        print(f"{task} {strategy} seed {seed}: {size} labels, {measured[-1]:.4g}", flush=True)
        if next_size is not None:
            chosen = choose(strategy, problem, model, labeled, next_size - size, seed)
            labeled = np.concatenate([labeled, chosen])
    row = {"strategy": strategy, "seed": seed, "labels": problem.sizes, "measured": measured}
    harness.save(path, row)
    return row


def summarise(task: str, folder: Path | None) -> Path:
    """Every strategy and seed; writes mean and standard deviation of their curves."""
    rows = [run(task, strategy, seed, folder) for seed in SEEDS[task] for strategy in STRATEGIES]
    curves = {
        strategy: np.array([row["measured"] for row in rows if row["strategy"] == strategy])
        for strategy in STRATEGIES
    }
    labels, gap = rows[0]["labels"], curves["suggest"] - curves["random"]
    report = {
        "task": task,
        "measure": "accuracy" if task == "digits" else "rmse",
        "device": harness.hardware(),
        "versions": harness.versions(),
        "labels": labels,
        "curves": {name: [harness.summary(list(v)) for v in c.T] for name, c in curves.items()},
        "suggest_minus_random": [harness.summary(list(v)) for v in gap.T],
        "labels_for_what_random_reaches": needed_for(labels, curves, -1),
        "labels_for_what_random_reaches_before": needed_for(labels, curves, -2),
    }
    return harness.save(FOLDER / f"{task}.json", report)


def needed_for(labels: list[int], curves: dict[str, Array], last: int) -> dict[str, float | None]:
    """Labels with which each strategy first is as good as random choice at `labels[last]`."""
    level = curves["random"].mean(0)[last]
    return {name: labels_needed(labels, curve.mean(0), level) for name, curve in curves.items()}


def labels_needed(labels: list[int], curve: Array, level: float) -> float | None:
    """The number of labels at which a curve first reaches `level`, linearly interpolated."""
    rising = curve[-1] > curve[0]
    reached = curve >= level if rising else curve <= level
    if not reached.any():
        return None
    last = int(np.argmax(reached))
    if last == 0:
        return float(labels[0])
    share = (level - curve[last - 1]) / (curve[last] - curve[last - 1])
    return float(labels[last - 1] + share * (labels[last] - labels[last - 1]))


# Colour, line, marker and label; colours are those of the method that chooses.
STYLES = {
    "suggest": (method_color("gpn"), "-", "o", "suggest (GPN)"),
    "random": (INK, (0, (1.2, 1.6)), "x", "random"),
    "disagreement": (
        method_color("ensemble"),
        (0, (4, 2)),
        "P",
        f"disagreement of {N_MEMBERS} plain networks",
    ),
}


def curves() -> Figure:
    """Error against labels; `experiments.paper.figures` draws it as `active-learning`."""
    reports = [_report(task) for task in PROBLEMS]
    figure = Figure((7.0, 3.3), layout="constrained")
    panels = figure.subplots(1, len(reports), squeeze=False)[0]
    for axes, report in zip(panels, reports, strict=True):
        labels, error = report["labels"], "error (root mean square, K)"
        for number, (name, points) in enumerate(report["curves"].items()):
            offset = 0.006 * (number - 1) * labels[-1]
            means, stds = ([point[key] for point in points] for key in ("mean", "std"))
            color, line, marker, label = STYLES[name]
            style = {"color": color, "linestyle": line, "marker": marker, "label": label}
            at = [count + offset for count in labels]
            axes.errorbar(at, means, stds, **style, ms=4.5, capsize=2, elinewidth=0.9)
        axes.set(xlabel="labels", title=report["task"].capitalize(), xticks=labels)
        axes.set_ylabel("accuracy" if report["measure"] == "accuracy" else error)
    legend = panels[0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncols=3, frameon=False)
    seeds = " and ".join(str(report["curves"]["random"][0]["n"]) for report in reports)
    note = f"Mean and standard deviation over {seeds} seeds (disagreement: 5)."
    figure.suptitle(note, fontsize=7.5, color="0.25")
    return figure


def _report(task: str) -> dict[str, Any]:
    report = harness.load(FOLDER / f"{task}.json")
    if report is None:
        raise FileNotFoundError(
            f"a figure needs result files, there is no {task}.json in {FOLDER.name}; run the "
            "experiment first."
        )
    return report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.active_learning")
    parser.add_argument("task", choices=[*PROBLEMS, "figure"])
    parser.add_argument("--data", type=Path, help="the data folder (else GPN_DATA)")
    parser.add_argument("--seed", type=int, action="append", help="only these, no summary")
    options = parser.parse_args()
    if options.task == "figure":
        from experiments.paper.figures import figure  # which imports this module

        print(figure("active-learning"))
    elif options.seed is None:
        print(summarise(options.task, options.data))
    else:
        for seed in options.seed:
            for strategy in STRATEGIES:
                run(options.task, strategy, seed, options.data)


if __name__ == "__main__":
    main()
