"""Everything that a training is at one step, so that it can be stopped, kept and taken up again."""

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

Terms = dict[str, Tensor]

SMOOTHING = 0.05


@runtime_checkable
class Stream(Protocol):
    """What a step draws from and moves on: a torch.Generator, batches of rows."""

    def get_state(self) -> Tensor: ...
    def set_state(self, state: Tensor, /) -> Any: ...


@dataclass
class History:
    """What a training run did: its loss terms at each check, and where it ended."""

    steps: int
    seconds: float = 0.0
    stopped_at: int | None = None
    checks: list[dict[str, float]] = field(default_factory=list)

    def require_finished(self) -> "History":
        """Pass Ctrl-C on where half a run is of no use: it was a step towards the real one."""
        if self.stopped_at is not None:
            raise KeyboardInterrupt
        return self


@dataclass(frozen=True)
class Snapshot:
    """A training at one step: tensors by name, and beside them what JSON can hold."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def finished(self) -> bool:
        return self.facts["step"] == self.facts["steps"]

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors under `name`/."""
        prefix = f"{name}/"
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


class Best:
    """The state at the check with the lowest smoothed loss."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.smoothed = self.lowest = math.inf
        self.step = 0
        self.state = copy.deepcopy(module.state_dict())

    def check(self, losses: Sequence[float], step: int) -> None:
        """Follow the losses since the last check, and keep the module if it is better now."""
        for loss in losses:
            first = math.isinf(self.smoothed)
            self.smoothed = loss if first else self.smoothed + SMOOTHING * (loss - self.smoothed)
        if self.smoothed < self.lowest:
            self.lowest, self.step = self.smoothed, step
            self.state = copy.deepcopy(self.module.state_dict())

    def restore(self) -> int:
        self.module.load_state_dict(self.state)
        return self.step


class TrainingState:
    """Module, optimiser, schedule, streams, and what was seen: all that the next step hangs on.

    Buffers that a module registers as not persistent are no state: they must not change.
    """

    def __init__(
        self,
        module: nn.Module,
        optimiser: Optimizer,
        schedule: LRScheduler,
        steps: int,
        streams: Sequence[Stream],
    ) -> None:
        self.module, self.optimiser, self.schedule = module, optimiser, schedule
        self.streams = streams
        self.step, self.history, self.best = 0, History(steps), Best(module)
        self.recent: list[Tensor] = []
        self.started = time.perf_counter()

    @property
    def finished(self) -> bool:
        return self.step == self.history.steps

    def advance(self, values: Tensor) -> None:
        """One step along the gradients that are known; `values` are its loss terms."""
        self.optimiser.step()
        self.schedule.step()
        self.recent.append(values)
        self.step += 1

    def read(self) -> list[list[float]]:
        """The loss terms of the steps since the last read: the one wait for the device."""
        values = torch.stack(self.recent).tolist()
        self.recent = []
        return values

    def weights_are_finite(self) -> bool:
        sums = [p.detach().sum(dtype=torch.float64) for p in self.module.parameters()]
        return bool(torch.stack(sums).isfinite().all())

    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def snapshot(self) -> Snapshot:
        """A copy of all of it; of a finished training, what others may still ask for."""
        tensors = _under("module", self.module.state_dict())
        tensors |= {f"stream/{i}": one.get_state() for i, one in enumerate(self.streams)}
        facts = {
            "step": self.step,
            "steps": self.history.steps,
            "seconds": self.seconds(),
            "checks": self.history.checks,
        }
        if not self.finished:
            more, extra = self._unfinished()
            facts, tensors = {**facts, **more}, {**tensors, **extra}
        return Snapshot(facts, {name: _plain(tensor) for name, tensor in tensors.items()})

    def _unfinished(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What only the steps to come ask for."""
        inner = self.optimiser.state_dict()
        tensors = _under("best", self.best.state)
        if self.recent:
            tensors["recent"] = torch.stack(self.recent)
        for number, state in inner["state"].items():
            known = {key: value for key, value in state.items() if isinstance(value, Tensor)}
            tensors |= _under(f"optimiser/{number}", known)
        best = {name: getattr(self.best, name) for name in ("smoothed", "lowest", "step")}
        schedule = self.schedule.state_dict()
        return {"groups": inner["param_groups"], "schedule": schedule, "best": best}, tensors

    def restore(self, snapshot: Snapshot) -> None:
        """Be what the snapshot was taken of."""
        facts = snapshot.facts
        self.module.load_state_dict(snapshot.part("module"))
        states = snapshot.part("stream")
        for number, stream in enumerate(self.streams):
            stream.set_state(states[str(number)])
        self.step, self.history.checks = facts["step"], facts["checks"]
        self.started = time.perf_counter() - facts["seconds"]
        if not snapshot.finished:
            self._take_up(snapshot)

    def _take_up(self, snapshot: Snapshot) -> None:
        facts, inner = snapshot.facts, self.optimiser.state_dict()
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in snapshot.part("optimiser").items():
            number, key = name.split("/")
            state.setdefault(int(number), {})[key] = tensor
        inner |= {"state": state, "param_groups": facts["groups"]}
        self.optimiser.load_state_dict(inner)
        self.schedule.load_state_dict(facts["schedule"])
        where = next(self.module.parameters()).device
        self.recent = list(snapshot.tensors.get("recent", torch.empty(0)).to(where))
        self.best.state = {name: t.to(where) for name, t in snapshot.part("best").items()}
        for name, value in facts["best"].items():
            setattr(self.best, name, value)


def _under(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}/{key}": tensor for key, tensor in tensors.items()}


def _plain(tensor: Tensor) -> Tensor:
    """A copy in the computer's memory that shares nothing with others."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
