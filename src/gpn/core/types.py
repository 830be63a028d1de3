"""Tensor types and random generators that all modules share.

One letter per axis:

    k  anchors (prior networks and their codes)     q  code dimensions
    s  draws (functions from the posterior)         n  rows        m  pool rows in a batch
    o  outputs: regression targets or logits        *d  the shape of one input

Draws are sample-first, ``(s, n, o)``.
"""

import numbers

import torch
from jaxtyping import Float, Int
from torch import Tensor

Inputs = Float[Tensor, "n *d"]
Outputs = Float[Tensor, "n o"]
Labels = Int[Tensor, "n"]
Codes = Float[Tensor, "k q"]
Functions = Float[Tensor, "k n o"]
Draws = Float[Tensor, "s n o"]

Rng = torch.Generator | int | None


def as_generator(rng: Rng, device: torch.device | str = "cpu") -> torch.Generator:
    """A new generator on `device`, seeded by `rng`; a generator `rng` advances by one number.

    No global random state is read or written: None takes its seed from the operating system.
    """
    generator = torch.Generator(device=device)
    if rng is None:
        generator.seed()
        return generator
    if isinstance(rng, torch.Generator):
        seed = torch.randint(2**62, (), generator=rng, device=rng.device)
        return generator.manual_seed(int(seed))
    if isinstance(rng, bool) or not isinstance(rng, numbers.Integral):
        raise TypeError(
            f"rng must be a torch.Generator, an integer seed or None, got {rng!r}; try rng=0."
        )
    return generator.manual_seed(int(rng))


def normal(shape: tuple[int, ...], rng: torch.Generator, like: Tensor) -> Tensor:
    """Standard normal numbers of `shape` from `rng`, with the dtype and on the device of `like`."""
    drawn = torch.randn(shape, generator=rng, device=rng.device, dtype=like.dtype)
    return drawn.to(like.device)


def as_floating(values: Tensor) -> Tensor:
    """Integers in the default dtype, floats of 16 bits as float32, other floats unchanged."""
    if not values.is_floating_point():
        return values.to(torch.get_default_dtype())
    return values.float() if values.dtype.itemsize < 4 else values


def plain_copy(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU that shares no memory, as safetensors requires."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def channels_last(x: Inputs) -> Inputs:
    """Images on a GPU in the memory order that convolutions there prefer; other rows unchanged."""
    if x.ndim == 4 and x.device.type == "cuda":
        return x.contiguous(memory_format=torch.channels_last)
    return x
