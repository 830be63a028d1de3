"""The one training loop."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpn.core import replay
from gpn.core.borrowed import rounded_products
from gpn.core.checkpoint import Kept
from gpn.core.config import Config, require_counts, require_one_of, require_positive
from gpn.core.divergence import TrainingDiverged, explain, first_fault
from gpn.core.parallel import Processes, start
from gpn.core.replay import Feed, Replay
from gpn.core.training_state import History as History
from gpn.core.training_state import Stream as Stream
from gpn.core.training_state import Terms as Terms
from gpn.core.training_state import TrainingState

Report = Callable[[int, int, dict[str, float]], None]

CHECKS = 50
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """How the loop runs: length, batches, optimiser, schedule, device and dtype.

    `label_batch` and `pool_batch` rows go through one forward pass per step. `device` "auto" takes
    a GPU if there is one; `dtype` "auto" is the labels' own if float64, else float32. Under the
    "one-cycle" schedule the rate rises and falls, and momentum goes the other way. `precision`
    "tf32" rounds the factors of float32 products on a GPU, "bf16" computes products in
    bfloat16, sums and exponentials in float32 (torch's autocast); weights stay in float32.
    `graphs` "auto" replays steps as a CUDA graph (`core/replay.py`) on a GPU wherever the method
    can, with the same results up to rounding; "no" never does.
    `devices`, `num_nodes` and `strategy` go to Lightning Fabric: a GPN's rows are split among so
    many processes (`core/parallel.py`); started by torchrun, they give what one process would.
    """

    steps: int = 2000
    label_batch: int = 256
    pool_batch: int = 256
    optimiser: str = "adam"
    learning_rate: float = 3e-3
    weight_decay: float = 0.0
    schedule: str = "one-cycle"
    device: str = "auto"
    dtype: str = "auto"
    precision: str = "float32"
    graphs: str = "auto"
    devices: int = 1
    num_nodes: int = 1
    strategy: str = "auto"

    def __post_init__(self) -> None:
        require_counts(self, "steps", "label_batch", "pool_batch", "devices", "num_nodes")
        require_positive(self, "learning_rate")
        require_one_of(self, "optimiser", ("adam", "sgd"))
        require_one_of(self, "schedule", ("one-cycle", "constant"))
        require_one_of(self, "dtype", ("auto", *DTYPES))
        require_one_of(self, "precision", ("float32", "tf32", "bf16"))
        require_one_of(self, "graphs", ("auto", "no"))
        if self.device != "auto":
            _device(self.device)

    def processes(self) -> Processes | None:
        """This process among those of the fit; None: it is alone."""
        if self.devices * self.num_nodes == 1:
            return None
        accelerator = "auto" if self.device == "auto" else _device(self.device).type
        return start(accelerator, self.devices, self.num_nodes, self.strategy)

    def pick_device(self) -> torch.device:
        if self.devices * self.num_nodes > 1:
            raise ValueError(
                "several devices are for gpn.GPN, whose rows can be split among them, got "
                f"devices={self.devices} and num_nodes={self.num_nodes}; use devices=1."
            )
        return as_device(self.device)

    def pick_dtype(self, x_obs: Tensor) -> torch.dtype:
        if self.dtype != "auto":
            return DTYPES[self.dtype]
        return torch.float64 if x_obs.dtype == torch.float64 else torch.float32


class LabelBatches:
    """Indices of labeled rows: all of them if they fit a batch, else shuffled epoch by epoch."""

    def __init__(self, n_labels: int, batch: int, rng: torch.Generator) -> None:
        self.n_labels = n_labels
        self.batch = min(batch, n_labels)
        self.rng = rng
        self.order = torch.arange(n_labels, device=rng.device)
        self.position = n_labels

    def next(self) -> Tensor:
        if self.batch == self.n_labels:
            return self.order
        if self.position + self.batch > self.n_labels:
            self.order = torch.randperm(self.n_labels, generator=self.rng, device=self.rng.device)
            self.position = 0
        self.position += self.batch
        return self.order[self.position - self.batch : self.position]

    @property
    def streams(self) -> list[Stream]:
        """What moves on when rows are drawn."""
        return [self, self.rng]

    def get_state(self) -> Tensor:
        return torch.cat([self.order.new_tensor([self.position]), self.order])

    def set_state(self, state: Tensor) -> None:
        self.position, self.order = int(state[0]), state[1:].to(self.order.device)


def train(
    module: nn.Module,
    terms: Callable[[], Terms],
    config: TrainConfig,
    report: Report,
    undecayed: Iterable[nn.Module] = (),
    streams: Sequence[Stream] = (),
    kept: Kept | None = None,
    processes: Processes | None = None,
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

    wanted = config.graphs == "auto" and replay.can_record(_where(optimiser))
    if wanted and isinstance(terms, Feed) and terms.replayable:
        return Replay(terms, slopes)
    return lambda: slopes(terms)


def _slopes(
    terms: Callable[[], Terms], optimiser: torch.optim.Optimizer, precision: str
) -> tuple[list[str], Tensor]:
    """The names of one step's terms, and their values once the gradients of their sum are known."""
    with rounded_products(precision):
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


def as_device(name: str | torch.device) -> torch.device:
    """The device of that name, if this machine has it; "auto" is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return _present(_device(str(name)))


def _device(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"device must be 'auto' or a name that torch knows, such as 'cpu', 'cuda' or 'cuda:1', "
            f"got {name!r}."
        ) from None


def _present(device: torch.device) -> torch.device:
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device must be one that this machine has, got {str(device)!r} of "
            f"{torch.cuda.device_count()} GPUs; use device='auto' or 'cpu'."
        )
    return device


def _rise(steps: int) -> float:
    """The share of steps on which the rate rises: a fifth, but one whole step at least."""
    return max(0.2, min(0.99, 2.0 / (steps + 1)))
