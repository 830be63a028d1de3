"""The one training loop."""

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gpn.core.config import Config, require_counts, require_one_of, require_positive

Terms = dict[str, Tensor]
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

    def __post_init__(self) -> None:
        require_counts(self, "steps", "label_batch", "pool_batch")
        require_positive(self, "learning_rate")
        require_one_of(self, "optimiser", ("adam", "sgd"))
        require_one_of(self, "schedule", ("one-cycle", "constant"))
        require_one_of(self, "dtype", ("auto", *DTYPES))
        require_one_of(self, "precision", ("float32", "tf32", "bf16"))
        if self.device != "auto":
            _device(self.device)

    def pick_device(self) -> torch.device:
        if self.device != "auto":
            return as_device(self.device)
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def pick_dtype(self, x_obs: Tensor) -> torch.dtype:
        if self.dtype != "auto":
            return DTYPES[self.dtype]
        return torch.float64 if x_obs.dtype == torch.float64 else torch.float32


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


def train(
    module: nn.Module,
    terms: Callable[[], Terms],
    config: TrainConfig,
    report: Report,
    undecayed: Iterable[nn.Module] = (),
) -> History:
    """Minimise the sum of `terms()` over the module's parameters.

    Weight decay is for weights: the parameters of `undecayed` (codes, scales of a kernel, noise),
    whose zero means nothing, are left out of it.

    The loss is read back only at some fifty checks. Ctrl-C ends the run with a warning and
    leaves the module in the best state that a check has seen.
    """
    optimiser, schedule = _optimiser(module, config, undecayed)
    history, best, started = History(config.steps), _Best(module), time.perf_counter()
    every = max(1, config.steps // CHECKS)
    try:
        for step in range(1, config.steps + 1):
            current, loss = _slopes(terms, optimiser, config.precision)
            optimiser.step()
            schedule.step()
            best.average(loss)
            if step % every == 0 or step == config.steps:
                values = _read(current, step)
                history.checks.append({"step": step, **values})
                best.check(step)
                report(step, config.steps, values)
    except KeyboardInterrupt:
        history.stopped_at = best.restore()
        warnings.warn(
            f"training was stopped before its {config.steps} steps were done; "
            f"the best state so far, of step {history.stopped_at}, is kept.",
            stacklevel=3,
        )
    history.seconds = time.perf_counter() - started
    return history


def _slopes(
    terms: Callable[[], Terms], optimiser: torch.optim.Optimizer, precision: str
) -> tuple[Terms, Tensor]:
    """The terms of one step, and their sum once its gradients are known."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before if precision == "float32" else "high")
    try:
        with torch.autocast(_where(optimiser), torch.bfloat16, enabled=precision == "bf16"):
            current = terms()
        loss = torch.stack(list(current.values())).sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
    finally:
        torch.set_float32_matmul_precision(before)
    return current, loss.detach()


def _where(optimiser: torch.optim.Optimizer) -> str:
    """The kind of device that the parameters live on."""
    return next(p for group in optimiser.param_groups for p in group["params"]).device.type


class _Best:
    """The state at the check with the lowest smoothed loss."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.smoothed: Tensor | None = None
        self.lowest = math.inf
        self.step = 0
        self.state = copy.deepcopy(module.state_dict())

    def average(self, loss: Tensor) -> None:
        self.smoothed = loss if self.smoothed is None else torch.lerp(self.smoothed, loss, 0.05)

    def check(self, step: int) -> None:
        value = math.inf if self.smoothed is None else float(self.smoothed)
        if value < self.lowest:
            self.lowest, self.step = value, step
            self.state = copy.deepcopy(self.module.state_dict())

    def restore(self) -> int:
        self.module.load_state_dict(self.state)
        return self.step


def _optimiser(
    module: nn.Module, config: TrainConfig, undecayed: Iterable[nn.Module]
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
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
    """The device of that name, if this machine has it."""
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


def _read(terms: Terms, step: int) -> dict[str, float]:
    values = {name: float(value.detach()) for name, value in terms.items()}
    for name, value in values.items():
        if not math.isfinite(value):
            raise FloatingPointError(
                f"every loss term must stay finite, got {name}={value} at step {step}; "
                "try a smaller learning_rate, or look for huge values in x and y."
            )
    return values
