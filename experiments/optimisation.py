"""Bayesian optimisation of standard functions: a GPN, a Gaussian process, and random search.

    python -m experiments.optimisation --jobs 16

Every method starts from the same 2 d + 2 Sobol points and chooses thirty more, one at a time.
Regret is the function's maximum minus the best value so far. Finished runs are not repeated; the
summary is `results/optimisation.json`, its figure `results/optimisation.png`.
"""

import argparse
import itertools
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import botorch
import matplotlib.pyplot as plt
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import Ackley, Branin, Hartmann, Levy, Rosenbrock
from botorch.test_functions.synthetic import SyntheticTestFunction
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from torch.quasirandom import SobolEngine

from experiments import harness
from gpn.botorch import GPNModel
from gpn.plots import PALETTE

SUMMARY = harness.RESULTS / "optimisation.json"
SEEDS, STEPS = 5, 30
OPTIONS: dict[str, Any] = {"negate": True, "dtype": torch.float64}
FUNCTIONS: dict[str, Callable[[], SyntheticTestFunction]] = {
    "branin-2": lambda: Branin(**OPTIONS),
    "rosenbrock-2": lambda: Rosenbrock(2, **OPTIONS),
    "ackley-3": lambda: Ackley(3, **OPTIONS),
    "levy-4": lambda: Levy(4, **OPTIONS),
    "hartmann-6": lambda: Hartmann(6, **OPTIONS),
}


def gpn_expected_improvement(x: Tensor, y: Tensor, bounds: Tensor, seed: int) -> Tensor:
    model = GPNModel.fit(x, y, bounds, rng=seed)
    return maximiser(qLogExpectedImprovement(model, best_f=y.max()), bounds)


def gpn_thompson(x: Tensor, y: Tensor, bounds: Tensor, seed: int) -> Tensor:
    return maximiser(PathwiseThompsonSampling(GPNModel.fit(x, y, bounds, rng=seed)), bounds)


