"""The protocol: five settings on validation rows, then several seeds of the chosen one.

A run is one fit of one method with one setting and one seed. Each leaves a file under
`results/<task>/runs/` and is not made again; `results/<task>/<method>.json` sums them up.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from experiments import results
from experiments.paper.choose import chosen
from experiments.paper.evaluate import DRAWS, evaluate
from experiments.paper.settings import DIALS, ENSEMBLES, PLANS, Plan, configured
from experiments.paper.split import Split
from experiments.paper.tasks import TASKS
from gpn import TrainConfig, methods

MEMBERS = 10
MIDDLE = 2


@dataclass(frozen=True)
class Place:
    """Where runs are kept and data is found, and how much of both is used."""

    results: Path = results.RESULTS
    data: Path | None = None
    quick: float | None = None
    device: str = "auto"

    def plan(self, task: str) -> Plan:
        return PLANS[task] if self.quick is None else PLANS[task].quick(self.quick)

    def choice(self, task: str, method: str) -> Any:
        """The value of the method's dial that the protocol chose; a quick look takes the middle."""
        if self.quick is not None:
            return DIALS[method][1][MIDDLE]
        path = self.results / task / f"{method}.json"
        if not path.exists():
            raise FileNotFoundError(
                f"the setting of {method} on {task} must be chosen first, {path.name} is missing; "
                f"try python -m experiments run {task} --method {method}."
            )
        return json.loads(path.read_text())["choice"]["chosen"]

    def run_file(self, task: str, name: str) -> Path:
        return self.results / task / "runs" / f"{name}.json"


Say = Callable[[str], None]


def run_method(task: str, method: str, place: Place, say: Say = print) -> dict[str, Any]:
    """Choose the setting on validation rows, then learn from them too and test every seed."""
    settings = range(len(DIALS[method][1])) if place.quick is None else [MIDDLE]
    trials = [trial(task, method, setting, place, say) for setting in settings]
    setting = settings[chosen([run["valid"] for run in trials])]
    seeds = range(place.plan(task).seeds)
    runs = [final(task, method, setting, seed, place, say) for seed in seeds]
    return summarise(task, method, setting, trials, runs, place)


def trial(task: str, method: str, setting: int, place: Place, say: Say = print) -> dict[str, Any]:
    """One setting on seed 0's validation rows."""
    path = place.run_file(task, f"{method}-{setting}-valid")
    return _once(path, task, method, setting, 0, place, say, lambda split: (split, "valid"))


def final(
    task: str, method: str, setting: int, seed: int, place: Place, say: Say = print
) -> dict[str, Any]:
    """One seed on the test rows."""
    path = place.run_file(task, f"{method}-{setting}-{seed}")
    return _once(path, task, method, setting, seed, place, say, lambda s: (s.merged(), "test"))


def _once(
    path: Path,
    task: str,
    method: str,
    setting: int,
    seed: int,
    place: Place,
    say: Say,
    stage: Callable[[Split], tuple[Split, str]],
) -> dict[str, Any]:
    """One fit, or what is left of it from an earlier time."""
    dial, values = DIALS[method]
    own = {dial: values[setting]}
    if path.exists() and (earlier := json.loads(path.read_text()))["setting"] == own:
        return earlier
    config = configured(place.plan(task), method, values[setting])
    if "train" in config:
        config["train"] = config["train"].replace(device=place.device)
    split, rows = stage(split_of(task, seed, place))
    run = measure(split, rows, methods.get(method, **config), method, seed, place)
    run = {"setting": own, "seed": seed, **run}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run, indent=1) + "\n")
    say(_line(task, method, rows, run))
    return run


def measure(
    split: Split, rows: str, method: Any, name: str, seed: int, place: Place
) -> dict[str, Any]:
    """Fit on the device, then every metric on the rows of that name."""
    device = TrainConfig(device=place.device).pick_device()
    task = split.task.to(device, torch.float32)
    started = time.perf_counter()
    posterior = method.fit(task, rng=seed, progress=False)
    _wait(device)
    fitted = time.perf_counter()
    unseen = split.unseen if rows == "test" else {}
    draws = MEMBERS if name in ENSEMBLES else DRAWS
    measured = evaluate(posterior, getattr(split, rows), unseen, draws)
    return {
        rows: measured,
        "seconds": {"fit": fitted - started, "sample": time.perf_counter() - fitted},
        "config": results.plain(posterior.config),
        "device": results.device(posterior.device),
        "versions": results.versions(),
    }


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@lru_cache(maxsize=1)
def split_of(task: str, seed: int, place: Place) -> Split:
    """One split at a time stays in memory: the next method usually wants the same."""
    split = TASKS[task](seed, place.data)
    return split if place.quick is None else split.part(place.quick, seed)


def summarise(
    task: str,
    method: str,
    setting: int,
    trials: list[dict[str, Any]],
    runs: list[dict[str, Any]],
    place: Place,
) -> dict[str, Any]:
    """`results/<task>/<method>.json`: mean, standard deviation and count of every metric."""
    dial, values = DIALS[method]
    report = {
        "task": task,
        "method": method,
        "config": runs[0]["config"],
        "choice": {
            "dial": dial,
            "values": [value for trial in trials for value in trial["setting"].values()],
            "chosen": values[setting],
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
    path = place.results / task / f"{method}.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    return report


def _line(task: str, method: str, rows: str, run: dict[str, Any]) -> str:
    (dial, value), test = next(iter(run["setting"].items())), run[rows]
    shown = ("id_loss", "id_width", "ood_coverage", "accuracy", "id_entropy", "ood_entropy")
    parts = [f"{name} {test[name]:.3f}" for name in (*shown, "ood_auc") if name in test]
    what = f"{task} {method} {dial}={value} seed {run['seed']} ({rows})"
    return f"{what:52s} {run['seconds']['fit']:5.0f} s  {'  '.join(parts)}"
