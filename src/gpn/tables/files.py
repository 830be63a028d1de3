"""Tables in files: CSV and Parquet, read whole or in chunks, written completely or not at all."""

import gzip
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from gpn.columns.column_types import TableError, are_codes, is_numeric
from gpn.columns.encoder import TableEncoder, UnseenWarning, check_names, merge_unseen
from gpn.columns.number_texts import parse_number
from gpn.core.files import replacing, temporary_file
from gpn.core.warnings import warn_caller
from gpn.data.safe_read import max_decompressed_bytes
from gpn.tables.reading import Reading, ReadingWarning

CHUNK_ROWS = 20_000
CSV_SUFFIXES, PARQUET_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".gz"), (".parquet", ".pq")
SNIFFED_BYTES = 64 << 20  # of a file, by which its encoding is found

TOO_MANY_CELLS = re.compile(
    r"Expected (?P<names>\d+) fields in line (?P<line>\d+), saw (?P<cells>\d+)"
)

OnRows = Callable[[int], object]  # called with the number of rows so far


def read_table(
    path: Path, texts: Collection[str] | None = None, reading: Reading | None = None
) -> pd.DataFrame:
    """The whole table; it must have rows.

    The columns `texts` of a CSV stay texts, and pandas infers the others. None infers all of them
    from the whole column: numbers if every cell is one, unless they are codes such as "01".
    """
    chunks = list(read_chunks(path, texts, whole=True, reading=reading))
    table = pd.concat(chunks, ignore_index=True)
    if texts is not None or _is_parquet(path):
        return table
    decimal = "." if reading is None else reading.decimal
    return pd.DataFrame({name: _inferred(table[name], decimal) for name in table.columns})


def _inferred(column: pd.Series, decimal: str) -> pd.Series:
    """Texts as numbers, if all of them are: neither codes, nor integers beyond 64 bits."""
    known = column.dropna()
    if known.empty:
        return column
    if decimal == "," and _has_thousands(known):
        return column
    try:
        with_points = known.str.replace(",", ".") if decimal == "," else known
        numbers = pd.to_numeric(with_points)
    except ValueError:
        return column
    is_code = is_numeric(numbers) and (numbers % 1 == 0).all() and are_codes(set(known), len(known))
    return column if is_code or not is_numeric(numbers) else numbers.reindex(column.index)


def _has_thousands(known: pd.Series) -> bool:
    """Whether points separate thousands where the decimal mark is a comma: "1.200" is 1200."""
    pointed = [cell for cell in known.tolist() if "." in cell]
    return bool(pointed) and all(parse_number(cell, ",") is not None for cell in pointed)


def text_columns(table: pd.DataFrame) -> list[str]:
    """The columns that do not hold numbers, which another file of the same kind holds as texts."""
    return [name for name in table.columns if not is_numeric(table[name])]


def read_chunks(
    path: Path,
    texts: Collection[str] | None = (),
    chunk_rows: int | None = None,
    *,
    whole: bool = False,
    reading: Reading | None = None,
) -> Iterator[pd.DataFrame]:
    """The table in chunks, so that memory does not grow with its length.

    The columns `texts` of a CSV stay texts, None means all: "01" is not 1, whatever else a chunk
    holds. `whole` says that the chunks will be put together: all of them must then fit in memory.
    """
    kind = "Parquet" if _is_parquet(path) else "CSV"
    if not path.is_file():
        raise TableError(f"there is no table {path}; correct its name or its folder.")
    count = 0
    try:
        size = chunk_rows or CHUNK_ROWS
        if kind == "Parquet":
            chunks = _read_parquet(path, size, whole=whole)
        else:
            chunks = _read_csv(path, texts, size, reading or Reading(), whole=whole)
        for chunk in chunks:
            check_names(chunk.columns)
            count += len(chunk)
            yield chunk
    except TableError:
        raise
    except pd.errors.EmptyDataError:
        count = 0
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} must be a complete CSV file in one encoding, got {error}; say which, such as "
            "--encoding latin-1."
        ) from error
    except Exception as error:  # parsers of damaged files raise anything at all
        if (found := TOO_MANY_CELLS.search(str(error))) is not None:
            raise TableError(
                f"every row of {path} must have the {found['names']} cells of its first line, got "
                f"{found['cells']} in line {found['line']}; correct that line, put quotes around "
                "cells that hold a separator, or say --sep."
            ) from error
        raise TableError(
            f"{path} must be a complete {kind} file, got {str(error).strip():.500} "
            f"({type(error).__name__})."
        ) from error
    if count == 0:
        raise TableError(f"a table must have at least one row, {path} has none.")


