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

    def setting(self, method: str, index: int) -> dict[str, Any]:
        """The method's hyperparameter and its value at that index of the grid."""
        name, values = self.plan.grid(method)
        return {name: values[index]}

    def indices(self, method: str) -> list[int]:
        """Which values to try: all, the middle one (quick), or the one chosen on another task."""
        other = self.plan.settings_of
        if other is not None:
            return [replace(self, task=other).chosen_index(method)]
        return list(range(len(self.plan.grid(method)[1]))) if self.quick is None else [QUICK_INDEX]

    def chosen_index(self, method: str) -> int:
        """The index of the value that the protocol chose."""
        value, (name, values) = self.chosen_value(method), self.plan.grid(method)
        if value not in values:
            raise FileNotFoundError(
                f"the hyperparameter of {method} on {self.task} must be one of the present "
                f"{name}={values}, got {value} in {method}.json; try {self._command(method)}."
            )
        return values.index(value)

    def chosen_value(self, method: str) -> Any:
        """The value of the method's hyperparameter that the protocol chose."""
        if self.quick is not None:
            return self.plan.grid(method)[1][QUICK_INDEX]
        path = self.file(method)
        report = harness.load(path)
        if report is None or "choice" not in report:
            raise FileNotFoundError(
                f"the hyperparameter of {method} on {self.task} must be chosen first, {path.name} "
                f"is missing or truncated; try {self._command(method)}."
            )
        return report["choice"]["chosen"]

    def _command(self, method: str) -> str:
        ood = "" if self.ood is None else f" --ood {self.ood}"
        return f"python -m experiments run {self.task} --method {method}{ood}"


@lru_cache(maxsize=1)
def _split(task: str, seed: int, data: Path | None, quick: float | None, ood: str | None) -> Split:
    """The last split stays in memory: the next method usually needs the same one."""
    split = TASKS[task](seed, data) if ood is None else TASKS[task](seed, data, ood=ood)
    return split if quick is None else split.sample(quick, seed)
