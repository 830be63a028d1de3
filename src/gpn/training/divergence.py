"""Divergence: which number is not finite any more, at which step, and why."""

import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from gpn.training.config import TrainConfig
from gpn.training.state import TrainingState

RISE_FACTOR = 10.0


class TrainingDiverged(FloatingPointError):
    """A loss or a gradient is no longer finite.

    step, term: where; `term` is the name of a loss term, or "gradient". good_step: the step of the
    best state before it, in which `module` is left. posterior: the posterior of that state, where
    the method can make one (a GPN), else None.
    """

    def __init__(self, message: str, step: int, term: str, module: nn.Module, good: int) -> None:
        super().__init__(message)
        self.step, self.term = step, term
        self.module, self.good_step = module, good
        self.posterior: Any = None


def check_losses(state: TrainingState, config: TrainConfig) -> dict[str, float]:
    """The loss terms of this step, once all since the last check are known to be finite."""
    losses = state.read()
    fault = first_fault(losses, state.step, finite_weights=state.weights_are_finite())
    totals = [sum(terms.values()) for terms in losses]
    if fault is not None:
        n_finite = max(0, fault.step - state.step + len(losses) - 1)
        before = totals[:n_finite] or [state.best.smoothed]
        lowest, last = min(state.best.lowest, *before), before[-1]
        good = state.best.restore()
        message = _explanation(fault, lowest, last, config, good)
        raise TrainingDiverged(message, fault.step, fault.term, state.module, good)
    state.history.checks.append({"step": state.step, **losses[-1]})
    state.best.check(totals, state.step)
    return losses[-1]


@dataclass(frozen=True)
class Fault:
    """The first number that is not finite: its step, its term, and its value."""

    step: int
    term: str
    value: float


def first_fault(losses: list[dict[str, float]], step: int, *, finite_weights: bool) -> Fault | None:
    """The first fault among the loss terms of the steps up to `step`, or in the weights after it.

    Where all terms become NaN together after a finite step, the gradient of that step was at fault:
    not finite, or too long.
    """
    first = step - len(losses) + 1
    for at, terms in enumerate(losses, first):
        bad = {name: value for name, value in terms.items() if not math.isfinite(value)}
        if bad and at > 1 and all(math.isnan(value) for value in terms.values()):
            return Fault(at - 1, "gradient", math.nan)
        if bad:
            return Fault(at, *next(iter(bad.items())))
    return None if finite_weights else Fault(step, "gradient", math.nan)


def _explanation(fault: Fault, lowest: float, last: float, config: TrainConfig, good: int) -> str:
    """The message of the error; `lowest` and `last` are the finite losses before the fault."""
    what = (
        "a gradient step must leave finite weights and losses, got one that did not"
        if fault.term == "gradient"
        else f"every loss term must stay finite, got {fault.term}={fault.value}"
    )
    cause = _cause(fault, lowest, last, config)
    return f"{what} at step {fault.step}; {cause}. The state of step {good} is kept."


def _cause(fault: Fault, lowest: float, last: float, config: TrainConfig) -> str:
    smaller = f"try learning_rate={config.learning_rate / 10:.1g}"
    if fault.step == 1 and fault.term != "gradient":
        return (
            "nothing was learnt by then, so look for huge values in x and y (their squares must "
            "be finite), or scale them"
        )
    if last > RISE_FACTOR * lowest:
        return f"the loss had risen from {lowest:.3g} to {last:.3g} before: {smaller}"
    if config.precision == "bf16":
        return f"bf16 has three digits: try precision='float32', or {smaller}"
    return (
        f"{smaller}, or look for huge values in x and y, or for a logarithm, a root or a division "
        "in a module of your own"
    )
