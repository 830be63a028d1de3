"""Files whose rows are read by index: `.npy` by position, Parquet by row groups.

Nothing that was read stays in memory, not even pages of a user's memory-mapped array: what a
process holds does not grow with the file.
"""

import mmap
import os
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
    """Rows by index; `group_ends` says where each row group ends, if rows are read by groups."""

    group_ends: Int[Tensor, "g"] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, indices: NDArray[np.int64]) -> Array:
        """The rows with these indices, which are sorted and may repeat."""

    def chunks(self, max_rows: int) -> Iterator[Array]:
        """All rows in their order, at most `max_rows` at a time."""
        for first in range(0, len(self), max_rows):
            yield self.read(np.arange(first, min(first + max_rows, len(self))))


class MappedRows(Rows):
    """A memory-mapped array; the system drops its pages once they are read."""

    def __init__(self, array: np.memmap[Any, Any]) -> None:
        _check_array(array, "a memory-mapped array")
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def read(self, indices: NDArray[np.int64]) -> Array:
        rows = _native(np.array(self.array[indices]))
        self._drop_pages()
        return rows

    def _drop_pages(self) -> None:
        """Not those of a private copy, whose changes are not in the file."""
        pages: Any = self.array
        while isinstance(pages, np.ndarray):
            pages = pages.base
        if self.array.mode in ("r", "r+", "w+") and hasattr(pages, "madvise"):
            pages.madvise(mmap.MADV_DONTNEED)


class FileRows(Rows):
    """Rows of a file that must not change while the pool is in use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = self._version()

    def _version(self) -> tuple[int, int]:
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns

    def _check_unchanged(self) -> None:
        if self._version() != self.version:
            raise ValueError(
                f"{self.path} must stay as it is while it is read, it was written anew; make "
                "another pool of it."
            )


class NpyRows(FileRows):
    """A `.npy` file; one read takes a run of neighbouring rows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with _complete(path, ".npy"):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        _check_array(array, str(path))
        if not array.flags.c_contiguous:
            raise ValueError(
                f"{path} must hold one row after the other, got an array in Fortran order; save "
                "np.ascontiguousarray(array)."
            )
        self.shape, self.dtype, self.offset = array.shape, array.dtype, array.offset
        self.stride = array.strides[0]

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, indices: NDArray[np.int64]) -> Array:
        self._check_unchanged()
        rows = np.empty((len(indices), *self.shape[1:]), self.dtype)
        buffer = rows.reshape(len(rows), -1).view(np.uint8).data.cast("B")
        with open(self.path, "rb", buffering=0) as file:
            for first, last in _runs(indices):
                file.seek(self.offset + int(indices[first]) * self.stride)
                self._fill(buffer[first * self.stride : last * self.stride], file)
        return _native(rows)

    def _fill(self, buffer: memoryview, file: Any) -> None:
        """Read until the buffer is full: the system may give fewer bytes at a time."""
        while len(buffer):
            count = file.readinto(buffer)
            if not count:
                raise ValueError(f"{self.path} must stay complete while it is read, it ends early.")
            buffer = buffer[count:]


