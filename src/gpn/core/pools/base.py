"""Where unlabeled inputs come from: x' ~ P_sample, one verb `draw(m, rng)`."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.pools.prefetch import DirectRows, Numbers, PrefetchedRows, RowStream
from gpn.core.types import Inputs, as_generator

Sampler = Callable[[int, torch.Generator], Tensor]

Change = Callable[[Tensor], Tensor]

AHEAD = 4

MAX_SAMPLED_ROWS = 100_000

MAX_SAMPLED_NUMBERS = 50_000_000


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

    def sample(self, most: int, rng: torch.Generator) -> Inputs:
        """`most` inputs to stand for the pool; where it has fewer rows, all of them once."""
        return self.draw(most, rng)

    def draws(self, m: int, seeds: torch.Generator) -> RowStream:
        """The rows of one step after the other, `m` each."""
        return DirectRows(lambda rng: self.draw(m, rng))

    def mapped(self, change: Change) -> "Pool":
        """The pool with every draw changed."""
        return _Mapped(self, change)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Pool":
        """The pool with its rows on `device`, if it holds any."""
        return self.mapped(lambda rows: rows.to(dtype))


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

    def sample(self, most: int, rng: torch.Generator) -> Inputs:
        return self.rows[distinct(len(self), most, rng).to(self.rows.device)].to(rng.device)

    def mapped(self, change: Change) -> "TensorPool":
        return TensorPool(change(self.rows))

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


class RowPool(Pool):
    """Rows that stay where they are and are read by number, when they are needed.

    The rows of a training's steps are read by a thread, `ahead` windows before they are wanted.
    """

    per_window = 1
    changes: tuple[Change, ...] = ()

    def __init__(self, ahead: int) -> None:
        if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
            raise ValueError(
                f"ahead must be a whole number of reads, 0 for no thread, got {ahead!r}."
            )
        self.ahead = ahead

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, numbers: Numbers) -> Tensor:
        """The rows of these numbers, in their order."""

    def pick(self, count: int, rng: torch.Generator) -> Numbers:
        """The numbers of `count` random rows."""
        return torch.randint(len(self), (count,), generator=rng, device=rng.device).cpu()

    def draw(self, m: int, rng: torch.Generator) -> Inputs:
        return self._rows(self.pick(m, rng)).to(rng.device)

    def sample(self, most: int, rng: torch.Generator) -> Inputs:
        picked = distinct(len(self), most, rng).cpu()
        return self._rows(picked).to(rng.device)

    def draws(self, m: int, seeds: torch.Generator) -> RowStream:
        own = as_generator(seeds)
        return PrefetchedRows(self.pick, self._rows, m, self.per_window, own, self.ahead)

    def mapped(self, change: Change) -> "RowPool":
        changed = copy.copy(self)
        changed.changes = (*self.changes, change)
        return changed

    def pieces(self, most: int) -> Iterator[Inputs]:
        """All rows in their order, at most so many at once."""
        start = 0
        for rows in self._in_order(most):
            yield self._changed(rows, torch.arange(start, start + len(rows)))
            start += len(rows)

    def _in_order(self, most: int) -> Iterator[Tensor]:
        for first in range(0, len(self), most):
            yield self.read(torch.arange(first, min(first + most, len(self))))

    def _rows(self, numbers: Numbers) -> Inputs:
        return self._changed(self.read(numbers), numbers)

    def _changed(self, rows: Tensor, numbers: Numbers) -> Inputs:
        rows = floating(rows)
        check_finite(rows, "the pool's rows", numbers)
        for change in self.changes:
            rows = change(rows)
        if self.changes:
            check_finite(rows, "the pool's rows, as the fit takes them,", numbers)
        return rows


class DatasetPool(RowPool):
    """A torch Dataset too large for memory; each draw reads `m` random rows of it.

    An item is an input, or a tuple whose first element is one (a label beside it is not used).
    Steps read it in a thread; with `ahead=0` they do not, for a Dataset that may only be used where
    it was made, or whose items are random and draw from torch's own generator.
    """

    def __init__(self, dataset: MapDataset, *, ahead: int = AHEAD) -> None:
        super().__init__(ahead)
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

    def read(self, numbers: Numbers) -> Tensor:
        return torch.stack([self._row(index) for index in numbers.tolist()])

    def _row(self, index: int) -> Tensor:
        item = self.dataset[index]
        row = item[0] if isinstance(item, tuple | list) else item
        return torch.as_tensor(row)


class _Mapped(Pool):
    """Another pool with its draws changed."""

    def __init__(self, pool: Pool, change: Change) -> None:
        self.pool = pool
        self.change = change

    def draw(self, m: int, rng: torch.Generator) -> Inputs:
        return self.change(self.pool.draw(m, rng)).to(rng.device)

    def sample(self, most: int, rng: torch.Generator) -> Inputs:
        return self.change(self.pool.sample(most, rng)).to(rng.device)


def bounded_rows(row_size: int) -> int:
    """How many rows may stand for a pool: 100,000, or as many as hold 50 million numbers."""
    return min(MAX_SAMPLED_ROWS, max(1, MAX_SAMPLED_NUMBERS // row_size))


def distinct(n: int, most: int, rng: torch.Generator) -> Numbers:
    """`most` different numbers below `n` (all `n` if there are no more) in random order.

    Of many numbers, twice as many are drawn as are wanted, and those that came twice left out: all
    sets are equally likely, and memory does not grow with `n`.
    """
    if n <= max(4 * most, 10_000):
        return torch.randperm(n, generator=rng, device=rng.device)[:most]
    found = torch.randint(n, (2 * most,), generator=rng, device=rng.device).unique()
    return found[torch.randperm(len(found), generator=rng, device=rng.device)[:most]]


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


def check_finite(values: Tensor, name: str, numbers: Tensor | None = None) -> None:
    """Raise where a row is not finite; `numbers` are those that its owner knows rows by."""
    bad = ~torch.isfinite(values).flatten(1).all(1)
    if bool(bad.any()):
        place = int(bad.nonzero()[0])
        first = place if numbers is None else int(numbers[place])
        raise ValueError(
            f"{name} must be finite, got NaN or infinity in {int(bad.sum())} of {len(values)} "
            f"rows (first: row {first}); drop or impute them."
        )
