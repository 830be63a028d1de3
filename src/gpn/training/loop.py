"""The one training loop."""

import warnings
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from gpn.training import cuda_graphs as replay
from gpn.training.checkpoint import CheckpointSession
from gpn.training.config import TrainConfig
from gpn.training.cuda_graphs import GraphedStep, TrainStep
from gpn.training.distributed import ProcessGroup
from gpn.training.divergence import TrainingDiverged, explain, first_fault
from gpn.training.state import History, Stream, Terms, TrainingState
from gpn.training.torch_state import matmul_precision

Report = Callable[[int, int, dict[str, float]], None]


CHECKS = 50


def train(
    module: nn.Module,
    terms: Callable[[], Terms],
    config: TrainConfig,
    report: Report,
    undecayed: Iterable[nn.Module] = (),
    streams: Sequence[Stream] = (),
    kept: CheckpointSession | None = None,
    processes: ProcessGroup | None = None,
) -> History:
    """Minimise the sum of `terms()` over the module's parameters.

    Weight decay is for weights: the parameters of `undecayed` (codes, scales of a kernel, noise),
    whose zero means nothing, are left out of it.

    The loss is read back only at some fifty checks. Ctrl-C ends the run with a warning and
    leaves the module in the best state that a check has seen; so does a number that is not finite,
    with a `TrainingDiverged`. With `kept` the run is in a file from time to time, and begins where
    that has it; `streams` is all that `terms` draws from. With `processes` every step goes along
    the mean of their gradients.
    """
    state = TrainingState(module, *optimiser_of(module, config, undecayed), config.steps, streams)
    if processes is not None:
        trained = list(module.parameters())
        state.optimiser.register_step_pre_hook(lambda *_: processes.average(trained))
    if kept is not None:
        kept.begin(state)
    every = max(1, config.steps // CHECKS)
    slopes = step_slopes(terms, state.optimiser, config)
    try:
        for step in range(state.step + 1, config.steps + 1):
            names, values = slopes()
            state.advance(values)
            if step % every == 0 or step == config.steps:
                report(step, config.steps, _check(state, names, config))
            if kept is not None:
                kept.step(state)
    except KeyboardInterrupt:
        state.history.stopped_at = state.best.restore()
        warnings.warn(
            f"training was stopped before its {config.steps} steps were done; "
            f"the best state so far, of step {state.history.stopped_at}, is kept.",
            stacklevel=3,
        )
    state.history.seconds = state.seconds()
    return state.history


def _check(state: TrainingState, names: list[str], config: TrainConfig) -> dict[str, float]:
    """The loss terms of this step, once all since the last check are known to be finite."""
    losses = [dict(zip(names, values, strict=True)) for values in state.read()]
    fault = first_fault(losses, state.step, finite_weights=state.weights_are_finite())
    totals = [sum(terms.values()) for terms in losses]
    if fault is not None:
        known = max(0, fault.step - state.step + len(losses) - 1)
        before = totals[:known] or [state.best.smoothed]
        ends = min(state.best.lowest, *before), before[-1]
        good = state.best.restore()
        message = explain(fault, *ends, config.learning_rate, config.precision, good)
        raise TrainingDiverged(message, fault.step, fault.term, state.module, good)
    state.history.checks.append({"step": state.step, **losses[-1]})
    state.best.check(totals, state.step)
    return losses[-1]


def step_slopes(
    terms: Callable[[], Terms], optimiser: torch.optim.Optimizer, config: TrainConfig
) -> Callable[[], tuple[list[str], Tensor]]:
    """What finds the gradients of one step after the other: replayed where that is possible."""

    def slopes(work: Callable[[], Terms]) -> tuple[list[str], Tensor]:
        return _slopes(work, optimiser, config.precision)

    wanted = config.graphs == "auto" and replay.supports_graphs(_where(optimiser))
    if wanted and isinstance(terms, TrainStep) and terms.graph_safe:
        return GraphedStep(terms, slopes)
    return lambda: slopes(terms)


def _slopes(
    terms: Callable[[], Terms], optimiser: torch.optim.Optimizer, precision: str
) -> tuple[list[str], Tensor]:
    """The names of one step's terms, and their values once the gradients of their sum are known."""
    with matmul_precision(precision):
        with torch.autocast(_where(optimiser), torch.bfloat16, enabled=precision == "bf16"):
            current = terms()
        values = torch.stack(list(current.values()))
        optimiser.zero_grad(set_to_none=True)
        values.sum().backward()
    return list(current), values.detach()


def _where(optimiser: torch.optim.Optimizer) -> str:
    """The kind of device that the parameters live on."""
    return next(p for group in optimiser.param_groups for p in group["params"]).device.type


def optimiser_of(
    module: nn.Module, config: TrainConfig, undecayed: Iterable[nn.Module] = ()
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """The optimiser, and the schedule of its rate."""
    free = {id(parameter) for part in undecayed for parameter in part.parameters()}
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if id(p) not in free], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if id(p) in free], "weight_decay": 0.0},
    ]
    make = {"adam": torch.optim.AdamW, "sgd": torch.optim.SGD}[config.optimiser]
    optimiser: torch.optim.Optimizer = make(groups, lr=config.learning_rate, fused=True)
    if config.schedule == "constant":
        return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1.0)
    return optimiser, torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=config.learning_rate,
        total_steps=config.steps + 1,
        pct_start=_rise(config.steps),
    )


def _rise(steps: int) -> float:
    """The share of steps on which the rate rises: a fifth, but one whole step at least."""
    return max(0.2, min(0.99, 2.0 / (steps + 1)))