class ParquetRows(FileRows):
    """Numeric columns of a Parquet file; only the requested rows of a row group stay in memory."""

    metadata: Any = None

    def __init__(self, path: Path, columns: list[str] | None) -> None:
        super().__init__(path)
        with self._opened() as file:
            self.metadata, schema = file.metadata, file.schema_arrow
        self.columns = _numeric_columns(schema, columns, path)
        dtypes = [schema.field(name).type.to_pandas_dtype() for name in self.columns]
        self.dtype = np.result_type(np.float32, *dtypes)
        counts = [self.metadata.row_group(i).num_rows for i in range(self.metadata.num_row_groups)]
        if min(counts, default=0) < 0 or sum(counts) != self.metadata.num_rows:
            raise _damaged(path, "Parquet")
        self.group_ends = torch.tensor([count for count in counts if count]).cumsum(0)
        self.group_numbers = [i for i, count in enumerate(counts) if count]

    def __len__(self) -> int:
        return self.metadata.num_rows

    def read(self, indices: NDArray[np.int64]) -> Array:
        assert self.group_ends is not None
        ends = self.group_ends.numpy()
        rows = np.empty((len(indices), len(self.columns)), self.dtype)
        groups = np.searchsorted(ends, indices, side="right")
        with self._opened() as file:
            for group in np.unique(groups):
                first, last = np.searchsorted(groups, [group, group + 1])
                start = ends[group - 1] if group else 0
                self._fill(file, int(group), indices[first:last] - start, rows[first:last])
        return rows

    def chunks(self, max_rows: int) -> Iterator[Array]:
        with self._opened() as file:
            for chunk in file.iter_batches(max_rows, use_threads=False, columns=self.columns):
                columns = [self._values(chunk, name) for name in self.columns]
                yield np.stack(columns, axis=1).astype(self.dtype, copy=False)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        parquet_file = _parquet_file()
        self._check_unchanged()
        with (
            _complete(self.path, "Parquet"),
            parquet_file(self.path, metadata=self.metadata) as file,
        ):
            yield file

    def _fill(self, file: Any, group: int, wanted: Array, rows: Array) -> None:
        """Read the `wanted` rows of one group, chunk by chunk."""
        seen, options = 0, {"row_groups": [self.group_numbers[group]], "columns": self.columns}
        for chunk in file.iter_batches(CHUNK_ROWS, use_threads=False, **options):
            first, last = np.searchsorted(wanted, [seen, seen + len(chunk)])
            if first < last:
                for column, name in enumerate(self.columns):
                    values = self._values(chunk, name)
                    rows[first:last, column] = values[wanted[first:last] - seen]
            seen += len(chunk)
        if seen <= wanted[-1]:
            raise _damaged(self.path, "Parquet")

    def _values(self, chunk: Any, name: str) -> Array:
        """One column as numbers, with NaN for missing values."""
        return chunk.column(name).to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)


def open_rows(source: Source, columns: list[str] | None) -> Rows:
    """The reader for a file, by its suffix, or for a memory-mapped array."""
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
    """Turn whatever a parser raises over a damaged file into one error that is safe to follow."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # from the system, not from the parser
        raise _damaged(path, kind) from error


def _damaged(path: Path, kind: str) -> ValueError:
    return ValueError(
        f"{path} must be a complete {kind} file, and cannot be read as one; write it anew."
    )


def _check_array(array: Any, name: str) -> None:
    is_map = isinstance(array, np.memmap) and array.ndim >= 2 and array.dtype.kind in "fiub"
    if not is_map or 0 in array.shape[1:]:
        found = f"shape {getattr(array, 'shape', None)}, dtype {getattr(array, 'dtype', None)}"
        raise ValueError(
            f"{name} must hold rows of numbers, shape (n, d) or (n, ...), at least one, got "
            f"{found}."
        )


def _native(rows: Array) -> Array:
    """Numbers in the byte order of this machine and in a dtype of torch; integers as float64."""
    if rows.dtype.kind in "iu" and rows.dtype.itemsize > 1:
        return rows.astype(np.float64)
    return rows.astype(rows.dtype.newbyteorder("="), copy=False)


def _runs(indices: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Where runs of consecutive indices begin and end."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    return pairwise([0, *breaks.tolist(), len(indices)])


def _numeric_columns(schema: Any, columns: list[str] | None, path: Path) -> list[str]:
    """The names in `columns` (None: all), each of which must be a column of numbers, once."""
    from pyarrow import types

    names = list(schema.names) if columns is None else list(columns)
    is_number = (types.is_floating, types.is_integer, types.is_boolean)
    for name in names:
        found = [schema.field(i).type for i in schema.get_all_field_indices(name)]
        if len(found) != 1 or not any(is_kind(found[0]) for is_kind in is_number):
            problem = f"of {found[0]}" if len(found) == 1 else f"there {len(found)} times"
            raise ValueError(
                f"the pool's columns must be numbers, each there once, {name!r} of {path} is "
                f"{problem}; name those to read: columns=[...]."
            )
    if not names:
        raise ValueError(f"the pool must have at least one column, got none of {path}.")
    return names


def _parquet_file() -> Any:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(
            "a pool in a Parquet file needs pyarrow; pip install 'gpn[parquet]', or save the rows "
            "as a .npy file."
        ) from error
    return ParquetFile