def gp_expected_improvement(x: Tensor, y: Tensor, bounds: Tensor, seed: int) -> Tensor:
    model = SingleTaskGP(x, y, input_transform=Normalize(x.shape[1], bounds=bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return maximiser(qLogExpectedImprovement(model, best_f=y.max()), bounds)


def random_search(x: Tensor, y: Tensor, bounds: Tensor, seed: int) -> Tensor:
    """The next point of the Sobol sequence."""
    return sobol(bounds, len(x) + 1, seed // 1000)[-1:]


def maximiser(acquisition: AcquisitionFunction, bounds: Tensor) -> Tensor:
    """The best point by the acquisition function; the same search for every model."""
    search = {"num_restarts": 4, "raw_samples": 256, "options": {"maxiter": 100}}
    return optimize_acqf(acquisition, bounds, q=1, **search)[0]


class Method(NamedTuple):
    """How the next point is chosen, and how the method is drawn."""

    next_point: Callable[[Tensor, Tensor, Tensor, int], Tensor]
    label: str
    color: str
    line: str = "-"


METHODS = {
    "gpn-qlogei": Method(gpn_expected_improvement, "GPN, expected improvement", PALETTE["ours"]),
    "gpn-thompson": Method(gpn_thompson, "GPN, Thompson sampling", PALETTE["light"]),
    "gp-qlogei": Method(
        gp_expected_improvement, "Gaussian process, expected improvement", PALETTE["orange"]
    ),
    "random": Method(random_search, "random search (Sobol)", PALETTE["grey"], "--"),
}


def sobol(bounds: Tensor, n: int, seed: int) -> Tensor:
    unit = SobolEngine(bounds.shape[1], scramble=True, seed=seed).draw(n, dtype=bounds.dtype)
    return bounds[0] + (bounds[1] - bounds[0]) * unit


def optimise(function: str, method: str, seed: int, steps: int) -> dict[str, Any]:
    """One run: the regret after the initial points and after each step, and its seconds."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    warnings.filterwarnings("ignore", category=botorch.exceptions.warnings.OptimizationWarning)
    target, started = FUNCTIONS[function](), time.perf_counter()
    x = sobol(target.bounds, 2 * target.dim + 2, seed)
    y = target(x)[:, None]
    best = [float(y.max())]
    for step in range(steps):
        new = METHODS[method].next_point(x, y, target.bounds, 1000 * seed + step)
        x, y = torch.cat([x, new]), torch.cat([y, target(new)[:, None]])
        best.append(float(y.max()))
    regret = [target.optimal_value - value for value in best]
    return {"regret": regret, "seconds": time.perf_counter() - started}


def run(function: str, method: str, seed: int, steps: int, folder: Path) -> str:
    """One run, unless its file exists; returns a line about it."""
    path = _run_file(folder, function, method, seed, steps)
    if not path.exists():
        harness.save(path, optimise(function, method, seed, steps), indent=None)
    done = json.loads(path.read_text())
    first, *_, last = done["regret"]
    regret = f"regret {first:.3g} → {last:.3g}, {done['seconds']:.0f} s"
    return f"{function} {method} seed {seed}: {regret}"


def _run_file(folder: Path, function: str, method: str, seed: int, steps: int) -> Path:
    return folder / f"{function}_{method}_{seed}_{steps}.json"


def run_all(jobs: int, runs: list[tuple[Any, ...]]) -> None:
    """Every run, `jobs` at a time, with a line for each."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
        futures = [workers.submit(run, *each) for each in runs]
        for count, future in enumerate(as_completed(futures), start=1):
            print(f"[{count}/{len(futures)}] {future.result()}", flush=True)


def summarise(
    functions: Iterable[str],
    methods: Iterable[str],
    seeds: int,
    steps: int,
    folder: Path,
    jobs: int,
) -> dict[str, Any]:
    """Mean and standard deviation over the seeds of every regret curve."""

    def curves(function: str, method: str) -> dict[str, Any]:
        files = [_run_file(folder, function, method, seed, steps) for seed in range(seeds)]
        runs = [json.loads(file.read_text()) for file in files]
        points = [
            harness.summary(list(at)) for at in zip(*(r["regret"] for r in runs), strict=True)
        ]
        return {
            "mean": [point["mean"] for point in points],
            "std": [point["std"] for point in points],
            "final": [one["regret"][-1] for one in runs],
            "seconds_per_step": statistics.fmean(one["seconds"] for one in runs) / steps,
        }

    torch.set_num_threads(1)
    return {
        "name": "optimisation",
        "steps": steps,
        "seeds": list(range(seeds)),
        "device": f"{harness.hardware(torch.device('cpu'))} per run, {jobs} runs at a time",
        "versions": {**harness.versions(), "botorch": botorch.__version__},
        "regret": {f: {m: curves(f, m) for m in methods} for f in functions},
    }


def table(report: dict[str, Any]) -> str:
    """Final regret, mean ± standard deviation over the seeds, as Markdown."""
    methods = next(iter(report["regret"].values()))
    rows = [
        [function, *(f"{c['mean'][-1]:.3g} ± {c['std'][-1]:.2g}" for c in by_method.values())]
        for function, by_method in report["regret"].items()
    ]
    return harness.markdown(["function", *(METHODS[method].label for method in methods)], rows)


def figure(report: dict[str, Any], path: Path) -> Path:
    """One panel per function: the mean regret of each method against the number of steps."""
    panels = report["regret"]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3.2 * len(panels), 3.4), squeeze=False, layout="constrained"
    )
    for ax, (function, by_method) in zip(axes[0], panels.items(), strict=True):
        for method, curve in by_method.items():
            _, label, color, line = METHODS[method]
            ax.plot(curve["mean"], line, label=label, color=color)
        ax.set(title=function, yscale="log", xlabel="evaluations after the initial design")
    axes[0, 0].set_ylabel("mean regret")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.optimisation", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one core each")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--function", choices=FUNCTIONS, action="append", help="only these")
    parser.add_argument("--method", choices=METHODS, action="append", help="only these")
    parser.add_argument("--out", type=Path, default=SUMMARY, help="the summary's file")
    options = parser.parse_args(arguments)
    functions, methods = options.function or list(FUNCTIONS), options.method or list(METHODS)
    folder = options.out.parent / options.out.stem / "runs"
    runs = [
        (function, method, seed, options.steps, folder)
        for seed, method, function in itertools.product(range(options.seeds), methods, functions)
    ]
    run_all(options.jobs, runs)
    report = summarise(functions, methods, options.seeds, options.steps, folder, options.jobs)
    harness.save(options.out, report)
    figure(report, options.out.with_suffix(".png"))
    print(table(report))


if __name__ == "__main__":
    main()
