"""The protocol: five settings on validation rows, then several seeds of the chosen one.

A run is one fit of one method with one setting and one seed. Each leaves a file under
`results/<task>/runs/` and is not made again; `results/<task>/<method>.json` sums them up.
"""

import json
import time
from pathlib import Path
from typing import Any

from experiments import results
from experiments.paper.choose import chosen
from experiments.paper.evaluate import DRAWS, evaluate
from experiments.paper.pictures import save_pictures
from experiments.paper.place import Place, Say
from experiments.paper.settings import ENSEMBLES
from experiments.paper.split import Split
from experiments.timing import timed_fit
from gpn import Posterior

MEMBERS = 10


def run_method(task: str, method: str, place: Place, say: Say = print) -> dict[str, Any]:
    """Choose the setting on validation rows, then learn from them too and test every seed."""
    settings = place.settings(task, method)
    trials = [trial(task, method, setting, place, say) for setting in settings]
    setting = settings[chosen([run["valid"] for run in trials])]
    seeds = range(place.plan(task).seeds)
    runs = [final(task, method, setting, seed, place, say) for seed in seeds]
    return summarise(task, method, setting, trials, runs, place)


def run_again(task: str, method: str, place: Place, say: Say = print) -> dict[str, Any]:
    """The chosen setting on as many splits again: what no choice can have seen."""
    _, values = place.plan(task).dial(method)
    setting, seeds = values.index(place.choice(task, method)), place.plan(task).seeds
    trials = [trial(task, method, setting, place, say)]
    others = range(seeds, 2 * seeds)
    runs = [final(task, method, setting, seed, place, say) for seed in others]
    return summarise(task, method, setting, trials, runs, place, f"{method}-again")


def trial(task: str, method: str, setting: int, place: Place, say: Say = print) -> dict[str, Any]:
    """One setting on seed 0's validation rows."""
    path = place.file(task, f"runs/{method}-{setting}-valid")
    own = place.setting(task, method, setting)
    if earlier := _earlier(path, own):
        return earlier
    split, share = place.split(task, 0), place.plan(task).trial_share
    posterior, run = fit(split, place.method(task, method, *own.values(), share), 0, place)
    run["valid"] = _timed(run, lambda: evaluate(posterior, split.valid, draws=n_draws(method)))
    return _kept(path, {"setting": own, **run}, _line(task, method, "valid", own, run), say)


def final(
    task: str, method: str, setting: int, seed: int, place: Place, say: Say = print
) -> dict[str, Any]:
    """One seed on the test rows; the noise of its labels is what the setting's trial found."""
    path = place.file(task, f"runs/{method}-{setting}-{seed}")
    own = place.setting(task, method, setting)
    if earlier := _earlier(path, own):
        return earlier
    noise_std = trial(task, method, setting, place, say)["valid"].get("noise_std")
    split = place.split(task, seed).merged()
    posterior, run = fit(split, place.method(task, method, *own.values()), seed, place)
    run["test"] = _timed(run, lambda: judged(posterior, split, method, noise_std))
    if seed == 0:
        save_pictures(posterior, split.test, n_draws(method), task, method, place)
    return _kept(path, {"setting": own, **run}, _line(task, method, "test", own, run), say)


def fit(split: Split, method: Any, seed: int, place: Place) -> tuple[Posterior, dict[str, Any]]:
    """A posterior, and what a run's file says about how it was made."""
    posterior, seconds = timed_fit(method, place.moved(split.task), seed)
    return posterior, {
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


def _timed(run: dict[str, Any], measure: Any) -> dict[str, float]:
    started = time.perf_counter()
    measured = measure()
    run["seconds"]["sample"] = time.perf_counter() - started
    return measured


def _earlier(path: Path, own: dict[str, Any]) -> dict[str, Any] | None:
    """What is left of this very run from an earlier time."""
    if not path.exists():
        return None
    earlier = json.loads(path.read_text())
    return earlier if earlier["setting"] == own else None


def _kept(path: Path, run: dict[str, Any], line: str, say: Say) -> dict[str, Any]:
    results.save(path, run)
    say(line)
    return run


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
        "task": task,
        "method": method,
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
