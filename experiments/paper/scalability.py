"""OOD AUC against training time: an ensemble grows a few members at a time, a GPN is fitted once.

The paper's Figure 3. Members of both regularised ensembles are trained in groups, one group after
the other, and the AUC is that of all members so far; then ten at once, as one tensor axis. A GPN
is fitted anew for a sixteenth up to all of its steps. Each row has a file under `runs/` and is not
made again on the same device; `results/<task>/scalability.json` is written once all are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from experiments import results
from experiments.paper.evaluate import DRAWS, evaluate
from experiments.paper.finished import fits, rows_of, same_config, save_rows, steps_of
from experiments.paper.place import Place, Say
from experiments.paper.split import Split
from experiments.timing import timed_fit
from gpn import Posterior, Task, TrainConfig
from gpn.core.posterior.base import FunctionBatch
from gpn.core.types import Draws, Inputs

METHODS = ("gpn", "ensemble-or", "ensemble-pr")
GROUP = {"superconductor": 2, "cifar10": 5}
MAX_MEMBERS = 10
AT_ONCE = "all at once"
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
WAKE_UP = 0.005


def run_scalability(
    task: str, place: Place, say: Say = print, methods: Sequence[str] = METHODS
) -> Path:
    """GPN at every length, both ensembles from few members to ten; only rows that are missing."""
    path, growth = place.file(task, "scalability"), _Growth(task, place, say)
    earlier = rows_of(path, place.quick)
    points = [point for method in methods for point in _points(task, method)]
    if all(any(fits(growth.where(point), row) for row in earlier) for point in points):
        say(
            f"{place.name(task)} scalability is finished: {path} has every row; to run it anew, "
            "delete that file, and runs/*-growth-*.json beside it where there are any"
        )
        return path
    made = [growth.row(point) for point in points]
    rows = {_key(row): row for row in (*rows_of(path, place.quick), *made)}
    return save_rows(path, place.name(task), [rows[key] for key in sorted(rows)], place.quick)


@dataclass(frozen=True)
class Point:
    """One row: a method, how it is trained, and how many members it has by then."""

    method: str
    how: str
    share: float = 1.0
    members: int = 0
    group: int = 0

    @property
    def name(self) -> str:
        return f"runs/{self.method}-growth-{self.how.replace(' ', '-')}-{self.members}"


def _points(task: str, method: str) -> list[Point]:
    if method == "gpn":
        return [Point(method, f"{share:.4g} of the steps", share) for share in SHARES]
    group = GROUP[task]
    growing = [
        Point(method, f"{group} at a time", members=members, group=group)
        for members in range(group, MAX_MEMBERS + 1, group)
    ]
    return [*growing, Point(method, AT_ONCE, members=MAX_MEMBERS, group=MAX_MEMBERS)]


def _key(row: dict[str, Any]) -> tuple[int, bool, int, str]:
    """Rows of one key are the same row; keys are in the order of the file."""
    how = row["how"]
    return METHODS.index(row["method"]), how == AT_ONCE, row["members"], how


class _Growth:
    """One split on the device, and fits of any method to it."""

    def __init__(self, task: str, place: Place, say: Say) -> None:
        self.name, self.place, self.say = task, place, say
        self.grown: dict[tuple[str, int], list[tuple[Posterior, float]]] = {}
        self.awake: set[tuple[str, int]] = set()

    @cached_property
    def split(self) -> Split:
        return self.place.split(self.name, 0).merged()

    @cached_property
    def task(self) -> Task:
        return self.place.moved(self.split.task)

    def where(self, point: Point) -> dict[str, Any]:
        dial, value = self.place.plan(self.name).dial(point.method)[0], self._value(point)
        which = {"method": point.method, "how": point.how, "members": point.members}
        return {**which, dial: value, "steps": steps_of(self._built(point))}

    def row(self, point: Point) -> dict[str, Any]:
        """What was measured on this device before, or is now."""
        path, where = self.place.file(self.name, point.name), self.where(point)
        same = {**where, "device": self._device(), "quick": self.place.quick}
        asked, run = results.plain(self._built(point).config), results.kept(path)
        if run is None or not (fits(same, run) and same_config(asked, run.get("config"))):
            seconds, metrics = self._measured(point)
            run = {**same, "config": asked, "seconds": seconds, "metrics": metrics}
            results.save(path, {**run, "versions": results.versions()})
            self._tell(point, seconds, metrics)
        return {**where, **{name: run[name] for name in ("device", "seconds", "metrics")}}

    def _measured(self, point: Point) -> tuple[float, dict[str, float]]:
        if not point.group:
            posterior, seconds = self._fit(point, 0)
            return seconds, evaluate(posterior, self.split.test, draws=DRAWS)
        grown = self.grown.setdefault((point.method, point.group), [])
        for first in range(len(grown) * point.group, point.members, point.group):
            grown.append(self._fit(point, first))
        parts = grown[: point.members // point.group]
        together = Together([posterior for posterior, _ in parts])
        metrics = evaluate(together, self.split.test, draws=point.members)
        return sum(seconds for _, seconds in parts), metrics

    def _fit(self, point: Point, seed: int) -> tuple[Posterior, float]:
        """A short fit of each kind wakes the device up and is not counted."""
        kind = (point.method, point.group)
        if kind not in self.awake:
            timed_fit(self._built(replace(point, share=WAKE_UP)), self.task, seed)
            self.awake.add(kind)
        return timed_fit(self._built(point), self.task, seed)

    def _built(self, point: Point) -> Any:
        changes = {"n_members": point.group} if point.group else {}
        value = self._value(point)
        return self.place.method(self.name, point.method, value, point.share, **changes)

    def _value(self, point: Point) -> Any:
        return self.place.choice(self.name, point.method)

    def _device(self) -> str:
        return results.device(TrainConfig(device=self.place.device).pick_device())

    def _tell(self, point: Point, seconds: float, metrics: dict[str, float]) -> None:
        count = f"{point.members} members, " if point.members else ""
        auc = f"ood_auc {metrics['ood_auc']:.4f}"
        self.say(f"{point.method}, {count}{point.how}: {seconds:.1f} s  {auc}")


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
