"""One fit in several processes, by Lightning Fabric: each computes some rows of the same batch.

Every process draws the same labels, pool rows, codes and noise from the same seed. The network sees
every p-th row of a batch (p processes), the outputs are gathered, and every process computes the
loss of the whole batch:

    ∂L/∂φ = Σ_r Σ_{rows i of process r} ∂L/∂g(x_i) ∂g(x_i)/∂φ

So a step is that of one process, up to rounding, whatever the loss does with rows: joint anchors,
weights and running means included. Dropout draws other masks, and batch norm sees the rows of its
own process; after the fit all processes have the main one's running means.
"""

import atexit
import functools
from collections.abc import Callable, Iterator
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
    def is_main(self) -> bool:
        """Whether this process writes checkpoints and shows progress."""
        return self.rank == 0

    def require_same(self, facts: dict[str, str]) -> None:
        """Raise in every process unless all have the same fit."""
        every: list[Any] = [None] * self.count
        distributed.all_gather_object(every, facts)
        other = [name for name in facts if len({theirs[name] for theirs in every}) > 1]
        if other:
            raise ValueError(
                "every process must have the same fit, got processes with another "
                f"{', '.join(other)}; pass the same data and the same rng (random_state)."
            )

    def broadcast(self, value: T) -> T:
        """The main process's value: others may have rounded differently on the way."""
        if isinstance(value, Tensor):
            received = value.clone()
            distributed.broadcast(received, src=0)
            return received  # type: ignore[return-value]
        objects: list[Any] = [value]
        distributed.broadcast_object_list(objects, src=0)
        return objects[0]

    def gather_rows(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """`network(x)`, rows second to last; this process computes every p-th of them."""
        if len(x) < self.count:
            raise ValueError(
                f"a batch must hold a row for each of {self.count} processes, got {len(x)} rows; "
                "use larger batches or fewer devices."
            )
        return _GatherRows.apply(network(x[self.rank :: self.count]), self, len(x))

    def average_gradients(self, module: nn.Module) -> None:
        """Replace gradients by their means over all processes, in one message."""
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        means = self.fabric.all_reduce(flat, reduce_op="mean")
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, mean in zip(gradients, means.split(sizes), strict=True):
            gradient.copy_(mean.view_as(gradient))


@contextmanager
def synchronised(group: ProcessGroup | None, facts: Callable[[], dict[str, str]]) -> Iterator[None]:
    """All processes begin with the same facts, and none leaves before the others."""
    if group is None:
        yield
        return
    group.require_same(facts())
    yield
    group.fabric.barrier()


class _GatherRows(torch.autograd.Function):
    """The rows of all processes from those of each.

    All processes know the gradient at all rows. Each returns p times that of its own rows, and the
    mean over the p processes is the sum that is wanted.
    """

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, group: ProcessGroup, n_rows: int) -> Tensor:
        ctx.group = group
        gathered = outputs.new_zeros(*outputs.shape[:-2], n_rows, outputs.shape[-1])
        gathered[..., group.rank :: group.count, :] = outputs
        return group.fabric.all_reduce(gathered, reduce_op="sum")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        group = ctx.group
        return group.count * gradients[0][..., group.rank :: group.count, :], None, None


@functools.cache  # processes are started once, however many fits they run
def start_process_group(
    accelerator: str, devices: int, num_nodes: int, strategy: str
) -> ProcessGroup:
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
    atexit.register(_leave_group)
    if fabric.world_size != devices * num_nodes:
        raise ValueError(
            f"there must be devices × num_nodes = {devices * num_nodes} processes, got "
            f"{fabric.world_size}; start them with torchrun --nproc-per-node {devices}."
        )
    return ProcessGroup(fabric)


def _leave_group() -> None:
    """Leave before the interpreter ends: Fabric does so on GPUs only, and on a CPU the threads of
    a group that still exists sometimes abort the process."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
