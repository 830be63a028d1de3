"""The one training loop: rows, forward, sum of the loss terms, backward, step."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from gpn.training.checkpoint import CheckpointSession
from gpn.training.config import TrainConfig
from gpn.training.cuda_graphs import GraphedStep, Rows, TrainStep, supports_graphs
from gpn.training.distributed import ProcessGroup
from gpn.training.divergence import check_losses
from gpn.training.muon import Muon
from gpn.training.progress import OnProgress, no_progress
from gpn.training.state import History, LossTerms, Stream, Terms, TrainingState
from gpn.training.torch_state import matmul_precision

Backward = Callable[[Rows], LossTerms]
RISING_SHARE = 0.2  # of the steps in which the learning rate rises


def train(
    module: nn.Module,
    step: TrainStep | Callable[[], Terms],
    config: TrainConfig,
    on_progress: OnProgress = no_progress,
    *,
    undecayed: Iterable[nn.Module] = (),
    streams: Sequence[Stream] = (),
    session: CheckpointSession | None = None,
    group: ProcessGroup | None = None,
) -> History:
    """Minimise the sum of the step's loss terms over the module's parameters.

    undecayed
        Modules without weight decay: codes, kernel scales, noise.
    streams
        All randomness that a step draws from; a checkpoint saves it.
    session
        Saves the run from time to time, and resumes it from its file.
    group
        The processes among which the gradients are averaged.

    The loss is read back at some fifty checks only. A number that is not finite ends the run with
    `TrainingDiverged`, the module in its best checked state. Ctrl-C passes through: whoever asked
    for a fit gets all of it or none.
    """
    if not isinstance(step, TrainStep):
        step = TrainStep(lambda: (), step, graph_safe=False)
    optimiser, schedule = optimiser_of(module, config, undecayed)
    state = TrainingState(module, optimiser, schedule, config.steps, streams, config.averaging)
    if session is not None:
        session.resume(state)
    backward = backward_pass(step, optimiser, config)
    while not state.finished:
        terms = backward(step.rows())
        if group is not None:
            group.average_gradients(module)
        optimiser.step()
        schedule.step()
        state.record(terms)
        if state.check_is_due:
            on_progress(state.step, config.steps, check_losses(state, config))
        if session is not None:
            session.after_step(state)
    state.history.seconds = state.seconds()
    return state.history


def forward_backward(
    rows: Rows, step: TrainStep, optimiser: torch.optim.Optimizer, precision: str
) -> LossTerms:
    """The loss terms at these rows; the gradients of their sum are left in the parameters."""
    with matmul_precision(precision):
        with torch.autocast(_device_type(optimiser), torch.bfloat16, enabled=precision == "bf16"):
            terms = step.terms(*rows)
        values = torch.stack(list(terms.values()))
        loss = values.sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
    return LossTerms(tuple(terms), values.detach())


def backward_pass(
    step: TrainStep, optimiser: torch.optim.Optimizer, config: TrainConfig
) -> Backward:
    """`forward_backward` of this step: as one CUDA graph where step, device and config allow it."""
    plain = partial(forward_backward, step=step, optimiser=optimiser, precision=config.precision)
    allowed = config.graphs == "auto" and step.graph_safe
    if allowed and supports_graphs(_device_type(optimiser)):
        return GraphedStep(plain, step.generators)
    return plain


def optimiser_of(
    module: nn.Module, config: TrainConfig, undecayed: Iterable[nn.Module] = ()
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """The optimiser, and the schedule of its learning rate."""
    free = {id(parameter) for part in undecayed for parameter in part.parameters()}
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if id(p) not in free], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if id(p) in free], "weight_decay": 0.0},
    ]
    optimiser = _make_optimiser(groups, config)
    rise = max(RISING_SHARE, min(0.99, 2.0 / (config.steps + 1)))  # at least one whole step
    if config.schedule == "constant":
        return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1.0)
    if config.schedule == "linear":
        triangle = partial(_triangle, steps=config.steps, peak=rise * config.steps)
        return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, triangle)
    return optimiser, torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=config.learning_rate,
        total_steps=config.steps + 1,
        pct_start=rise,
        cycle_momentum=config.momentum is None,
    )


def _triangle(step: int, *, steps: int, peak: float) -> float:
    """From almost 0 up to 1 at `peak`, and down to almost 0 at the last step."""
    return min((step + 1) / (peak + 1), (steps - step) / max(1.0, steps - peak))


def _make_optimiser(groups: list[dict[str, Any]], config: TrainConfig) -> torch.optim.Optimizer:
    rate = config.learning_rate
    if config.optimiser == "adam":
        return torch.optim.AdamW(groups, lr=rate, fused=True)
    if config.optimiser == "muon":
        return Muon(groups, rate, config.momentum or 0.0)
    if config.momentum is None:
        return torch.optim.SGD(groups, lr=rate, fused=True)
    return torch.optim.SGD(groups, lr=rate, momentum=config.momentum, nesterov=True, fused=True)


def _device_type(optimiser: torch.optim.Optimizer) -> str:
    return next(p for group in optimiser.param_groups for p in group["params"]).device.type
