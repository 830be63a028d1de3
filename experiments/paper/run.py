"""The protocol: five settings on validation rows, then several seeds of the chosen one.

A run is one fit of one method with one setting and one seed. Each leaves a file under
`results/<task>/runs/` and is not made again; `results/<task>/<method>.json` sums them up, and a
method whose summary is complete is finished, with or without those files.
"""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments import results
from experiments.paper.choose import chosen
from experiments.paper.evaluate import DRAWS, evaluate
from experiments.paper.finished import complete, same_config
from experiments.paper.pictures import save_pictures
from experiments.paper.place import Place, Say
from experiments.paper.settings import ENSEMBLES
from experiments.paper.split import Split
from experiments.timing import timed_fit
from gpn import MLPTrunk, Posterior
from gpn.methods.gpn.fitting.fit_many import IncompatibleFits, fit_many

MEMBERS = 10


def run_method(task: str, method: str, place: Place, say: Say = print) -> dict[str, Any]:
    """Choose the setting on validation rows, then learn from them too and test every seed."""
    settings, seeds = place.settings(task, method), range(place.plan(task).seeds)
    if report := complete(place, task, method, settings, seeds, method):
        say(_finished(place.name(task), method, place.file(task, method)))
        return report
    setting, trials = choose(task, method, place, say)
    runs = done([Job(place, task, method, setting, seed) for seed in seeds], say)
    return summarise(task, method, setting, trials, runs, place)


def choose(
    task: str, method: str, place: Place, say: Say = print
) -> tuple[int, list[dict[str, Any]]]:
    """The number of the setting that validation rows speak for, and the trials of all."""
    settings = place.settings(task, method)
    trials = done([Job(place, task, method, setting) for setting in settings], say)
    return settings[chosen([run["valid"] for run in trials])], trials


def run_again(task: str, method: str, place: Place, say: Say = print) -> dict[str, Any]:
    """The chosen setting on as many splits again: what no choice can have seen."""
    setting, seeds = place.chosen(task, method), place.plan(task).seeds
    others, name = range(seeds, 2 * seeds), f"{method}-again"
    if report := complete(place, task, method, [setting], others, name):
        say(_finished(place.name(task), method, place.file(task, name)))
        return report
    trials = done([Job(place, task, method, setting)], say)
    runs = done([Job(place, task, method, setting, seed) for seed in others], say)
    return summarise(task, method, setting, trials, runs, place, name)


def run_seed(task: str, method: str, seed: int, place: Place, say: Say = print) -> dict[str, Any]:
    """One seed of the chosen setting, which is chosen now if it has not been before."""
    try:
        setting = place.chosen(task, method)
    except FileNotFoundError:
        setting, _ = choose(task, method, place, say)
    return final(task, method, setting, seed, place, say)


def _finished(task: str, method: str, path: Path) -> str:
    return (
        f"{task} {method} is finished: {path} has every seed of today's settings; to run it anew, "
        f"delete that file, and runs/{method}-[0-9]*.json beside it where there are any"
    )


@dataclass(frozen=True)
class Job:
    """One run: a setting on seed 0's validation rows, or, given a `seed`, on its test rows."""

    place: Place
    task: str
    method: str
    setting: int
    seed: int | None = None

    @property
    def path(self) -> Path:
        rows = "valid" if self.seed is None else self.seed
        return self.place.file(self.task, f"runs/{self.method}-{self.setting}-{rows}")

    @property
    def own(self) -> dict[str, Any]:
        return self.place.setting(self.task, self.method, self.setting)

    @property
    def split(self) -> Split:
        """Once the settings are chosen, validation rows are there to be learnt from."""
        split = self.place.split(self.task, self.seed or 0)
        return split if self.seed is None else split.merged()

    @property
    def built(self) -> Any:
        share = self.place.plan(self.task).trial_share if self.seed is None else 1.0
        return self.place.method(self.task, self.method, *self.own.values(), share)

    def earlier(self) -> dict[str, Any] | None:
        """What is left of this very run from an earlier time."""
        run = results.kept(self.path)
        if run is None or (run.get("setting"), run.get("quick")) != (self.own, self.place.quick):
            return None
        return run if same_config(results.plain(self.built.config), run.get("config")) else None


def done(jobs: list[Job], say: Say) -> list[dict[str, Any]]:
    """The runs of these jobs: those that are not there yet are made, side by side if they can."""
    missing = [job for job in jobs if job.earlier() is None]
    if len(missing) > 1 and can_stand_together(missing[0]):
        with suppress(IncompatibleFits):
            for job, (posterior, run) in zip(missing, fit_together(missing), strict=True):
                _keep(job, posterior, run, say)
    for job in missing:
        if job.earlier() is None:
            _keep(job, *fit(job.split, job.built, job.seed or 0, job.place), say)
    return [json.loads(job.path.read_text()) for job in jobs]


