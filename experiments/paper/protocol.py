"""The protocol: five values of a hyperparameter on validation rows, then several seeds of the best.

A run is one fit of one method with one value and one seed. Each leaves a file under
`results/<task>/runs/` and is not repeated; `results/<task>/<method>.json` summarises them, and a
method with a complete summary is finished, with or without those files.
"""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import harness
from experiments.paper.context import Log, RunContext
from experiments.paper.evaluate import N_DRAWS, evaluate, first_images, plot_data
from experiments.paper.plans import ENSEMBLES
from experiments.paper.resume import finished_report, load_run
from experiments.paper.tasks.split import Split
from gpn import MLPTrunk, Posterior
from gpn.methods.gpn.fitting.fit_many import IncompatibleFits, fit_many

N_MEMBERS = 10
LOSS_SLACK = 1.05
ACCURACY_SLACK = 0.008  # one standard error: 5,000 validation images, two accuracies of 81 %
LOGGED = ("id_loss", "id_width", "ood_coverage", "accuracy", "id_entropy", "ood_entropy", "ood_auc")


@dataclass(frozen=True)
class Run:
    """One value of the hyperparameter on validation rows of seed 0, or on test rows of `seed`."""

    context: RunContext
    method: str
    value: Any
    seed: int | None = None

    @property
    def path(self) -> Path:
        index = self.context.plan.grid(self.method)[1].index(self.value)
        rows = "valid" if self.seed is None else self.seed
        return self.context.file(f"runs/{self.method}-{index}-{rows}")

    @property
    def setting(self) -> dict[str, Any]:
        return {self.context.plan.grid(self.method)[0]: self.value}

    @property
    def split(self) -> Split:
        """Once the hyperparameter is chosen, validation rows are training rows."""
        split = self.context.split(self.seed or 0)
        return split if self.seed is None else split.merged()

    def build(self) -> Any:
        share = self.context.plan.trial_share if self.seed is None else 1.0
        return self.context.method(self.method, self.value, share)

    def saved(self) -> dict[str, Any] | None:
        """What is saved of this very run."""
        key = {"setting": self.setting, "quick": self.context.quick}
        return load_run(self.path, key, self.build())


def run_method(context: RunContext, method: str, log: Log = print) -> dict[str, Any]:
    """Choose the hyperparameter on validation rows, then test every seed."""
    seeds = range(context.plan.seeds)
    if report := finished_report(context, method, context.values(method), seeds, method, log):
        return report
    value, trials = choose(context, method, log)
    runs = fit_missing([Run(context, method, value, seed) for seed in seeds], log)
    return summarise(context, method, method, trials, runs)


def confirm(context: RunContext, method: str, log: Log = print) -> dict[str, Any]:
    """Test the chosen hyperparameter on as many new splits, which no choice has seen."""
    value, n_seeds, name = context.chosen(method), context.plan.seeds, f"{method}-again"
    seeds = range(n_seeds, 2 * n_seeds)
    if report := finished_report(context, method, [value], seeds, name, log):
        return report
    trials = fit_missing([Run(context, method, value)], log)
    runs = fit_missing([Run(context, method, value, seed) for seed in seeds], log)
    return summarise(context, method, name, trials, runs)


def run_seed(context: RunContext, method: str, seed: int, log: Log = print) -> dict[str, Any]:
    """One seed of the chosen hyperparameter, which is chosen now if it has not been before."""
    try:
        value = context.chosen(method)
    except FileNotFoundError:
        value, _ = choose(context, method, log)
    return run_one(context, method, value, seed, log)


def run_one(
    context: RunContext, method: str, value: Any, seed: int | None = None, log: Log = print
) -> dict[str, Any]:
    """One value on seed 0's validation rows, or on the test rows of `seed`."""
    return fit_missing([Run(context, method, value, seed)], log)[0]


def choose(context: RunContext, method: str, log: Log = print) -> tuple[Any, list[dict[str, Any]]]:
    """The best value on validation rows, and the trials of all values."""
    values = context.values(method)
    trials = fit_missing([Run(context, method, value) for value in values], log)
    return values[best_trial([run["valid"] for run in trials])], trials


def best_trial(valid: list[dict[str, float]]) -> int:
    """The paper's rule for the choice of a hyperparameter, made definite.

    Regression, "both a low validation loss and high CI-correct": among losses within 5 % of the
    lowest, the highest OOD coverage. Classification, "both a high validation accuracy and OOD
    prediction performance": among accuracies within 0.8 percent of the best, the highest OOD AUC.
    """
    if "accuracy" in valid[0]:
        best = max(metrics["accuracy"] for metrics in valid)
        good = [i for i, m in enumerate(valid) if m["accuracy"] >= best - ACCURACY_SLACK]
        return max(good, key=lambda i: valid[i]["ood_auc"])
    best = min(metrics["id_loss"] for metrics in valid)
    good = [i for i, m in enumerate(valid) if m["id_loss"] <= LOSS_SLACK * best]
    return max(good, key=lambda i: valid[i]["ood_coverage"])


