"""Checks of arguments: a wrong shape would be broadcast silently, or fail far from its cause."""

from numbers import Integral
from typing import Any

import torch
from torch import Tensor


def require_shapes(**named: tuple[Any, str]) -> None:
    """Raise unless every tensor has its axes, and an axis has one length wherever it occurs.

    require_shapes(draws=(draws, "s n o"), targets=(targets, "n o"))
    """
    lengths: dict[str, tuple[int, str]] = {}
    for name, (tensor, axes) in named.items():
        expected = f"({', '.join(axes.split())})"
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{name} must be a tensor of shape {expected}, got {type(tensor).__name__}; "
                "try torch.as_tensor."
            )
        shape = tuple(tensor.shape)
        if len(shape) != len(axes.split()) or 0 in shape:
            raise ValueError(f"{name} must have the shape {expected} with no 0, got {shape}.")
        for axis, length in zip(axes.split(), shape, strict=True):
            first, owner = lengths.setdefault(axis, (length, name))
            if first != length:
                raise ValueError(
                    f"{name} must have the shape {expected} with {axis} = {first} as in {owner}, "
                    f"got {shape}."
                )


def require_finite(values: Tensor, name: str, indices: Tensor | None = None) -> None:
    """Raise where a row holds NaN or infinity; `indices` are the rows' numbers in their source."""
    bad = ~torch.isfinite(values).flatten(1).all(1)
    if bool(bad.any()):
        position = int(bad.nonzero()[0])
        first = position if indices is None else int(indices[position])
        raise ValueError(
            f"{name} must be finite, got NaN or infinity in {int(bad.sum())} of {len(values)} "
            f"rows (first: row {first}); drop or impute them."
        )


def require_level(level: float) -> None:
    """Raise unless `level` is a probability that an interval can have."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}; try 0.95.")


def require_count(name: str, count: Any) -> int:
    """`count` as an int; raise unless it is a whole number of at least 1."""
    if not is_count(count):
        raise ValueError(f"{name} must be a whole number of at least 1, got {count!r}.")
    return int(count)


def is_count(value: Any, least: int = 1) -> bool:
    """Whether `value` is a whole number of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def require_classes(classes: Tensor, n_classes: int) -> None:
    """Raise unless classes are whole numbers from 0 to `n_classes` − 1."""
    if classes.is_floating_point() or int(classes.min()) < 0 or int(classes.max()) >= n_classes:
        raise ValueError(
            f"classes must be whole numbers from 0 to {n_classes - 1}, got {classes.dtype} from "
            f"{classes.min().item()} to {classes.max().item()}."
        )
