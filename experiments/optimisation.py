"""Bayesian optimisation of standard functions: a GPN, a Gaussian process, and random search.

    python -m experiments.optimisation --jobs 16

Every method starts from the same Sobol points, 2 d + 2 of them, and asks for one more point thirty
times. Regret is the gap between the function's maximum and the best value so far. Runs that are on
disk are not run again; the summary is experiments/results/optimisation.json, its picture beside it.
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
from typing import Any

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

from experiments import results
from gpn.botorch import GPNModel
from gpn.plots import PALETTE

SUMMARY = results.RESULTS / "optimisation.json"
SEEDS, STEPS = 5, 30
LIKE: dict[str, Any] = {"negate": True, "dtype": torch.float64}
FUNCTIONS: dict[str, Callable[[], SyntheticTestFunction]] = {
    "branin-2": lambda: Branin(**LIKE),
    "rosenbrock-2": lambda: Rosenbrock(2, **LIKE),
    "ackley-3": lambda: Ackley(3, **LIKE),
    "levy-4": lambda: Levy(4, **LIKE),
    "hartmann-6": lambda: Hartmann(6, **LIKE),
}


def gpn_expected_improvement(x: Tensor, y: Tensor, bounds: Tensor, seed: int) -> Tensor:
    model = GPNModel.fit(x, y, bounds, rng=seed)
    return best_point(qLogExpectedImprovement(model, best_f=y.max()), bounds)


def gpn_thompson(x: Tensor, y: Tensor, bounds: Tensor, seed: int) -> Tensor:
    model = GPNModel.fit(x, y, bounds, rng=seed)
    return best_point(PathwiseThompsonSampling(model), bounds)


def gp_expected_improvement(x: Tensor, y: Tensor, bounds: Tensor, seed: int) -> Tensor:
    model = SingleTaskGP(x, y, input_transform=Normalize(x.shape[1], bounds=bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return best_point(qLogExpectedImprovement(model, best_f=y.max()), bounds)


def random_search(x: Tensor, y: Tensor, bounds: Tensor, seed: int) -> Tensor:
    """The Sobol sequence of the first points, continued."""
    return sobol(bounds, len(x) + 1, seed // 1000)[-1:]


METHODS = {
    "gpn-qlogei": gpn_expected_improvement,
    "gpn-thompson": gpn_thompson,
    "gp-qlogei": gp_expected_improvement,
    "random": random_search,
}
COLORS = {
    "gpn-qlogei": PALETTE["ours"],
    "gpn-thompson": PALETTE["light"],
    "gp-qlogei": PALETTE["orange"],
    "random": PALETTE["grey"],
}
LABELS = {
    "gpn-qlogei": "GPN, expected improvement",
    "gpn-thompson": "GPN, Thompson sampling",
    "gp-qlogei": "Gaussian process, expected improvement",
    "random": "random search (Sobol)",
}


def best_point(acquisition: AcquisitionFunction, bounds: Tensor) -> Tensor:
    """The same search for every model."""
    options = {"maxiter": 100}
    return optimize_acqf(
        acquisition, bounds, q=1, num_restarts=4, raw_samples=256, options=options
    )[0]


def sobol(bounds: Tensor, n: int, seed: int) -> Tensor:
    unit = SobolEngine(bounds.shape[1], scramble=True, seed=seed).draw(n, dtype=bounds.dtype)
    return bounds[0] + (bounds[1] - bounds[0]) * unit


def optimise(function: str, method: str, seed: int, steps: int) -> dict[str, Any]:
    """One run: regret after the first points and after each step, and its seconds."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    warnings.filterwarnings("ignore", category=botorch.exceptions.warnings.OptimizationWarning)
    target, started = FUNCTIONS[function](), time.perf_counter()
    x = sobol(target.bounds, 2 * target.dim + 2, seed)
    y = target(x)[:, None]
    best = [float(y.max())]
    for step in range(steps):
        new = METHODS[method](x, y, target.bounds, 1000 * seed + step)
        x, y = torch.cat([x, new]), torch.cat([y, target(new)[:, None]])
        best.append(float(y.max()))
    regret = [target.optimal_value - value for value in best]
    return {"regret": regret, "seconds": time.perf_counter() - started}


def run(function: str, method: str, seed: int, steps: int, folder: Path) -> str:
    """One run, read from its file where there is one; a line about it."""
    path = folder / f"{function}_{method}_{seed}_{steps}.json"
    if not path.exists():
        results.save(path, optimise(function, method, seed, steps), indent=None)
    done = json.loads(path.read_text())
    said = f"regret {done['regret'][0]:.3g} → {done['regret'][-1]:.3g}, {done['seconds']:.0f} s"
    return f"{function} {method} seed {seed}: {said}"


def run_all(jobs: int, everything: list[tuple[Any, ...]]) -> None:
    """Every run, `jobs` at a time, with a line when one is done."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
        futures = [workers.submit(run, *each) for each in everything]
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
        names = [f"{function}_{method}_{seed}_{steps}.json" for seed in range(seeds)]
        runs = [json.loads((folder / name).read_text()) for name in names]
        points = [
            results.summary(list(at)) for at in zip(*(r["regret"] for r in runs), strict=True)
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
        "device": f"{results.device(torch.device('cpu'))} per run, {jobs} runs at a time",
        "versions": {**results.versions(), "botorch": botorch.__version__},
        "regret": {f: {m: curves(f, m) for m in methods} for f in functions},
    }


def table(report: dict[str, Any]) -> str:
    """Final regret, mean ± standard deviation over the seeds, as Markdown."""
    methods = next(iter(report["regret"].values()))
    head = ["function", *(LABELS[method] for method in methods)]
    lines = [head, ["---"] * len(head)]
    for function, by_method in report["regret"].items():
        cells = [f"{c['mean'][-1]:.3g} ± {c['std'][-1]:.2g}" for c in by_method.values()]
        lines.append([function, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure(report: dict[str, Any], path: Path) -> Path:
    """One panel per function: the mean regret of each method against the number of steps."""
    panels = report["regret"]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3.2 * len(panels), 3.4), squeeze=False, layout="constrained"
    )
    for ax, (function, by_method) in zip(axes[0], panels.items(), strict=True):
        for method, curve in by_method.items():
            style = {"linestyle": "--"} if method == "random" else {}
            ax.plot(curve["mean"], label=LABELS[method], color=COLORS[method], **style)
        ax.set(title=function, yscale="log", xlabel="evaluations after the first design")
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
    seeds = range(options.seeds)
    everything = [
        (function, method, seed, options.steps, folder)
        for seed, method, function in itertools.product(seeds, methods, functions)
    ]
    run_all(options.jobs, everything)
    report = summarise(functions, methods, options.seeds, options.steps, folder, options.jobs)
    results.save(options.out, report)
    figure(report, options.out.with_suffix(".png"))
    print(table(report))


if __name__ == "__main__":
    main()
