"""Labels against error: rows that `suggest` picks, random ones, and those an ensemble disputes.

    python -m experiments.active_learning superconductor --data FOLDER
    python -m experiments.active_learning digits
    python -m experiments.active_learning figure

All strategies start from the same random labels, and after every batch the same GPN is fitted to
what they have and tested on the same rows: only the choice of rows differs. A run that has finished
is not made again. Writes `results/active-learning/<task>.json`.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments import results
from gpn import GPNConfig, MLPTrunk, TrainConfig, data
from gpn.estimators import GPNClassifier, GPNRegressor, PosteriorClassifier, PosteriorRegressor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = results.RESULTS / "active-learning"
# A search for β on twenty labels is no use, and a small network does for 64 pixels.
DIGITS = GPNConfig(
    beta=0.003,
    pool_weights="equal",
    n_axes=50,
    trunk=MLPTrunk(widths=(256, 256), activation="relu", dropout=0.15),
    train=TrainConfig(
        steps=400, label_batch=64, pool_batch=64, learning_rate=2e-3, weight_decay=0.3
    ),
)
SEEDS = range(5)
POOL = 4000
MEMBERS = 5
Array = NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """Rows to choose from and rows to test on, the numbers of labels, and what is measured."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array
    sizes: tuple[int, ...]
    classes: bool

    def fitted(self, have: Array, seed: int) -> Any:
        model = GPNClassifier(DIGITS) if self.classes else GPNRegressor()
        model.set_params(random_state=seed)
        return model.fit(self.x[have], self.y[have], self.x)

    def measured(self, model: Any) -> float:
        """Accuracy, or the root of the mean squared error."""
        if self.classes:
            return float(model.score(self.x_test, self.y_test))
        return float(np.sqrt(np.mean((model.predict(self.x_test) - self.y_test) ** 2)))


def superconductor(seed: int, folder: Path | None) -> Problem:
    """4,000 rows to choose from and 4,000 to test on, of a table with 81 features; error in K."""
    table = data.superconductivity(folder)
    return _problem(
        table.x.numpy(), table.y.numpy(), seed, POOL, (50, 100, 150, 200, 300, 400), classes=False
    )


