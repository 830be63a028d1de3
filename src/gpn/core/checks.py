"""Shapes of what a user passes: wrong ones would be broadcast without a word, or fail far away."""

from numbers import Integral
from typing import Any

from torch import Tensor


def require_shapes(**named: tuple[Any, str]) -> None:
    """Raise unless every tensor has its axes, and each axis one length wherever it occurs.

    require_shapes(draws=(draws, "s n o"), targets=(targets, "n o"))
    """
    lengths: dict[str, tuple[int, str]] = {}
    for name, (tensor, axes) in named.items():
        wanted = f"({', '.join(axes.split())})"
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{name} must be a tensor of shape {wanted}, got {type(tensor).__name__}; "
                "try torch.as_tensor."
            )
        came = tuple(tensor.shape)
        if len(came) != len(axes.split()) or 0 in came:
            raise ValueError(f"{name} must have the shape {wanted} with no 0, got {came}.")
        for axis, length in zip(axes.split(), came, strict=True):
            first, owner = lengths.setdefault(axis, (length, name))
            if first != length:
                raise ValueError(
                    f"{name} must have the shape {wanted} with {axis} = {first} as in {owner}, "
                    f"got {came}."
                )


def require_level(level: float) -> None:
    """Raise unless `level` is a share of draws that an interval can hold."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}; try 0.95.")


def require_count(name: str, count: Any) -> int:
    """`count` as a number, or an error unless it is a whole one from 1 on."""
    if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {count!r}.")
    return int(count)


def require_classes(classes: Tensor, n_classes: int) -> None:
    """Raise unless classes are numbers from 0 to `n_classes` − 1."""
    if classes.is_floating_point() or int(classes.min()) < 0 or int(classes.max()) >= n_classes:
        raise ValueError(
            f"classes must be whole numbers from 0 to {n_classes - 1}, got {classes.dtype} from "
            f"{classes.min().item()} to {classes.max().item()}."
        )
