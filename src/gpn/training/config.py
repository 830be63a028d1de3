"""Settings of a training run: length, batches, optimiser, device and precision."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpn.core.config import Config, require_counts, require_one_of, require_positive
from gpn.training.distributed import ProcessGroup, start_process_group

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """Settings of the loop: length, batches, optimiser, schedule, device and dtype.

    `label_batch` and `pool_batch` rows go through one forward pass per step. `device` "auto" takes
    a GPU if there is one; `dtype` "auto" is the labels' own if float64, else float32. "muon"
    (`muon.py`) is for convolutions with batch norm. Under the "one-cycle" schedule the rate rises
    and falls, and momentum goes the other way, unless `momentum` fixes it, Nesterov's, for "sgd"
    and "muon"; "linear" is a triangle that ends at 0. `averaging` is the share of the steps over
    which weights are averaged at the end (exponential weights); 0 takes the last ones. `precision`
    "tf32" rounds the factors of float32 products on a GPU, "bf16" computes products in
    bfloat16, sums and exponentials in float32 (torch's autocast); weights stay in float32.
    `graphs` "auto" replays steps as a CUDA graph (`cuda_graphs.py`) on a GPU wherever the method
    can, with the same results up to rounding; "no" never does.
    `devices`, `num_nodes` and `strategy` go to Lightning Fabric: a GPN's rows are split among that
    many processes (`distributed.py`); started by torchrun, they compute what one process would.
    """

    steps: int = 2000
    label_batch: int = 256
    pool_batch: int = 256
    optimiser: str = "adam"
    learning_rate: float = 3e-3
    weight_decay: float = 0.0
    momentum: float | None = None
    schedule: str = "one-cycle"
    averaging: float = 0.0
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
        require_one_of(self, "optimiser", ("adam", "sgd", "muon"))
        require_one_of(self, "schedule", ("one-cycle", "linear", "constant"))
        require_one_of(self, "dtype", ("auto", *DTYPES))
        require_one_of(self, "precision", ("float32", "tf32", "bf16"))
        require_one_of(self, "graphs", ("auto", "no"))
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging must lie in [0, 1), got {self.averaging}; 0 is without.")
        if self.momentum is not None and not (0 < self.momentum < 1 and self.optimiser != "adam"):
            raise ValueError(
                "momentum must lie between 0 and 1 and go with optimiser='sgd' or 'muon', got "
                f"{self.momentum} and {self.optimiser!r}; leave it out for Adam."
            )
        if self.device != "auto":
            _device(self.device)

    def process_group(self) -> ProcessGroup | None:
        """The processes of the fit, seen from this one; None: it is alone."""
        if self.devices * self.num_nodes == 1:
            return None
        accelerator = "auto" if self.device == "auto" else _device(self.device).type
        return start_process_group(accelerator, self.devices, self.num_nodes, self.strategy)

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


def as_device(name: str | torch.device) -> torch.device:
    """The device of that name, if this machine has it; "auto" is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = _device(str(name))
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device must be one that this machine has, got {str(device)!r} of "
            f"{torch.cuda.device_count()} GPUs; use device='auto' or 'cpu'."
        )
    return device


def _device(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"device must be 'auto' or a name that torch knows, such as 'cpu', 'cuda' or 'cuda:1', "
            f"got {name!r}."
        ) from None
