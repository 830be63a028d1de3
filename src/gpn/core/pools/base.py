"""Sources of unlabeled inputs x' ~ P_sample: rows in memory, and samplers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpn.core.checks import require_finite
from gpn.core.pools.prefetch import DirectRows, RowStream
from gpn.core.types import Inputs, as_floating

Sampler = Callable[[int, torch.Generator], Tensor]
Transform = Callable[[Tensor], Tensor]

MAX_SAMPLED_ROWS = 100_000
MAX_SAMPLED_NUMBERS = 50_000_000


class Pool(ABC):
    """A source of unlabeled inputs."""

    @abstractmethod
    def draw(self, m: int, rng: torch.Generator) -> Inputs:
        """`m` inputs from P_sample, on the device of `rng`."""

    def sample(self, max_rows: int, rng: torch.Generator) -> Inputs:
        """At most `max_rows` inputs that represent the pool; of fewer rows, all of them once."""
        return self.draw(max_rows, rng)

    def draws(self, m: int, seeds: torch.Generator) -> RowStream:
        """A stream of `m` rows per training step."""
        return DirectRows(lambda rng: self.draw(m, rng))

    def mapped(self, transform: Transform) -> "Pool":
        """The pool with every draw transformed."""
        return _Mapped(self, transform)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Pool":
        """The pool with rows of `dtype`; rows in memory move to `device`."""
        return self.mapped(lambda rows: rows.to(dtype))


class TensorPool(Pool):
    """Rows in memory; each draw takes `m` of them, with replacement."""

    def __init__(self, rows: Inputs) -> None:
        if rows.ndim < 2:
            raise ValueError(
                "the pool must be rows of inputs, shape (n, d) or (n, ...), got "
                f"{tuple(rows.shape)}; for one feature try pool.reshape(-1, 1)."
            )
        if len(rows) == 0:
            raise ValueError(
                "the pool must hold at least one row, got 0; "
                "pass unlabeled inputs, or gpn.box(low, high) to generate some."
            )
        require_finite(rows, "the pool")
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def draw(self, m: int, rng: torch.Generator) -> Inputs:
        indices = torch.randint(len(self.rows), (m,), generator=rng, device=rng.device)
        return self.rows[indices.to(self.rows.device)].to(rng.device)

    def sample(self, max_rows: int, rng: torch.Generator) -> Inputs:
        return self.rows[distinct(len(self), max_rows, rng).to(self.rows.device)].to(rng.device)

    def mapped(self, transform: Transform) -> "TensorPool":
        return TensorPool(transform(self.rows))

    def to(self, device: torch.device, dtype: torch.dtype) -> "TensorPool":
        return TensorPool(self.rows.to(device, dtype))


class SamplerPool(Pool):
    """A function `(m, rng) → rows` that generates inputs."""

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
            found = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            raise ValueError(
                f"a pool sampler must return a tensor of {m} rows, shape ({m}, ...), got {found}."
            )
        return as_floating(rows).to(rng.device)


class _Mapped(Pool):
    """Another pool with its draws transformed."""

    def __init__(self, pool: Pool, transform: Transform) -> None:
        self.pool = pool
        self.transform = transform

    def draw(self, m: int, rng: torch.Generator) -> Inputs:
        return self.transform(self.pool.draw(m, rng)).to(rng.device)

    def sample(self, max_rows: int, rng: torch.Generator) -> Inputs:
        return self.transform(self.pool.sample(max_rows, rng)).to(rng.device)


def max_sampled_rows(row_size: int) -> int:
    """The size of a pool's sample: 100,000 rows, or as many as hold 50 million numbers."""
    return min(MAX_SAMPLED_ROWS, max(1, MAX_SAMPLED_NUMBERS // row_size))


def distinct(n: int, count: int, rng: torch.Generator) -> Int[Tensor, "m"]:
    """`count` distinct numbers below `n` (all `n` if there are no more) in random order.

    Where `n` is large, twice as many are drawn and duplicates are dropped: all sets are equally
    likely, and memory does not grow with `n`.
    """
    if n <= max(4 * count, 10_000):
        return torch.randperm(n, generator=rng, device=rng.device)[:count]
    found = torch.randint(n, (2 * count,), generator=rng, device=rng.device).unique()
    return found[torch.randperm(len(found), generator=rng, device=rng.device)[:count]]


def box(low: Sequence[float], high: Sequence[float]) -> SamplerPool:
    """The uniform distribution on a box: x'_i ~ U[low_i, high_i], independently."""
    lower, upper = _corner(low), _corner(high)
    if (
        lower.shape != upper.shape
        or lower.ndim != 1
        or not bool((lower < upper).all() & (upper - lower).isfinite().all())
    ):
        raise ValueError(
            "a box must be finite and have low < high in every dimension, "
            f"got low={low!r:.200} and high={high!r:.200}."
        )

    def uniform(m: int, rng: torch.Generator) -> Float[Tensor, "m d"]:
        unit = torch.rand(m, len(lower), generator=rng, device=rng.device)
        return lower.to(rng.device) + (upper - lower).to(rng.device) * unit

    return SamplerPool(uniform)


def _corner(values: Sequence[float]) -> Tensor:
    """A corner of a box; NaN where `values` are no numbers."""
    try:
        return as_floating(torch.as_tensor(values))
    except (TypeError, ValueError, RuntimeError):
        return torch.tensor(torch.nan)
