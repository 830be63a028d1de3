"""One task with its plan, its data, its result files, and the device to run on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from experiments import harness
from experiments.paper.plans import PLANS, Plan, method_config
from experiments.paper.tasks import TASKS
from experiments.paper.tasks.split import Split
from gpn import Task, TrainConfig, methods

QUICK_INDEX = 2  # the middle value of a grid
Log = Callable[[str], None]


@dataclass(frozen=True)
class RunContext:
    """One task, the folders of results and data, and the device.

    quick
        The share of rows and steps of a quick run; None runs the full protocol.
    ood
        Another OOD set than the task's own; its results have a folder of their own.
    """

    task: str
    results: Path = harness.RESULTS
    data: Path | None = None
    quick: float | None = None
    device: str = "auto"
    ood: str | None = None

    @property
    def name(self) -> str:
        return self.task if self.ood is None else f"{self.task}-{self.ood}"

    @property
    def plan(self) -> Plan:
        return PLANS[self.task] if self.quick is None else PLANS[self.task].quick(self.quick)

    def file(self, name: str) -> Path:
        return self.results / self.name / f"{name}.json"

    def split(self, seed: int) -> Split:
        return _split(self.task, seed, self.data, self.quick, self.ood)

    def method(self, method: str, value: Any, steps_share: float = 1.0, **changes: Any) -> Any:
        """The method with its hyperparameter at `value`, on this device, for a share of steps."""
        config = method_config(self.plan, method, value)
        if "train" in config:
            train = config["train"]
            steps = max(1, round(steps_share * train.steps))
            config["train"] = train.replace(device=self.device, steps=steps)
        return methods.get(method, **config, **changes)

    def to_device(self, task: Task) -> Task:
        """The task on this device in float32, as every method gets it."""
        return task.to(TrainConfig(device=self.device).pick_device(), torch.float32)

    def values(self, method: str) -> list[Any]:
        """The values to try: all, the middle one (quick), or the one chosen on another task."""
        other, grid = self.plan.settings_of, list(self.plan.grid(method)[1])
        if other is not None:
            return [replace(self, task=other).chosen(method)]
        return grid if self.quick is None else [grid[QUICK_INDEX]]

    def chosen(self, method: str) -> Any:
        """The value of the method's hyperparameter that the protocol chose."""
        name, grid = self.plan.grid(method)
        if self.quick is not None:
            return grid[QUICK_INDEX]
        report = harness.load(self.file(method)) or {}
        value = report.get("choice", {}).get("chosen")
        if value not in grid:
            ood = "" if self.ood is None else f" --ood {self.ood}"
            raise FileNotFoundError(
                f"the hyperparameter of {method} on {self.task} must be chosen first, as one of "
                f"{name}={grid}, got {value} in {method}.json; "
                f"try python -m experiments run {self.task} --method {method}{ood}."
            )
        return value


@lru_cache(maxsize=1)
def _split(task: str, seed: int, data: Path | None, quick: float | None, ood: str | None) -> Split:
    """The last split stays in memory: the next method usually needs the same one."""
    split = TASKS[task](seed, data) if ood is None else TASKS[task](seed, data, ood=ood)
    return split if quick is None else split.sample(quick, seed)