def fit_missing(runs: list[Run], log: Log) -> list[dict[str, Any]]:
    """The files of these runs; missing ones are fitted, as one tensor axis where possible."""
    missing = [run for run in runs if run.saved() is None]
    small = runs[0].method == "gpn" and isinstance(runs[0].context.plan.trunk, MLPTrunk)
    if small and len(missing) > 1:
        with suppress(IncompatibleFits):
            for run, (posterior, facts) in zip(missing, fit_together(missing), strict=True):
                _evaluate_and_save(run, posterior, facts, log)
    for run in missing:
        if run.saved() is None:
            fitted = fit(run.context, run.split, run.build(), run.seed or 0)
            _evaluate_and_save(run, *fitted, log)
    return [json.loads(run.path.read_text()) for run in runs]


def fit(
    context: RunContext, split: Split, method: Any, seed: int
) -> tuple[Posterior, dict[str, Any]]:
    """A posterior, and what the run's file says about the fit."""
    posterior, seconds = harness.timed_fit(method, context.to_device(split.task), seed)
    return posterior, _facts(posterior, seed, seconds)


def fit_together(runs: list[Run]) -> list[tuple[Posterior, dict[str, Any]]]:
    """All of these by `fit_many`; each is charged its share of the time."""
    tasks = [run.context.to_device(run.split.task) for run in runs]
    seeds, started = [run.seed or 0 for run in runs], time.perf_counter()
    posteriors = fit_many([run.build().config for run in runs], tasks, seeds, progress=False)
    seconds = (time.perf_counter() - started) / len(runs)
    fitted = zip(posteriors, seeds, strict=True)
    return [(posterior, _facts(posterior, seed, seconds)) for posterior, seed in fitted]


def _facts(posterior: Posterior, seed: int, seconds: float) -> dict[str, Any]:
    return {
        "seed": seed,
        "seconds": {"fit": seconds},
        "config": harness.plain(getattr(posterior, "config", None)),
        "device": harness.hardware(posterior.device),
        "versions": harness.versions(),
    }


def _evaluate_and_save(run: Run, posterior: Posterior, facts: dict[str, Any], log: Log) -> None:
    """Evaluate a posterior and save the run; the label noise is the one that the trial found."""
    split, n_draws, rows = run.split, draws_of(run.method), "valid" if run.seed is None else "test"
    noise_std = None
    if run.seed is not None:
        trial = run_one(run.context, run.method, run.value, log=log)
        noise_std = trial["valid"].get("noise_std")
    started = time.perf_counter()
    if run.seed is None:
        measured = evaluate(posterior, split.valid, n_draws=n_draws)
    else:
        measured = evaluate(posterior, split.test, split.unseen, n_draws, noise_std)
    facts["seconds"]["sample"] = time.perf_counter() - started
    facts[rows] = measured
    if run.seed == 0:
        figures = {run.method: plot_data(posterior, split.test, n_draws)}
        if posterior.signature.is_classification:
            figures["images"] = first_images(split.test)
        for name, data in figures.items():
            harness.save(run.context.file(f"pictures/{name}"), data, indent=None)
    harness.save(run.path, {"setting": run.setting, "quick": run.context.quick, **facts})
    shown = "  ".join(f"{name} {measured[name]:.3f}" for name in LOGGED if name in measured)
    name, seed = run.context.plan.grid(run.method)[0], facts["seed"]
    title = f"{run.context.name} {run.method} {name}={run.value} seed {seed} ({rows})"
    log(f"{title:52s} {facts['seconds']['fit']:5.0f} s  {shown}")


def draws_of(method: str) -> int:
    """The number of draws that stand for the posterior."""
    return N_MEMBERS if method in ENSEMBLES else N_DRAWS


def summarise(
    context: RunContext,
    method: str,
    name: str,
    trials: list[dict[str, Any]],
    runs: list[dict[str, Any]],
) -> dict[str, Any]:
    """`results/<task>/<name>.json`: mean, standard deviation and count of every metric."""
    first = runs[0]
    ((hyperparameter, value),) = first["setting"].items()
    report = {
        "task": context.name,
        "method": method,
        "quick": context.quick,
        "config": first["config"],
        "choice": {
            "dial": hyperparameter,  # the key of the files so far
            "values": [value for trial in trials for value in trial["setting"].values()],
            "chosen": value,
            "valid": [trial["valid"] for trial in trials],
        },
        "seeds": [run["seed"] for run in runs],
        "device": first["device"],
        "versions": first["versions"],
        "seconds": {
            key: harness.summary([run["seconds"][key] for run in runs])["mean"]
            for key in first["seconds"]
        },
        "metrics": {
            key: harness.summary([run["test"][key] for run in runs]) for key in first["test"]
        },
    }
    harness.save(context.file(name), report)
    return report
