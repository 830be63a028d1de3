"""What a fit learns from: labeled rows and a pool of unlabeled ones."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from gpn.core.checks import require_count, require_finite
from gpn.core.pools.base import Pool, SamplerPool, TensorPool
from gpn.core.pools.disk import DiskPool
from gpn.core.pools.rows import DatasetPool
from gpn.core.types import as_floating, as_generator

MAX_CLASSES = 100_000  # unless n_classes says more
Augment = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Signature:
    """What a posterior must know of its task: the shapes of x and y, and the kind of y."""

    input_shape: tuple[int, ...]
    n_outputs: int
    is_classification: bool


class Task:
    """Labels (x_obs, y_obs) and a pool; integer y means classification, floating y regression.

    Values are used as they are: no scaling happens here.

    Shape
        x: ``(n, d)``, or ``(n, *d)`` for images. y: ``(n, o)`` targets (a vector becomes one
        column), or ``(n,)`` class numbers 0 .. o−1. pool: rows shaped like x, a `Pool`, a sampler
        ``(m, rng) → rows``, a torch Dataset or a memory-mapped array. augment: ``(rows, rng) →
        rows`` of the same shape and meaning, such as `gpn.data.FlipAndShift`; every training batch
        goes through it.
    """

    x_obs: Tensor
    y_obs: Tensor
    pool: Pool | None
    n_outputs: int
    augment: Augment | None

    def __init__(
        self,
        x: Any,
        y: Any,
        pool: Any = None,
        *,
        n_classes: int | None = None,
        augment: Augment | None = None,
    ) -> None:
        self.x_obs = _inputs(x)
        targets = _targets(y)
        if len(self.x_obs) != len(targets):
            raise ValueError(
                f"x and y must have one row per label, got {len(self.x_obs)} and {len(targets)}."
            )
        self.n_outputs = _n_outputs(targets, n_classes)
        self.y_obs = targets if targets.ndim == 1 else _cast(targets, self.x_obs.dtype, "y")
        self.pool = None if pool is None else _as_pool(pool, self.x_obs)
        if augment is not None and not callable(augment):
            raise TypeError(
                f"augment must be a function (rows, rng) → rows, got {type(augment).__name__}; "
                "try gpn.data.FlipAndShift() for images."
            )
        self.augment = augment

    @property
    def is_classification(self) -> bool:
        return self.y_obs.ndim == 1

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.x_obs.shape[1:])

    @property
    def signature(self) -> Signature:
        return Signature(self.input_shape, self.n_outputs, self.is_classification)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Task":
        """The task with everything on `device` and floating values as `dtype`."""
        moved = copy.copy(self)
        moved.x_obs = _cast(self.x_obs, dtype, "x").to(device)
        targets = self.y_obs if self.is_classification else _cast(self.y_obs, dtype, "y")
        moved.y_obs = targets.to(device)
        moved.pool = None if self.pool is None else self.pool.to(device, dtype)
        return moved

    def required_pool(self, method: str) -> Pool:
        """The pool; without one, an error that names the `method` that needs it."""
        if self.pool is None:
            raise ValueError(
                f"{method} must have a pool of unlabeled inputs, got pool=None; pass "
                "Task(x, y, pool=...) with unlabeled rows, or gpn.box(low, high) to generate some."
            )
        return self.pool

    def augmented(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """Rows for one training step, newly augmented if the task has an augmentation."""
        if self.augment is None:
            return x
        changed = self.augment(x, rng)
        if changed.shape != x.shape:
            raise ValueError(
                f"augment must give rows of the shape that it gets, {tuple(x.shape)}, got "
                f"{tuple(changed.shape)}; change values, not shapes."
            )
        return changed

    def with_inputs(self, x_obs: Tensor, pool: Pool) -> "Task":
        """The same labels on other inputs, such as features of these."""
        other = copy.copy(self)
        other.x_obs, other.pool = x_obs, pool
        return other

    def subset(self, rows: Tensor) -> "Task":
        """The task with the labels of `rows` (indices) only, and the same pool."""
        subset = copy.copy(self)
        indices = rows.to(self.x_obs.device)
        subset.x_obs, subset.y_obs = self.x_obs[indices], self.y_obs[indices]
        return subset


def as_tensor(values: Any, name: str) -> Tensor:
    """`values` as a tensor of real numbers; anything but a tensor goes through numpy."""
    try:
        tensor = values if isinstance(values, Tensor) else torch.tensor(_numeric_array(values))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be a table of numbers with equal rows, got {type(values).__name__} "
            f"that cannot be read as one ({error}); encode text and categories first."
        ) from error
    if tensor.is_complex():
        raise TypeError(f"{name} must be real numbers, got {tensor.dtype}.")
    return tensor


def _numeric_array(values: Any) -> NDArray[Any]:
    array = np.array(values)
    return array.astype(np.float64) if array.dtype == object else array


def _inputs(x: Any) -> Tensor:
    rows = as_floating(as_tensor(x, "x").detach())
    if rows.ndim < 2:
        raise ValueError(
            f"x must be rows of inputs, shape (n, d) or (n, ...), got {tuple(rows.shape)}; "
            "for one feature try x.reshape(-1, 1)."
        )
    if rows.numel() == 0:
        what = "at least one number in each row" if len(rows) else "at least one row"
        raise ValueError(f"x must hold {what}, got shape {tuple(rows.shape)}.")
    require_finite(rows, "x")
    return rows


def _targets(y: Any) -> Tensor:
    targets = as_tensor(y, "y").detach()
    if not targets.is_floating_point():
        return _class_numbers(targets)
    if targets.ndim == 1:
        targets = targets[:, None]
    if targets.ndim != 2 or targets.shape[1] == 0:
        raise ValueError(
            f"y must be a vector or a table of targets, (n,) or (n, o), got {tuple(targets.shape)}."
        )
    require_finite(targets, "y")
    return targets


def _class_numbers(labels: Tensor) -> Tensor:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(
            "integer y means classes and must be one number per row, shape (n,), "
            f"got {tuple(labels.shape)}; for several regression targets pass floats."
        )
    labels = labels.to(torch.int64)
    if labels.numel() and int(labels.min()) < 0:
        raise ValueError(
            f"class numbers must be 0, 1, 2, ..., got {int(labels.min())}; renumber the classes."
        )
    return labels


def _cast(values: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    """Finite values as `dtype`, which must be able to hold them."""
    cast = values.to(dtype)
    if cast is not values and not bool(cast.isfinite().all()):
        raise ValueError(
            f"{name} must fit {dtype}, of at most {torch.finfo(dtype).max:.2g}, got values up to "
            f"{float(values.abs().max()):.3g}; scale it, or use float64 for x and in TrainConfig."
        )
    return cast


def _n_outputs(y_obs: Tensor, n_classes: int | None) -> int:
    if y_obs.ndim == 2:
        if n_classes is not None:
            raise ValueError("n_classes goes with integer y; floating y means regression.")
        return y_obs.shape[1]
    seen = int(y_obs.max()) + 1
    if n_classes is None and seen > MAX_CLASSES:
        raise ValueError(
            f"class numbers must be 0, 1, 2, ..., got {seen - 1}; renumber the classes, or pass "
            f"n_classes={seen} if there are so many."
        )
    classes = max(seen, 2) if n_classes is None else require_count("n_classes", n_classes)
    if classes < max(seen, 2):
        raise ValueError(
            f"n_classes must be at least {max(seen, 2)} to hold every label, got {n_classes}."
        )
    return classes


def lazy_pool(pool: Any) -> Pool | None:
    """A pool, a Dataset, a memory-mapped array or a sampler as a `Pool`; None for plain rows."""
    if isinstance(pool, Pool):
        return pool
    if isinstance(pool, Dataset):
        return DatasetPool(pool)  # type: ignore[arg-type]
    if isinstance(pool, np.memmap):
        return DiskPool(pool)
    return SamplerPool(pool) if callable(pool) else None


def _as_pool(pool: Any, x_obs: Tensor) -> Pool:
    """`pool` as a `Pool`, if its rows have the shape of x; two of them are drawn to see that."""
    made = lazy_pool(pool)
    if made is None:
        made = TensorPool(as_floating(as_tensor(pool, "pool").detach()))
    rows = made.draw(2, as_generator(0))
    if rows.shape[1:] != x_obs.shape[1:]:
        raise ValueError(
            "pool rows must have the shape of x rows, got pool rows of shape "
            f"{tuple(rows.shape[1:])} and x rows of shape {tuple(x_obs.shape[1:])}; "
            "give both the same features in the same order."
        )
    return made
