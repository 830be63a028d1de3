"""Pools whose rows are read by index, when they are needed."""

import copy
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from gpn.core.checks import is_count, require_finite
from gpn.core.pools.base import Pool, Transform, distinct
from gpn.core.pools.prefetch import Indices, PrefetchedRows, RowStream
from gpn.core.types import Inputs, as_floating, as_generator

PREFETCH_WINDOWS = 4


@runtime_checkable
class MapDataset(Protocol):
    """A torch Dataset with a length and rows by index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> object: ...


class RowPool(Pool):
    """Rows that stay where they are and are read by index.

    A thread reads `prefetch` windows of training rows before the steps need them; a window holds
    the rows of `draws_per_window` steps.
    """

    draws_per_window = 1
    transforms: tuple[Transform, ...] = ()

    def __init__(self, prefetch: int = PREFETCH_WINDOWS, ahead: int | None = None) -> None:
        if ahead is not None:
            warnings.warn("ahead is now called prefetch.", DeprecationWarning, stacklevel=3)
            prefetch = ahead
        if not is_count(prefetch, least=0):
            raise ValueError(
                f"prefetch must be a whole number of reads, 0 for no thread, got {prefetch!r}."
            )
        self.prefetch = prefetch

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, indices: Indices) -> Tensor:
        """The rows with these indices, in their order."""

    def random_indices(self, count: int, rng: torch.Generator) -> Indices:
        """The indices of `count` random rows."""
        return torch.randint(len(self), (count,), generator=rng, device=rng.device).cpu()

    def draw(self, m: int, rng: torch.Generator) -> Inputs:
        return self._read(self.random_indices(m, rng)).to(rng.device)

    def sample(self, max_rows: int, rng: torch.Generator) -> Inputs:
        return self._read(distinct(len(self), max_rows, rng).cpu()).to(rng.device)

    def draws(self, m: int, seeds: torch.Generator) -> RowStream:
        return PrefetchedRows(
            self.random_indices,
            self._read,
            m,
            draws_per_window=self.draws_per_window,
            rng=as_generator(seeds),
            prefetch=self.prefetch,
        )

    def mapped(self, transform: Transform) -> "RowPool":
        changed = copy.copy(self)
        changed.transforms = (*self.transforms, transform)
        return changed

    def chunks(self, max_rows: int) -> Iterator[Inputs]:
        """All rows in their order, at most `max_rows` at a time."""
        start = 0
        for rows in self._raw_chunks(max_rows):
            yield self._transformed(rows, torch.arange(start, start + len(rows)))
            start += len(rows)

    def _raw_chunks(self, max_rows: int) -> Iterator[Tensor]:
        for first in range(0, len(self), max_rows):
            yield self.read(torch.arange(first, min(first + max_rows, len(self))))

    def _read(self, indices: Indices) -> Inputs:
        return self._transformed(self.read(indices), indices)

    def _transformed(self, rows: Tensor, indices: Indices) -> Inputs:
        rows = as_floating(rows)
        require_finite(rows, "the pool's rows", indices)
        for transform in self.transforms:
            rows = transform(rows)
        if self.transforms:
            require_finite(rows, "the pool's rows, as the fit takes them,", indices)
        return rows


class DatasetPool(RowPool):
    """A torch Dataset too large for memory; each draw reads `m` random rows of it.

    An item is an input, or a tuple whose first element is one (labels are not used). A thread
    reads the rows of training steps; `prefetch=0` reads without one, for a Dataset that is bound to
    its thread, or whose items are random and draw from torch's global generator.
    """

    def __init__(
        self,
        dataset: MapDataset,
        *,
        prefetch: int = PREFETCH_WINDOWS,
        ahead: int | None = None,
    ) -> None:
        super().__init__(prefetch, ahead)
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

    def read(self, indices: Indices) -> Tensor:
        return torch.stack([self._row(index) for index in indices.tolist()])

    def _row(self, index: int) -> Tensor:
        item = self.dataset[index]
        return torch.as_tensor(item[0] if isinstance(item, tuple | list) else item)
