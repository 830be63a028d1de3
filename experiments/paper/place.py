"""Where runs are kept and data is found, and how much of both is used."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from experiments import results
from experiments.paper.settings import PLANS, Plan, configured
from experiments.paper.split import Split
from experiments.paper.tasks import TASKS
from gpn import Task, TrainConfig, methods

MIDDLE = 2
Say = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """The folders, the device, for a quick look the share of rows and steps, and other strangers.

    Results of another `ood` set than the task's own have a folder of their own.
    """

    results: Path = results.RESULTS
    data: Path | None = None
    quick: float | None = None
    device: str = "auto"
    ood: str | None = None

    def name(self, task: str) -> str:
        return task if self.ood is None else f"{task}-{self.ood}"

    def plan(self, task: str) -> Plan:
        return PLANS[task] if self.quick is None else PLANS[task].quick(self.quick)

    def split(self, task: str, seed: int) -> Split:
        return _split(task, seed, self.data, self.quick, self.ood)

    def method(self, task: str, method: str, value: Any, share: float = 1.0, **changes: Any) -> Any:
        """The method with its dial at `value`, for this place's device and `share` of the steps."""
        config = configured(self.plan(task), method, value)
        if "train" in config:
            train = config["train"]
            steps = max(1, round(share * train.steps))
            config["train"] = train.replace(device=self.device, steps=steps)
        return methods.get(method, **config, **changes)

    def moved(self, task: Task) -> Task:
        """The task on this place's device, as all methods get it."""
        return task.to(TrainConfig(device=self.device).pick_device(), torch.float32)

    def settings(self, task: str, method: str) -> list[int]:
        """The numbers of the settings to try: all, the middle one (quick), or another task's."""
        plan = self.plan(task)
        if plan.settings_of is not None:
            return [self.chosen(plan.settings_of, method)]
        return list(range(len(plan.dial(method)[1]))) if self.quick is None else [MIDDLE]

    def chosen(self, task: str, method: str) -> int:
        """The number of the setting that the protocol chose."""
        value, (dial, values) = self.choice(task, method), self.plan(task).dial(method)
        if value not in values:
            raise FileNotFoundError(
                f"the setting of {method} on {task} must be one of today's {dial}={values}, got "
                f"{value} in {method}.json; try {self._command(task, method)}."
            )
        return values.index(value)

    def setting(self, task: str, method: str, number: int) -> dict[str, Any]:
        """The dial's name, and its value at that number."""
        dial, values = self.plan(task).dial(method)
        return {dial: values[number]}

    def choice(self, task: str, method: str) -> Any:
        """The value of the method's dial that the protocol chose."""
        if self.quick is not None:
            return self.plan(task).dial(method)[1][MIDDLE]
        path = self.file(task, method)
        report = results.kept(path)
        if report is None or "choice" not in report:
            raise FileNotFoundError(
                f"the setting of {method} on {task} must be chosen first, {path.name} is missing "
                f"or cut; try {self._command(task, method)}."
            )
        return report["choice"]["chosen"]

    def _command(self, task: str, method: str) -> str:
        strangers = "" if self.ood is None else f" --ood {self.ood}"
        return f"python -m experiments run {task} --method {method}{strangers}"

    def file(self, task: str, name: str) -> Path:
        return self.results / self.name(task) / f"{name}.json"


@lru_cache(maxsize=1)
def _split(task: str, seed: int, data: Path | None, quick: float | None, ood: str | None) -> Split:
    """One split at a time stays in memory: the next method usually wants the same."""
    split = TASKS[task](seed, data) if ood is None else TASKS[task](seed, data, ood=ood)
    return split if quick is None else split.part(quick, seed)
