"""Files of rows that are read by number: `.npy` by position, Parquet by row groups.

Nothing is kept, pages of a user's own memory-mapped array included, so that what a process holds
does not grow with the file.
"""

import mmap
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]

Source = str | os.PathLike[str] | np.memmap[Any, Any]

CHUNK_ROWS = 8192


class Rows(ABC):
    """Rows by number; `groups` says where each group of rows ends, if they are read by groups."""

    groups: Int[Tensor, "g"] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, numbers: NDArray[np.int64]) -> Array:
        """The rows of these numbers, which are in order and may come twice."""

    def pieces(self, most: int) -> Iterator[Array]:
        """All rows, at most so many at once."""
        for first in range(0, len(self), most):
            yield self.read(np.arange(first, min(first + most, len(self))))


class MappedRows(Rows):
    """A memory-mapped array: the system reads its pages, and is told when they have been used."""

    def __init__(self, array: np.memmap[Any, Any]) -> None:
        self.array = _checked(array, "a memory-mapped array")

    def __len__(self) -> int:
        return len(self.array)

    def read(self, numbers: NDArray[np.int64]) -> Array:
        rows = _native(np.array(self.array[numbers]))
        self._let_go()
        return rows

    def _let_go(self) -> None:
        """Pages that are in the file as they are here: any but a private copy's."""
        pages: Any = self.array
        while isinstance(pages, np.ndarray):
            pages = pages.base
        if self.array.mode in ("r", "r+", "w+") and hasattr(pages, "madvise"):
            pages.madvise(mmap.MADV_DONTNEED)


class NpyRows(Rows):
    """A `.npy` file; neighbouring rows are read at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _complete(path, ".npy"):
            header = np.load(path, mmap_mode="r", allow_pickle=False)
        array = _checked(header, str(path))
        if not array.flags.c_contiguous:
            raise ValueError(
                f"{path} must hold one row after the other, got an array in Fortran order; save "
                "np.ascontiguousarray(array)."
            )
        self.shape, self.dtype, self.offset = array.shape, array.dtype, array.offset
        self.stride = array.strides[0]
        self._open()

    def _open(self) -> None:
        self.file = os.open(self.path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.file)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "file"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy, here or in another process, opens the file for itself."""
        vars(self).update(state)
        self._open()

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, numbers: NDArray[np.int64]) -> Array:
        rows = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        bytes_of = rows.reshape(len(rows), -1).view(np.uint8).data.cast("B")
        for first, last in _runs(numbers):
            part = bytes_of[first * self.stride : last * self.stride]
            place = self.offset + int(numbers[first]) * self.stride
            self._fill(part, place)
        return _native(rows)

    def _fill(self, part: memoryview, place: int) -> None:
        """The bytes at that place; the system may give fewer than were asked for, but not none."""
        while len(part):
            count = os.preadv(self.file, [part], place)
            if count == 0:
                raise ValueError(
                    f"{self.path} must stay complete while it is read, it ends at byte {place}."
                )
            part, place = part[count:], place + count


class ParquetRows(Rows):
    """Numeric columns of a Parquet file; of a row group only the rows that are asked for stay."""

    metadata: Any = None

    def __init__(self, path: Path, columns: list[str] | None) -> None:
        self.path = path
        self.written = self._written()
        with self._opened() as file:
            self.metadata, schema = file.metadata, file.schema_arrow
        self.columns = _numeric(schema, columns, path)
        kinds = [schema.field(name).type.to_pandas_dtype() for name in self.columns]
        self.dtype = np.result_type(np.float32, *kinds)
        counts = [self.metadata.row_group(i).num_rows for i in range(self.metadata.num_row_groups)]
        self.groups = torch.tensor([count for count in counts if count]).cumsum(0)
        self.numbers = [i for i, count in enumerate(counts) if count]

    def __len__(self) -> int:
        return self.metadata.num_rows

    def read(self, numbers: NDArray[np.int64]) -> Array:
        assert self.groups is not None
        rows, ends = np.empty((len(numbers), len(self.columns)), self.dtype), self.groups.numpy()
        own = np.searchsorted(ends, numbers, side="right")
        with self._opened() as file:
            for group in np.unique(own):
                first, last = np.searchsorted(own, [group, group + 1])
                start = ends[group - 1] if group else 0
                self._fill(file, int(group), numbers[first:last] - start, rows[first:last])
        return rows

    def pieces(self, most: int) -> Iterator[Array]:
        with self._opened() as file:
            for piece in file.iter_batches(most, use_threads=False, columns=self.columns):
                columns = [self._values(piece, name) for name in self.columns]
                yield np.stack(columns, axis=1).astype(self.dtype, copy=False)

    def _written(self) -> tuple[int, int]:
        found = self.path.stat()
        return found.st_size, found.st_mtime_ns

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        make = _parquet()
        if self._written() != self.written:
            raise ValueError(
                f"{self.path} must stay as it is while it is read, it was written anew; make "
                "another pool of it."
            )
        with _complete(self.path, "Parquet"), make(self.path, metadata=self.metadata) as file:
            yield file

    def _fill(self, file: Any, group: int, wanted: Array, rows: Array) -> None:
        """The wanted rows of one group, piece by piece."""
        seen, options = 0, {"row_groups": [self.numbers[group]], "columns": self.columns}
        for piece in file.iter_batches(CHUNK_ROWS, use_threads=False, **options):
            first, last = np.searchsorted(wanted, [seen, seen + len(piece)])
            if first < last:
                for column, name in enumerate(self.columns):
                    values = self._values(piece, name)
                    rows[first:last, column] = values[wanted[first:last] - seen]
            seen += len(piece)

    def _values(self, piece: Any, name: str) -> Array:
        """One column as numbers; what is missing is NaN."""
        return piece.column(name).to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)


