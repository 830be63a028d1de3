"""Everything that the next training step depends on, so that a run can be saved and resumed."""

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gpn.core.types import plain_copy

Terms = dict[str, Tensor]
SMOOTHING = 0.05
CHECKS = 50


class LossTerms(NamedTuple):
    """The loss terms of one step: their names, and their values as one tensor on the device."""

    names: tuple[str, ...]
    values: Tensor


@runtime_checkable
class Stream(Protocol):
    """A source that a step draws from and advances: a torch.Generator, batches of rows."""

    def get_state(self) -> Tensor: ...
    def set_state(self, state: Tensor, /) -> Any: ...


@dataclass
class History:
    """What a training run did: its loss terms at each check, and how long it took."""

    steps: int
    seconds: float = 0.0
    checks: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Snapshot:
    """A training run at one step: tensors by name, and facts that JSON can hold."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def finished(self) -> bool:
        return self.facts["step"] == self.facts["steps"]

    def under(self, name: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `name`/."""
        prefix = f"{name}/"
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


class BestState:
    """The module's state at the check with the lowest smoothed loss."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.smoothed = self.lowest = math.inf
        self.step = 0
        self.state = copy.deepcopy(module.state_dict())

    def check(self, losses: Sequence[float], step: int) -> None:
        """Follow the losses since the last check, and copy the module if it is better now."""
        for loss in losses:
            first = math.isinf(self.smoothed)
            self.smoothed = loss if first else self.smoothed + SMOOTHING * (loss - self.smoothed)
        if self.smoothed < self.lowest:
            self.lowest, self.step = self.smoothed, step
            self.state = copy.deepcopy(self.module.state_dict())

    def restore(self) -> int:
        self.module.load_state_dict(self.state)
        return self.step


class WeightAverage:
    """An exponential mean over the last steps of a module's weights, running means included."""

    def __init__(self, module: nn.Module, horizon: float) -> None:
        state = module.state_dict()  # which shares its memory with the module
        self.weights = {name: w for name, w in state.items() if w.is_floating_point()}
        self.mean = {name: w.clone() for name, w in self.weights.items()}
        self.horizon = horizon

    def follow(self, step: int) -> None:
        """Move the mean towards the weights after this step."""
        share = 1 / max(1.0, min(step, self.horizon))
        torch._foreach_lerp_(list(self.mean.values()), list(self.weights.values()), share)

    def load(self) -> None:
        """Give the module its mean weights."""
        torch._foreach_copy_(list(self.weights.values()), list(self.mean.values()))


class TrainingState:
    """Module, optimiser, schedule, streams and losses so far.

    Buffers that a module registers as not persistent are not saved: they must not change.
    """

    def __init__(
        self,
        module: nn.Module,
        optimiser: Optimizer,
        schedule: LRScheduler,
        steps: int,
        streams: Sequence[Stream],
        averaging: float = 0.0,
    ) -> None:
        self.module, self.optimiser, self.schedule = module, optimiser, schedule
        self.average = WeightAverage(module, averaging * steps) if averaging > 0 else None
        self.streams = streams
        self.step, self.history, self.best = 0, History(steps), BestState(module)
        self.term_names: tuple[str, ...] = ()
        self.unread: list[Tensor] = []
        self.started = time.perf_counter()

    @property
    def finished(self) -> bool:
        return self.step == self.history.steps

    @property
    def check_is_due(self) -> bool:
        """At some fifty steps of the run, and at its last, the loss is read back."""
        return self.finished or self.step % max(1, self.history.steps // CHECKS) == 0

    def record(self, terms: LossTerms) -> None:
        """Count one more step, with these loss terms; after the last one, average the weights."""
        self.term_names = terms.names
        self.unread.append(terms.values)
        self.step += 1
        if self.average is not None:
            self.average.follow(self.step)
            if self.finished:
                self.average.load()

    def read(self) -> list[dict[str, float]]:
        """The loss terms of the steps since the last read: the one wait for the device."""
        values = torch.stack(self.unread).tolist()
        self.unread = []
        return [dict(zip(self.term_names, step, strict=True)) for step in values]

    def weights_are_finite(self) -> bool:
        sums = [p.detach().sum(dtype=torch.float64) for p in self.module.parameters()]
        return bool(torch.stack(sums).isfinite().all())

    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def snapshot(self) -> Snapshot:
        """A copy of it all; of a finished run, only what later code may still ask for."""
        tensors = _prefixed("module", self.module.state_dict())
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
        return Snapshot(facts, {name: plain_copy(tensor) for name, tensor in tensors.items()})

    def _unfinished(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What only the steps to come need."""
        inner = self.optimiser.state_dict()
        tensors = _prefixed("best", self.best.state)
        if self.average is not None:
            tensors |= _prefixed("average", self.average.mean)
        if self.unread:
            tensors["recent"] = torch.stack(self.unread)
        for number, state in inner["state"].items():
            known = {key: value for key, value in state.items() if isinstance(value, Tensor)}
            tensors |= _prefixed(f"optimiser/{number}", known)
        best = {name: getattr(self.best, name) for name in ("smoothed", "lowest", "step")}
        schedule = self.schedule.state_dict()
        return {"groups": inner["param_groups"], "schedule": schedule, "best": best}, tensors

    def restore(self, snapshot: Snapshot) -> None:
        """Become what the snapshot was taken of."""
        facts = snapshot.facts
        self.module.load_state_dict(snapshot.under("module"))
        states = snapshot.under("stream")
        for number, stream in enumerate(self.streams):
            stream.set_state(states[str(number)])
        self.step, self.history.checks = facts["step"], facts["checks"]
        self.started = time.perf_counter() - facts["seconds"]
        if not snapshot.finished:
            self._restore_unfinished(snapshot)

    def _restore_unfinished(self, snapshot: Snapshot) -> None:
        facts, inner = snapshot.facts, self.optimiser.state_dict()
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in snapshot.under("optimiser").items():
            number, key = name.split("/")
            state.setdefault(int(number), {})[key] = tensor
        inner |= {"state": state, "param_groups": facts["groups"]}
        self.optimiser.load_state_dict(inner)
        self.schedule.load_state_dict(facts["schedule"])
        device = next(self.module.parameters()).device
        self.unread = list(snapshot.tensors.get("recent", torch.empty(0)).to(device))
        if self.average is not None:
            for name, value in snapshot.under("average").items():
                self.average.mean[name].copy_(value)
        self.best.state = {name: t.to(device) for name, t in snapshot.under("best").items()}
        for name, value in facts["best"].items():
            setattr(self.best, name, value)


def _prefixed(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}/{key}": tensor for key, tensor in tensors.items()}
