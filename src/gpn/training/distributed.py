"""One fit in several processes, by Lightning Fabric: each sees some rows of the same batch.

Every process draws the same labels, pool rows, codes and noise from the same seed. The network sees
every p-th row of a batch (p processes), its outputs are put together, and the loss of the whole
batch is computed from them everywhere:

    ∂L/∂φ = Σ_r Σ_{rows i of process r} ∂L/∂g(x_i) ∂g(x_i)/∂φ

So a step is that of one process, up to rounding, whatever the loss does with rows: joint anchors,
weights and running means included. Dropout draws other masks, and batch norm sees the rows of its
own process; in the end all have the first one's means.
"""

import atexit
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

T = TypeVar("T")


class ProcessGroup:
    """The processes of one fit, seen from one of them."""

    def __init__(self, fabric: Any) -> None:
        self.fabric = fabric
        self.rank: int = fabric.global_rank
        self.count: int = fabric.world_size
        self.device: torch.device = fabric.device

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes and shows things."""
        return self.rank == 0

    def require_same(self, facts: dict[str, str]) -> None:
        """Raise in every process unless all were given the same fit."""
        every: list[Any] = [None] * self.count
        distributed.all_gather_object(every, facts)
        other = [name for name in facts if len({theirs[name] for theirs in every}) > 1]
        if other:
            raise ValueError(
                "every process must be given the same fit, got ones with another "
                f"{', '.join(other)}; pass the same data and the same rng (random_state)."
            )

    def leaders(self, values: Tensor) -> Tensor:
        """What the first process found: others may have rounded differently on the way."""
        theirs = values.clone()
        distributed.broadcast(theirs, src=0)
        return theirs

    def agreed(self, found: T) -> T:
        """What the first process has found, of any kind, so that all go on with the same."""
        theirs: list[Any] = [found]
        distributed.broadcast_object_list(theirs, src=0)
        return theirs[0]

    @contextmanager
    def rows_split(self, generator: nn.Module) -> Iterator[None]:
        """The generator on this process's rows, with the outputs of all, for as long as it trains.

        Rows go through `features` and then `tail`, which has them second to last.
        """
        features, tail = generator.get_submodule("features"), generator.get_submodule("tail")
        handles = [
            features.register_forward_pre_hook(lambda module, x: self._own(x[0])),
            tail.register_forward_hook(lambda module, x, outputs: self._together(outputs)),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        for buffer in generator.buffers():  # batch norm's running means are of one's own rows
            buffer.copy_(self.leaders(buffer))

    def _own(self, x: Tensor) -> Tensor:
        if len(x) < self.count:
            raise ValueError(
                f"a batch must hold a row for each of {self.count} processes, got {len(x)} rows; "
                "use larger batches or fewer devices."
            )
        self.n_rows = len(x)
        return x[self.rank :: self.count]

    def _together(self, outputs: Tensor) -> Tensor:
        return _Together.apply(outputs, self)

    def average(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace gradients by their means over all processes, in one message."""
        slopes = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = self.fabric.all_reduce(torch.cat([s.flatten() for s in slopes]), reduce_op="mean")
        for slope, mean in zip(slopes, flat.split([s.numel() for s in slopes]), strict=True):
            slope.copy_(mean.view_as(slope))


@contextmanager
def together(processes: ProcessGroup | None, facts: Callable[[], dict[str, str]]) -> Iterator[None]:
    """What all processes do: they begin with the same facts, and none leaves before the others."""
    if processes is None:
        yield
        return
    processes.require_same(facts())
    yield
    processes.fabric.barrier()


class _Together(torch.autograd.Function):
    """Rows of all processes from those of each; the way back takes p times one's own.

    All processes know the gradient at all rows, and the mean over p of what each makes of p times
    its own rows is the sum that is wanted.
    """

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, processes: ProcessGroup) -> Tensor:
        ctx.processes = processes
        shape = (*outputs.shape[:-2], processes.n_rows, outputs.shape[-1])
        everything = outputs.new_zeros(shape)
        everything[..., processes.rank :: processes.count, :] = outputs
        return processes.fabric.all_reduce(everything, reduce_op="sum")

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        processes = ctx.processes
        return processes.count * slopes[0][..., processes.rank :: processes.count, :], None


@functools.cache  # processes are started once, whatever many fits they do
def start(accelerator: str, devices: int, num_nodes: int, strategy: str) -> ProcessGroup:
    """This process among those that torchrun (or Fabric itself) has started."""
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise ImportError(
            "a fit in several processes needs Lightning Fabric; pip install 'gpn[distributed]', or "
            "use devices=1."
        ) from error
    fabric = Fabric(
        accelerator=accelerator, devices=devices, num_nodes=num_nodes, strategy=strategy
    )
    fabric.launch()
    atexit.register(_part)
    if fabric.world_size != devices * num_nodes:
        raise ValueError(
            f"there must be devices × num_nodes = {devices * num_nodes} processes, got "
            f"{fabric.world_size}; start them with torchrun --nproc-per-node {devices}."
        )
    return ProcessGroup(fabric)


def _part() -> None:
    """Leave the group before the interpreter ends: Fabric does so on GPUs alone, and on a CPU
    the threads of a group that is still there abort the process now and then."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
