"""OOD AUC against training time: an ensemble grows a few members at a time, a GPN is fitted once.

The paper's Figure 3. Members of both regularised ensembles are trained in groups, one group after
the other, and the AUC is that of all members so far. Everything is timed in one process. Writes
`results/<task>/scalability.json`.
"""

import json
import time
from pathlib import Path
from typing import Any

import torch

from experiments import results
from experiments.paper.evaluate import DRAWS, evaluate
from experiments.paper.run import Place, Say, split_of
from experiments.paper.settings import configured
from experiments.paper.split import Split
from gpn import Posterior, Task, TrainConfig, methods
from gpn.core.posterior import FunctionBatch
from gpn.core.types import Draws, Inputs

GROUP = {"superconductor": 2, "cifar10": 5}
MOST_MEMBERS = 20


def run_scalability(task: str, place: Place, say: Say = print) -> Path:
    """GPN once, then both ensembles from few members to twenty."""
    split = split_of(task, 0, place).merged()
    moved = split.task.to(TrainConfig(device=place.device).pick_device(), torch.float32)
    rows = [_gpn(task, moved, split, place, say)]
    for method in ("ensemble-pr", "ensemble-or"):
        rows += _ensemble(task, method, moved, split, place, say)
    path = place.results / task / "scalability.json"
    report = {"task": task, "device": results.device(), "versions": results.versions()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**report, "rows": rows}, indent=1) + "\n")
    return path


def _gpn(task: str, moved: Task, split: Split, place: Place, say: Say) -> dict[str, Any]:
    _fit(task, "gpn", moved, 0, place, steps=20)  # not counted: the device wakes up
    posterior, seconds = _fit(task, "gpn", moved, 0, place)
    return _row("gpn", 0, seconds, evaluate(posterior, split.test, draws=DRAWS), say)


def _ensemble(
    task: str, method: str, moved: Task, split: Split, place: Place, say: Say
) -> list[dict[str, Any]]:
    rows, together, total, group = [], [], 0.0, GROUP[task]
    _fit(task, method, moved, 0, place, steps=20, n_members=group)  # not counted either
    for first in range(0, MOST_MEMBERS, group):
        posterior, seconds = _fit(task, method, moved, first, place, n_members=group)
        together.append(posterior)
        total += seconds
        so_far = Together(together)
        metrics = evaluate(so_far, split.test, draws=first + group)
        rows.append(_row(method, first + group, total, metrics, say))
    return rows


def _fit(
    task: str,
    method: str,
    moved: Task,
    seed: int,
    place: Place,
    steps: int | None = None,
    **changes: Any,
) -> tuple[Posterior, float]:
    config = configured(place.plan(task), method, place.choice(task, method))
    train = config["train"].replace(device=place.device)
    config["train"] = train if steps is None else train.replace(steps=steps)
    started = time.perf_counter()
    posterior = methods.get(method, **config, **changes).fit(moved, rng=seed, progress=False)
    if posterior.device.type == "cuda":
        torch.cuda.synchronize()
    return posterior, time.perf_counter() - started


class Together(Posterior):
    """Several ensembles as one: each gives all of its members."""

    def __init__(self, parts: list[Any]) -> None:
        first = parts[0]
        super().__init__(first.signature, first.device, first.dtype, first.noise_std)
        self.parts = parts

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        def batch(x: Inputs) -> Draws:
            return torch.cat([part.networks(x) for part in self.parts])[:n]

        return batch


def _row(
    method: str, members: int, seconds: float, metrics: dict[str, float], say: Say
) -> dict[str, Any]:
    say(f"{method} {members or 'one fit'}: {seconds:.1f} s  ood_auc {metrics['ood_auc']:.4f}")
    return {"method": method, "members": members, "seconds": seconds, "metrics": metrics}
