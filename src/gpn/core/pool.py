"""Where unlabeled inputs come from: x' ~ P_sample, one verb `draw(m, rng)`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.types import Inputs

Sampler = Callable[[int, torch.Generator], Tensor]


@runtime_checkable
class MapDataset(Protocol):
    """A torch Dataset with a length: rows are read one by one, when they are needed."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> object: ...


class Pool(ABC):
    """A source of unlabeled inputs."""

    @abstractmethod
    def draw(self, m: int, rng: torch.Generator) -> Inputs:
        """`m` inputs from P_sample, on the device of `rng`."""

    def to(self, device: torch.device, dtype: torch.dtype) -> "Pool":
        """The pool with its rows on `device`, if it holds any."""
        return _Cast(self, dtype)


class TensorPool(Pool):
    """Rows in memory; each draw takes `m` of them, with replacement."""

    def __init__(self, rows: Inputs) -> None:
        _check_rows(rows)
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def draw(self, m: int, rng: torch.Generator) -> Inputs:
        picked = torch.randint(len(self.rows), (m,), generator=rng, device=rng.device)
        return self.rows[picked.to(self.rows.device)].to(rng.device)

    def to(self, device: torch.device, dtype: torch.dtype) -> "TensorPool":
        return TensorPool(self.rows.to(device, dtype))


class SamplerPool(Pool):
    """A function `(m, rng) → rows`, for inputs that can be made up."""

    def __init__(self, sampler: Sampler) -> None:
        if not callable(sampler):
            raise TypeError(
                "a pool sampler must be a function (m, rng) → rows, got "
                f"{type(sampler).__name__}; rows themselves go into gpn.TensorPool."
            )
        self.sampler = sampler

    def draw(self, m: int, rng: torch.Generator) -> Inputs:
        rows = self.sampler(m, rng)
        if not isinstance(rows, Tensor) or rows.ndim < 2 or len(rows) != m:
            came = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            raise ValueError(
                f"a pool sampler must return a tensor of {m} rows, shape ({m}, ...), got {came}."
            )
        return floating(rows).to(rng.device)


class DatasetPool(Pool):
    """A torch Dataset too large for memory; each draw reads `m` random rows of it.

    An item is an input, or a tuple whose first element is one (a label beside it is not used).
    """

    def __init__(self, dataset: MapDataset) -> None:
        if not isinstance(dataset, MapDataset):
            raise TypeError(
                "a pool must be a Dataset with a length, whose rows can be asked for by number, "
                f"got {type(dataset).__name__}."
            )
        if len(dataset) == 0:
            raise ValueError("the pool must hold at least one row, got an empty dataset.")
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def draw(self, m: int, rng: torch.Generator) -> Inputs:
        picked = torch.randint(len(self.dataset), (m,), generator=rng, device=rng.device)
        rows = torch.stack([self._row(index) for index in picked.tolist()])
        return floating(rows).to(rng.device)

    def _row(self, index: int) -> Tensor:
        item = self.dataset[index]
        row = item[0] if isinstance(item, tuple | list) else item
        return torch.as_tensor(row)


class _Cast(Pool):
    """Another pool with its draws in one dtype."""

    def __init__(self, pool: Pool, dtype: torch.dtype) -> None:
        self.pool = pool
        self.dtype = dtype

    def draw(self, m: int, rng: torch.Generator) -> Inputs:
        return self.pool.draw(m, rng).to(self.dtype)


def box(low: Sequence[float], high: Sequence[float]) -> SamplerPool:
    """The uniform law on a box: x'_i ~ U[low_i, high_i], independently."""
    corner, far = _corner(low), _corner(high)
    if (
        corner.shape != far.shape
        or corner.ndim != 1
        or not bool((corner < far).all() & (far - corner).isfinite().all())
    ):
        raise ValueError(
            "a box must be finite and have low < high in every dimension, "
            f"got low={low!r:.200} and high={high!r:.200}."
        )

    def uniform(m: int, rng: torch.Generator) -> Float[Tensor, "m d"]:
        unit = torch.rand(m, len(corner), generator=rng, device=rng.device)
        return corner.to(rng.device) + (far - corner).to(rng.device) * unit

    return SamplerPool(uniform)


def _corner(values: Sequence[float]) -> Tensor:
    """A corner of a box; what holds no numbers is none."""
    try:
        return floating(torch.as_tensor(values))
    except (TypeError, ValueError, RuntimeError):
        return torch.tensor(torch.nan)


def _check_rows(rows: Tensor) -> None:
    if rows.ndim < 2:
        raise ValueError(
            f"the pool must be rows of inputs, shape (n, d) or (n, ...), got {tuple(rows.shape)}; "
            "for one feature try pool.reshape(-1, 1)."
        )
    if len(rows) == 0:
        raise ValueError(
            "the pool must hold at least one row, got 0; "
            "pass unlabeled inputs, or gpn.box(low, high) to make some up."
        )
    check_finite(rows, "the pool")


def floating(values: Tensor) -> Tensor:
    """Integers as numbers of the default dtype, those of 16 bits as float32, others as they are."""
    if not values.is_floating_point():
        return values.to(torch.get_default_dtype())
    return values.float() if values.dtype.itemsize < 4 else values


def check_finite(values: Tensor, name: str) -> None:
    bad = ~torch.isfinite(values).flatten(1).all(1)
    if bool(bad.any()):
        raise ValueError(
            f"{name} must be finite, got NaN or infinity in {int(bad.sum())} of {len(values)} "
            f"rows (first: row {int(bad.nonzero()[0])}); drop or impute them."
        )