def trial(task: str, method: str, setting: int, place: Place, say: Say = print) -> dict[str, Any]:
    """One setting on seed 0's validation rows."""
    return done([Job(place, task, method, setting)], say)[0]


def final(
    task: str, method: str, setting: int, seed: int, place: Place, say: Say = print
) -> dict[str, Any]:
    """One seed on the test rows."""
    return done([Job(place, task, method, setting, seed)], say)[0]


def _keep(job: Job, posterior: Posterior, run: dict[str, Any], say: Say) -> None:
    """Judge a posterior, and leave the run's file; the noise of labels is what the trial found."""
    draws, split = n_draws(job.method), job.split
    if job.seed is None:
        rows, judge = "valid", partial(evaluate, posterior, split.valid, draws=draws)
    else:
        known = trial(job.task, job.method, job.setting, job.place, say)["valid"]
        rows, judge = "test", partial(judged, posterior, split, job.method, known.get("noise_std"))
    started = time.perf_counter()
    run[rows] = judge()
    run["seconds"]["sample"] = time.perf_counter() - started
    if job.seed == 0:
        save_pictures(posterior, split.test, draws, job.task, job.method, job.place)
    results.save(job.path, {"setting": job.own, "quick": job.place.quick, **run})
    say(_line(job.place.name(job.task), job.method, rows, job.own, run))


def fit(split: Split, method: Any, seed: int, place: Place) -> tuple[Posterior, dict[str, Any]]:
    """A posterior, and what a run's file says about how it was made."""
    posterior, seconds = timed_fit(method, place.moved(split.task), seed)
    if history := getattr(posterior, "report", {}).get("history"):
        history.require_finished()  # half a run must not be taken for one
    return posterior, _made(posterior, seed, seconds)


def can_stand_together(job: Job) -> bool:
    """Our GPN on a table: small networks, and many of them."""
    return job.method == "gpn" and isinstance(job.place.plan(job.task).trunk, MLPTrunk)


def fit_together(jobs: list[Job]) -> list[tuple[Posterior, dict[str, Any]]]:
    """All of these as one tensor axis; each took its share of the time."""
    tasks = [job.place.moved(job.split.task) for job in jobs]
    seeds, started = [job.seed or 0 for job in jobs], time.perf_counter()
    posteriors = fit_many([job.built.config for job in jobs], tasks, seeds, progress=False)
    seconds = (time.perf_counter() - started) / len(jobs)
    made = zip(posteriors, seeds, strict=True)
    return [(posterior, _made(posterior, seed, seconds)) for posterior, seed in made]


def _made(posterior: Posterior, seed: int, seconds: float) -> dict[str, Any]:
    return {
        "seed": seed,
        "seconds": {"fit": seconds},
        "config": results.plain(getattr(posterior, "config", None)),
        "device": results.device(posterior.device),
        "versions": results.versions(),
    }


def judged(
    posterior: Posterior, split: Split, method: str, noise_std: float | None = None
) -> dict[str, float]:
    """Every metric on the test rows, unseen sets among them."""
    return evaluate(posterior, split.test, split.unseen, n_draws(method), noise_std)


def n_draws(method: str) -> int:
    return MEMBERS if method in ENSEMBLES else DRAWS


def summarise(
    task: str,
    method: str,
    setting: int,
    trials: list[dict[str, Any]],
    runs: list[dict[str, Any]],
    place: Place,
    name: str | None = None,
) -> dict[str, Any]:
    """`results/<task>/<method>.json`: mean, standard deviation and count of every metric."""
    (dial, value) = next(iter(place.setting(task, method, setting).items()))
    report = {
        "task": place.name(task),
        "method": method,
        "quick": place.quick,
        "config": runs[0]["config"],
        "choice": {
            "dial": dial,
            "values": [value for trial in trials for value in trial["setting"].values()],
            "chosen": value,
            "valid": [trial["valid"] for trial in trials],
        },
        "seeds": [run["seed"] for run in runs],
        "device": runs[0]["device"],
        "versions": runs[0]["versions"],
        "seconds": {
            key: results.summary([run["seconds"][key] for run in runs])["mean"]
            for key in runs[0]["seconds"]
        },
        "metrics": {
            name: results.summary([run["test"][name] for run in runs]) for name in runs[0]["test"]
        },
    }
    results.save(place.file(task, name or method), report)
    return report


def _line(task: str, method: str, rows: str, own: dict[str, Any], run: dict[str, Any]) -> str:
    (dial, value), measured = next(iter(own.items())), run[rows]
    shown = ("id_loss", "id_width", "ood_coverage", "accuracy", "id_entropy", "ood_entropy")
    parts = [f"{name} {measured[name]:.3f}" for name in (*shown, "ood_auc") if name in measured]
    what = f"{task} {method} {dial}={value} seed {run['seed']} ({rows})"
    return f"{what:52s} {run['seconds']['fit']:5.0f} s  {'  '.join(parts)}"