def open_rows(source: Source, columns: list[str] | None) -> Rows:
    """The rows of a file or of a memory-mapped array, by the kind of it."""
    parquet = not isinstance(source, np.memmap) and Path(source).suffix in (".parquet", ".pq")
    if columns is not None and not parquet:
        raise ValueError(f"columns are for Parquet files, got {columns!r:.200} for an array.")
    if isinstance(source, np.memmap):
        return MappedRows(source)
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"a pool must be a file that exists, got {path}.")
    if parquet:
        return ParquetRows(path, columns)
    if path.suffix != ".npy":
        raise ValueError(
            f"a pool's file must end in .npy, .parquet or .pq, got {path.name!r}; save rows with "
            "numpy.save, or pass a torch Dataset that reads them."
        )
    return NpyRows(path)


@contextmanager
def _complete(path: Path, kind: str) -> Iterator[None]:
    """Parsers of damaged files raise anything at all, and some advise to run what is in them."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's word, not the parser's
        raise ValueError(
            f"{path} must be a complete {kind} file, and cannot be read as one; write it anew."
        ) from error


def _checked(array: Any, name: str) -> Any:
    if not isinstance(array, np.memmap) or array.ndim < 2 or array.dtype.kind not in "fiub":
        came = f"shape {getattr(array, 'shape', None)}, dtype {getattr(array, 'dtype', None)}"
        raise ValueError(
            f"{name} must hold rows of numbers, shape (n, d) or (n, ...), at least one, got {came}."
        )
    return array


def _native(rows: Array) -> Array:
    """In the computer's own byte order, and in numbers that torch has; long integers in full."""
    if rows.dtype.kind in "iu" and rows.dtype.itemsize > 1:
        return rows.astype(np.float64)
    return rows.astype(rows.dtype.newbyteorder("="), copy=False)


def _runs(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Where neighbouring rows begin and end."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    edges = [0, *breaks.tolist(), len(numbers)]
    return pairwise(edges)


def _numeric(schema: Any, columns: list[str] | None, path: Path) -> list[str]:
    """The columns asked for, which must be there, once, and of numbers."""
    from pyarrow import types

    names = list(schema.names) if columns is None else list(columns)
    numbers = (types.is_floating, types.is_integer, types.is_boolean)
    for name in names:
        fields = schema.get_all_field_indices(name)
        kinds = [schema.field(i).type for i in fields]
        if len(kinds) != 1 or not any(is_kind(kinds[0]) for is_kind in numbers):
            came = f"of {kinds[0]}" if len(kinds) == 1 else f"there {len(kinds)} times"
            raise ValueError(
                f"the pool's columns must be numbers, each there once, {name!r} of {path} is "
                f"{came}; name those to read: columns=[...]."
            )
    if not names:
        raise ValueError(f"the pool must have at least one column, got none of {path}.")
    return names


def _parquet() -> Any:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(
            "a pool in a Parquet file needs pyarrow; pip install 'gpn[parquet]', or save the rows "
            "as a .npy file."
        ) from error
    return ParquetFile