def _read_csv(
    path: Path, texts: Collection[str] | None, chunk_rows: int, reading: Reading, *, whole: bool
) -> Iterator[pd.DataFrame]:
    reading = reading.resolved(path, _start_of(path))
    options: dict[str, Any] = {"sep": reading.sep, "encoding": reading.encoding}
    _check_header(path, options)
    dtype: Any = "str" if texts is None else dict.fromkeys(texts, "str")
    options |= {"decimal": reading.decimal, "dtype": dtype, "low_memory": False}
    with _opened(path) as file:
        for chunk in pd.read_csv(file, chunksize=chunk_rows, **options):
            yield chunk
            if isinstance(file, _BoundedGzip) and not whole:
                file.left = file.limit


def _start_of(path: Path) -> bytes:
    """As much of a file as its encoding is found by; of a packed one, less."""
    with _opened(path) as file:
        return bytes(file.read(SNIFFED_BYTES if path.suffix != ".gz" else 1 << 16))


def _check_header(path: Path, options: dict[str, Any]) -> None:
    """Raise unless names differ, and cells have names.

    pandas would silently rename the second column of a name, and take a first column without a name
    for an index.
    """
    try:
        with _opened(path) as file:
            rows = pd.read_csv(
                file, header=None, nrows=2, dtype="str", keep_default_na=False, **options
            )
    except pd.errors.ParserError as error:
        raise TableError(
            f"every row of {path} must have as many cells as there are names, got "
            f"{str(error).strip():.200}; name every column, separate cells by commas, or say --sep."
        ) from error
    check_names(pd.Index([name for name in rows.iloc[0] if name]))


def _opened(path: Path) -> Any:
    return _BoundedGzip(path) if path.suffix == ".gz" else path.open("rb")


