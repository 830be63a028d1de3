"""Where benchmarks run, and on what: the paper's tasks, or for a quick look made-up ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import RESULTS
from experiments.paper.place import Place as Experiments
from experiments.paper.settings import PLANS, Plan
from experiments.paper.split import Rows, Split
from gpn import ConvTrunk, MLPTrunk, Task, TrainConfig
from gpn.data import FlipAndShift

QUICK_STEPS = 10


@dataclass(frozen=True)
class Place:
    """The device, the folder of the results, and whether a quick look is enough."""

    device: torch.device
    results: Path = RESULTS
    quick: bool = False

    def choose(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def split(self, task: str) -> Split:
        """The paper's split with validation rows among the labels, its task on the device."""
        return _split(task, self.device, self.quick)

    def plan(self, task: str) -> Plan:
        """The experiments' networks and training."""
        plan = PLANS[task]
        train = plan.train.replace(device=str(self.device))
        if not self.quick:
            return replace(plan, train=train)
        train = train.replace(steps=QUICK_STEPS, label_batch=16, pool_batch=16)
        small: Any = ConvTrunk(channels=(4,), widths=(8,))
        if task != "cifar10":
            small = MLPTrunk(widths=(8, 8), activation="relu")
        return replace(plan, train=train, trunk=small, ensemble_trunk=small)

    def beta(self, task: str) -> float:
        """The β that the experiments chose for the task."""
        return 0.1 if self.quick else Experiments().choice(task, "gpn")

    @contextmanager
    def products(self, precision: str) -> Iterator[None]:
        """Float32 products as `precision` says ("highest", "high": TF32), put back afterwards."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


@lru_cache(maxsize=2)
def _split(task: str, device: torch.device, quick: bool) -> Split:  # noqa: FBT001
    split = _made_up(task) if quick else Experiments().split(task, 0).merged()
    return replace(split, task=split.task.to(device, torch.float32))


def _made_up(task: str) -> Split:
    """Small random rows in place of the real ones: strangers are shifted."""
    rng = torch.Generator().manual_seed(0)
    images = task == "cifar10"
    shape = (3, 8, 8) if images else (12,)
    known, strange = (torch.randn(60, *shape, generator=rng) + shift for shift in (0.0, 2.0))
    y = torch.arange(60) % 10 if images else known[:, :1].sin()
    pool = torch.cat([known[:40], strange[:40]])
    augment = FlipAndShift(shift=1) if images else None
    learnt = Task(known[:40], y[:40], pool=pool, augment=augment)
    rows = Rows(known[40:], y[40:], strange[40:], None if images else y[40:])
    return Split(learnt, rows, rows, strange[:40])


def pick_device(name: str) -> torch.device:
    return TrainConfig(device=name).pick_device()
