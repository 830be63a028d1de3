"""OOD AUC against training time: an ensemble grows a few members at a time, a GPN is fitted once.

The paper's Figure 3. Members of both regularised ensembles are trained in groups, one group after
the other, and the AUC is that of all members so far; then ten members as one tensor axis. A GPN is
fitted anew for a sixteenth up to all of its steps. Each row has a file under `runs/` and is not
repeated on the same device; `results/<task>/scalability.json` is written once all rows exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from experiments import harness
from experiments.paper.context import Log, RunContext
from experiments.paper.evaluate import evaluate
from experiments.paper.resume import Row, load_run, matches, merge_rows, read_rows, row_key
from experiments.paper.tasks.split import Split
from gpn import Posterior, Task, TrainConfig
from gpn.core.posterior.base import FunctionBatch
from gpn.core.types import Draws, Inputs

METHODS = ("gpn", "ensemble-or", "ensemble-pr")
GROUP_SIZE = {"superconductor": 2, "cifar10": 5}
MAX_MEMBERS = 10
ONE_AXIS = "all at once"  # the words of the files so far
STEPS_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
WARM_UP_SHARE = 0.005


@dataclass(frozen=True)
class Point:
    """One row: a method, how it is trained, and its number of members by then."""

    method: str
    how: str
    steps_share: float = 1.0
    members: int = 0
    group: int = 0

    @property
    def file(self) -> str:
        return f"runs/{self.method}-growth-{self.how.replace(' ', '-')}-{self.members}"


def run_scalability(
    context: RunContext, log: Log = print, methods: Sequence[str] = METHODS
) -> Path:
    """A GPN at every length, both ensembles from few members to ten; only missing rows."""
    path, timing = context.file("scalability"), _Timing(context, log)
    earlier = read_rows(path, context.quick)
    points = [point for method in methods for point in _points(context.task, method)]
    if all(any(matches(timing.key(point), row) for row in earlier) for point in points):
        log(
            f"{context.name} scalability is finished: {path} has every row; to run it again, "
            "delete that file and runs/*-growth-*.json next to it"
        )
        return path
    return merge_rows(context, path, [timing.row(point) for point in points], _order)


def _points(task: str, method: str) -> list[Point]:
    if method == "gpn":
        return [Point(method, f"{share:.4g} of the steps", share) for share in STEPS_SHARES]
    group = GROUP_SIZE[task]
    growing = [
        Point(method, f"{group} at a time", members=members, group=group)
        for members in range(group, MAX_MEMBERS + 1, group)
    ]
    return [*growing, Point(method, ONE_AXIS, members=MAX_MEMBERS, group=MAX_MEMBERS)]


def _order(row: Row) -> tuple[int, bool, int, str]:
    """Rows with one key are the same row; keys are in the order of the file."""
    return METHODS.index(row["method"]), row["how"] == ONE_AXIS, row["members"], row["how"]


class _Timing:
    """One split on the device, and timed fits of any method to it."""

    def __init__(self, context: RunContext, log: Log) -> None:
        self.context, self.log = context, log
        self.groups: dict[tuple[str, int], list[tuple[Posterior, float]]] = {}
        self.warm: set[tuple[str, int]] = set()

    @cached_property
    def split(self) -> Split:
        return self.context.split(0).merged()

    @cached_property
    def task(self) -> Task:
        return self.context.to_device(self.split.task)

    def key(self, point: Point) -> Row:
        which = {"how": point.how, "members": point.members}
        return row_key(self.context, point.method, self._build(point), **which)

    def row(self, point: Point) -> Row:
        """What was measured on this device before, or is now."""
        path, key = self.context.file(point.file), self.key(point)
        device = harness.hardware(TrainConfig(device=self.context.device).pick_device())
        same = {**key, "device": device, "quick": self.context.quick}
        method = self._build(point)
        run = load_run(path, same, method)
        if run is None:
            seconds, metrics = self._measure(point)
            config = harness.plain(method.config)
            run = {**same, "config": config, "seconds": seconds, "metrics": metrics}
            harness.save(path, {**run, "versions": harness.versions()})
            members = f"{point.members} members, " if point.members else ""
            auc = f"ood_auc {metrics['ood_auc']:.4f}"
            self.log(f"{point.method}, {members}{point.how}: {seconds:.1f} s  {auc}")
        return {**key, **{name: run[name] for name in ("device", "seconds", "metrics")}}

    def _measure(self, point: Point) -> tuple[float, dict[str, float]]:
        if not point.group:
            posterior, seconds = self._fit(point, 0)
            return seconds, evaluate(posterior, self.split.test)
        groups = self.groups.setdefault((point.method, point.group), [])
        for first in range(len(groups) * point.group, point.members, point.group):
            groups.append(self._fit(point, first))
        used = groups[: point.members // point.group]
        joined = JoinedEnsembles([posterior for posterior, _ in used])
        metrics = evaluate(joined, self.split.test, n_draws=point.members)
        return sum(seconds for _, seconds in used), metrics

    def _fit(self, point: Point, seed: int) -> tuple[Posterior, float]:
        """A timed fit, after a short one of its kind that warms the device up."""
        kind = (point.method, point.group)
        if kind not in self.warm:
            short = replace(point, steps_share=WARM_UP_SHARE)
            harness.timed_fit(self._build(short), self.task, seed)
            self.warm.add(kind)
        return harness.timed_fit(self._build(point), self.task, seed)

    def _build(self, point: Point) -> Any:
        changes = {"n_members": point.group} if point.group else {}
        value = self.context.chosen(point.method)
        return self.context.method(point.method, value, point.steps_share, **changes)


class JoinedEnsembles(Posterior):
    """Several ensembles as one, with all of their members."""

    def __init__(self, ensembles: list[Any]) -> None:
        first = ensembles[0]
        super().__init__(first.signature, first.device, first.dtype, first.noise_std)
        self.ensembles = ensembles

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        def batch(x: Inputs) -> Draws:
            return torch.cat([ensemble.networks(x) for ensemble in self.ensembles])[:n]

        return batch