def digits(seed: int, folder: Path | None) -> Problem:
    """The 1,797 digits of 8 by 8 pixels that scikit-learn carries, 1,000 to choose from."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return _problem(x, y, seed, 1000, (20, 40, 80, 120), classes=True)


def _problem(
    x: Array, y: Array, seed: int, pool: int, sizes: tuple[int, ...], *, classes: bool
) -> Problem:
    order = np.random.default_rng(seed).permutation(len(x))
    ours, test = order[:pool], order[pool : 2 * pool]
    return Problem(x[ours], y[ours], x[test], y[test], sizes, classes)


def suggested(problem: Problem, model: Any, have: Array, rest: Array, n: int, seed: int) -> Array:
    return rest[model.suggest(problem.x[rest], n)]


def at_random(problem: Problem, model: Any, have: Array, rest: Array, n: int, seed: int) -> Array:
    return np.random.default_rng((seed, len(have))).permutation(rest)[:n]


def disputed(problem: Problem, model: Any, have: Array, rest: Array, n: int, seed: int) -> Array:
    """The rows on which the members of a plain ensemble differ most."""
    make = PosteriorClassifier if problem.classes else PosteriorRegressor
    ensemble = make("ensemble", settings={"n_members": MEMBERS}, random_state=seed)
    scores = ensemble.fit(problem.x[have], problem.y[have], problem.x).ood_score(problem.x[rest])
    return rest[np.argsort(-scores)[:n]]


PROBLEMS: dict[str, Callable[[int, Path | None], Problem]] = {
    "superconductor": superconductor,
    "digits": digits,
}
STRATEGIES = {"suggest": suggested, "random": at_random, "disagreement": disputed}


def run(task: str, strategy: str, seed: int, folder: Path | None) -> dict[str, Any]:
    """Rounds of fit, test, choose, label."""
    path = FOLDER / "runs" / f"{task}-{strategy}-{seed}.json"
    if path.exists():
        return json.loads(path.read_text())
    problem = PROBLEMS[task](seed, folder)
    have = np.random.default_rng(seed).permutation(len(problem.x))[: problem.sizes[0]]
    measured = []
    for now, then in zip(problem.sizes, (*problem.sizes[1:], None), strict=True):
        model = problem.fitted(have, seed)
        measured.append(problem.measured(model))
        print(f"{task} {strategy} seed {seed}: {now} labels, {measured[-1]:.4g}", flush=True)
        if then is not None:
            rest = np.setdiff1d(np.arange(len(problem.x)), have)
            chosen = STRATEGIES[strategy](problem, model, have, rest, then - now, seed)
            have = np.concatenate([have, chosen])
    row = {"strategy": strategy, "seed": seed, "labels": problem.sizes, "measured": measured}
    results.save(path, row)
    return row


def summarise(task: str, folder: Path | None) -> Path:
    rows = [run(task, strategy, seed, folder) for seed in SEEDS for strategy in STRATEGIES]
    curves = {
        strategy: np.array([row["measured"] for row in rows if row["strategy"] == strategy])
        for strategy in STRATEGIES
    }
    labels = rows[0]["labels"]
    report = {
        "task": task,
        "measure": "accuracy" if task == "digits" else "rmse",
        "device": results.device(),
        "versions": results.versions(),
        "labels": labels,
        "curves": {name: [results.summary(list(v)) for v in c.T] for name, c in curves.items()},
        "labels_for_what_random_reaches": {
            name: needed(labels, c.mean(0), curves["random"].mean(0)[-1])
            for name, c in curves.items()
        },
    }
    return results.save(FOLDER / f"{task}.json", report)


def needed(labels: list[int], curve: Array, level: float) -> float | None:
    """The labels at which a curve first reaches `level`, between two sizes by straight lines."""
    rising = curve[-1] > curve[0]
    reached = curve >= level if rising else curve <= level
    if not reached.any():
        return None
    last = int(np.argmax(reached))
    if last == 0:
        return float(labels[0])
    share = (level - curve[last - 1]) / (curve[last] - curve[last - 1])
    return float(labels[last - 1] + share * (labels[last] - labels[last - 1]))


def curves() -> "Figure":
    """Labels against error; `experiments.paper.figures` draws it as `active-learning`."""
    from matplotlib.figure import Figure

    files = [_report(task) for task in PROBLEMS]
    picture = Figure((7.0, 3.3), layout="constrained")
    every = picture.subplots(1, len(files), squeeze=False)[0]
    for axes, report in zip(every, files, strict=True):
        for number, (name, points) in enumerate(report["curves"].items()):
            aside = 0.006 * (number - 1) * report["labels"][-1]
            _curve(axes, name, [labels + aside for labels in report["labels"]], points)
        what = "accuracy" if report["measure"] == "accuracy" else "error (root mean square, K)"
        axes.set(xlabel="labels", ylabel=what, title=report["task"].capitalize())
        axes.set_xticks(report["labels"])
    lines = every[0].get_legend_handles_labels()
    picture.legend(*lines, loc="outside lower center", ncols=3, frameon=False)
    seeds = files[0]["curves"]["random"][0]["n"]
    picture.suptitle(f"Mean and standard deviation over {seeds} seeds.", fontsize=7.5, color="0.25")
    return picture


def _curve(axes: "Axes", name: str, at: list[float], points: list[dict[str, float]]) -> None:
    color, line, marker, text = _looks()[name]
    means, stds = ([point[key] for point in points] for key in ("mean", "std"))
    how = {"color": color, "linestyle": line, "marker": marker, "label": text}
    axes.errorbar(at, means, stds, **how, ms=4.5, capsize=2, elinewidth=0.9)


def _looks() -> dict[str, tuple[Any, ...]]:
    """Colour, line, mark and name of each strategy; colours are those of whoever chooses."""
    from gpn.plots import INK, method_color

    dispute = f"disagreement of {MEMBERS} plain networks"
    return {
        "suggest": (method_color("gpn"), "-", "o", "suggest (GPN)"),
        "random": (INK, (0, (1.2, 1.6)), "x", "random"),
        "disagreement": (method_color("ensemble"), (0, (4, 2)), "P", dispute),
    }


def _report(task: str) -> dict[str, Any]:
    path = FOLDER / f"{task}.json"
    if not path.exists():
        raise FileNotFoundError(
            f"a figure needs result files, there is no {path.name} in {path.parent.name}; run the "
            "experiment first."
        )
    return json.loads(path.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.active_learning")
    parser.add_argument("task", choices=[*PROBLEMS, "figure"])
    parser.add_argument("--data", type=Path, help="the data folder (else GPN_DATA)")
    parser.add_argument("--seed", type=int, action="append", help="run these only, sum nothing up")
    options = parser.parse_args()
    if options.task == "figure":
        from experiments.paper.figures import figure

        print(figure("active-learning"))
    elif options.seed is None:
        print(summarise(options.task, options.data))
    else:
        for seed in options.seed:
            for strategy in STRATEGIES:
                run(options.task, strategy, seed, options.data)


if __name__ == "__main__":
    main()
