"""Where benchmarks run, and on what: the paper's tasks, or small synthetic ones."""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch

from benchmarks.harness import RESULTS
from experiments.paper.context import RunContext
from experiments.paper.plans import PLANS, Plan
from experiments.paper.tasks.split import Rows, Split
from gpn import ConvTrunk, MLPTrunk, Task
from gpn.data import FlipAndShift

QUICK_STEPS = 10


@dataclass(frozen=True)
class BenchmarkContext:
    """The device, the folder of the results, and whether a quick run is enough."""

    device: torch.device
    results: Path = RESULTS
    quick: bool = False

    def size(self, full: int, quick: int) -> int:
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
        images = task == "cifar10"
        table = MLPTrunk(widths=(8, 8), activation="relu")
        small = ConvTrunk(channels=(4,), widths=(8,)) if images else table
        return replace(plan, train=train, trunk=small, ensemble_trunk=small)

    def beta(self, task: str) -> float:
        """The β that the experiments chose for the task."""
        return 0.1 if self.quick else RunContext(task).chosen("gpn")


@lru_cache(maxsize=2)
def _split(task: str, device: torch.device, quick: bool) -> Split:  # noqa: FBT001
    split = _synthetic(task) if quick else RunContext(task).split(0).merged()
    return replace(split, task=split.task.to(device, torch.float32))


def _synthetic(task: str) -> Split:
    """Small random rows; OOD rows are shifted."""
    rng = torch.Generator().manual_seed(0)
    images = task == "cifar10"
    shape = (3, 8, 8) if images else (12,)
    known, ood = (torch.randn(60, *shape, generator=rng) + shift for shift in (0.0, 2.0))
    y = torch.arange(60) % 10 if images else known[:, :1].sin()
    pool = torch.cat([known[:40], ood[:40]])
    augment = FlipAndShift(shift=1) if images else None
    labeled = Task(known[:40], y[:40], pool=pool, augment=augment)
    rows = Rows(known[40:], y[40:], ood[40:], None if images else y[40:])
    return Split(labeled, rows, rows, ood[:40])