class _BoundedGzip(gzip.GzipFile):
    """A gzip stream that refuses a decompression bomb: it counts the bytes that it gives."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self.path = path
        self.left = self.limit = max_decompressed_bytes(path)

    def read1(self, size: int = -1) -> bytes:
        return self._counted(super().read1(size))

    def read(self, size: int | None = -1) -> bytes:
        return self._counted(super().read(size))

    def _counted(self, content: bytes) -> bytes:
        self.left -= len(content)
        if self.left < 0:
            raise _too_large(self.path, self.limit)
        return content


def _too_large(path: Path, limit: int) -> TableError:
    return TableError(
        f"{path} must decompress to at most {limit} bytes at a time, got more; if that is right, "
        "decompress it to a plain .csv first."
    )


def _read_parquet(path: Path, chunk_rows: int, *, whole: bool) -> Iterator[pd.DataFrame]:
    """Parquet knows the types of its columns, and has one encoding."""
    with pq.ParquetFile(path) as file:
        claimed, limit = file.metadata, max_decompressed_bytes(path)
        groups = [claimed.row_group(i).total_byte_size for i in range(claimed.num_row_groups)]
        total = 8 * claimed.num_rows * claimed.num_columns if whole else 0
        if max(total, *groups, 0) > limit:
            raise _too_large(path, limit)
        for batch in file.iter_batches(batch_size=chunk_rows):
            batch.validate(full=True)
            yield batch.to_pandas()


def sample_rows(
    path: Path,
    texts: Collection[str],
    max_rows: int,
    on_rows: OnRows,
    reading: Reading | None = None,
) -> tuple[pd.DataFrame, int]:
    """At most `max_rows` of the table, all subsets equally likely, in their order; and its length.

    Every row draws a random key, and the rows with the lowest keys stay: memory holds at most one
    chunk more than twice `max_rows`.
    """
    rng, count = np.random.default_rng(0), 0
    sampled: list[pd.DataFrame] = []
    for chunk in read_chunks(path, texts, reading=reading):
        sampled.append(chunk.set_index(rng.random(len(chunk))))
        if sum(map(len, sampled)) > 2 * max_rows:
            sampled = [_with_lowest_keys(pd.concat(sampled), max_rows)]
        count += len(chunk)
        on_rows(count)
    return _with_lowest_keys(pd.concat(sampled), max_rows).reset_index(drop=True), count


def _with_lowest_keys(table: pd.DataFrame, max_rows: int) -> pd.DataFrame:
    """The rows with the lowest keys, which are the index, in their order."""
    return table[table.index.to_series().rank(method="first") <= max_rows]


def map_table(
    source: Path,
    out: Path,
    function: Callable[[pd.DataFrame], pd.DataFrame],
    encoder: TableEncoder,
    *,
    append: bool,
    on_rows: OnRows,
    reading: Reading | None = None,
) -> int:
    """Write `function` of every chunk of `source` to `out`, and return the number of rows.

    `append` writes the columns of `source` first. Categories that `encoder` has not seen are
    warned of at the end, once per column.
    """
    count = 0
    with warnings.catch_warnings(record=True) as caught, table_writer(out) as write:
        warnings.simplefilter("always")
        texts = _texts_between(source, out, encoder, reading)
        for chunk in read_chunks(source, texts, reading=reading):
            rows = chunk.set_axis(pd.RangeIndex(count, count + len(chunk)))
            result = function(rows)
            if append:
                result = pd.concat([rows, _renamed(rows, result)], axis=1)
            write(result)
            count += len(chunk)
            on_rows(count)
    unseen = [entry.message for entry in caught if isinstance(entry.message, UnseenWarning)]
    others = {str(entry.message): entry for entry in caught if entry.message not in unseen}
    for entry in others.values():  # each once, not for every chunk
        warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
    for warning in merge_unseen(unseen, count):
        warnings.warn(warning, stacklevel=2)
    return count


def _texts_between(
    source: Path, out: Path, encoder: TableEncoder, reading: Reading | None
) -> Collection[str]:
    """The columns to read as texts: from CSV to CSV all that the model does not read as numbers.

    What the model does not read comes out as it went in.
    """
    if _is_parquet(source) or _is_parquet(out):
        return encoder.texts
    names = next(read_chunks(source, chunk_rows=1, reading=reading)).columns
    return [name for name in names if name not in encoder.medians or name in encoder.texts]


def _renamed(table: pd.DataFrame, result: pd.DataFrame) -> pd.DataFrame:
    """The result, with another name for a column that the table has already: it warns."""
    names = {name: f"gpn_{name}" for name in result.columns if name in table.columns}
    taken = [name for name in names.values() if name in table.columns]
    if taken:
        raise TableError(
            f"the table must not have a column that is to be written, got {taken[0]!r}; rename it."
        )
    for name, new in names.items():
        warn_caller(
            f"the table has a column {name!r} already; what is predicted is {new!r}.",
            ReadingWarning,
        )
    return result.rename(columns=names)


@contextmanager
def table_writer(path: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """A function that writes the next chunk; the table appears at `path` once it is complete."""
    make = _ParquetWriter if _is_parquet(path) else _CsvWriter
    check_writable(path)
    with replacing(path) as name, closing(make(name, path.suffix)) as writer:
        yield writer.write


def check_writable(path: Path) -> None:
    """Raise where no file can be written to `path`: better before the work than after it."""
    if path.is_dir():
        raise TableError(f"--out must be a file, got the folder {path}; name a file in it.")
    try:
        os.unlink(temporary_file(path))
    except OSError as error:
        raise TableError(
            f"the folder of {path} must exist and be writable, got {error.strerror}; "
            "choose another --out."
        ) from error


class _CsvWriter:
    def __init__(self, name: str, suffix: str) -> None:
        opened: Any = gzip.open if suffix == ".gz" else open
        self.file = opened(name, "wt", encoding="utf-8", newline="")
        self.is_first = True

    def write(self, chunk: pd.DataFrame) -> None:
        chunk.to_csv(self.file, header=self.is_first, index=False)
        self.is_first = False

    def close(self) -> None:
        self.file.close()


class _ParquetWriter:
    def __init__(self, name: str, suffix: str) -> None:
        self.name, self.n_rows = name, 0
        self.file: Any = None

    def write(self, chunk: pd.DataFrame) -> None:
        try:
            table = pa.Table.from_pandas(chunk, preserve_index=False)
        except pa.ArrowException as error:
            raise TableError(
                f"a column must hold values of one type to be written to a Parquet file, got "
                f"{error!s:.300}; write a .csv."
            ) from error
        if self.file is None:
            self.file = pq.ParquetWriter(self.name, table.schema)
        columns = [self._cast(table[field.name], field) for field in self.file.schema]
        self.file.write_table(pa.Table.from_arrays(columns, schema=self.file.schema))
        self.n_rows += len(chunk)

    def _cast(self, column: Any, field: Any) -> Any:
        """The column in the type that it had in the first chunk."""
        try:
            return column.cast(field.type)
        except pa.ArrowException as error:
            raise TableError(
                f"a column must keep its type in a Parquet file, {field.name!r} was {field.type} "
                f"and is {column.type} from row {self.n_rows} on ({error}); correct the column, or "
                "write a .csv."
            ) from error

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _is_parquet(path: Path) -> bool:
    """Whether the name is one of a Parquet file; raise unless it is one of a table at all."""
    if path.name.endswith(CSV_SUFFIXES):
        return False
    if path.suffix in PARQUET_SUFFIXES:
        return True
    suffixes = ", ".join((*CSV_SUFFIXES[:2], *PARQUET_SUFFIXES))
    raise TableError(f"a table's name must end in {suffixes}, got {path.name!r}.")
