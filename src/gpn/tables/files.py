"""Tables in files: CSV and Parquet, read whole or in chunks, written completely or not at all."""

import gzip
import io
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
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
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
    if texts is not None or is_parquet(path):
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
    size = chunk_rows or CHUNK_ROWS
    if is_parquet(path):
        batches = _batches(path, size, whole=whole)
        chunks: Iterator[pd.DataFrame] = (batch.to_pandas() for batch in batches)
    else:
        chunks = _read_csv(path, texts, size, reading or Reading(), whole=whole)
    yield from _checked(path, chunks, lambda chunk: chunk.columns)


def read_batches(path: Path) -> Iterator[Any]:
    """The record batches of a Parquet file, with the checks of `read_chunks`."""
    batches = _batches(path, CHUNK_ROWS, whole=False)
    return _checked(path, batches, lambda batch: pd.Index(batch.schema.names))


def _checked(path: Path, chunks: Iterator[Any], names: Callable[[Any], pd.Index]) -> Iterator[Any]:
    """The chunks; there must be rows, and columns of different names."""
    if not path.is_file():
        raise TableError(f"there is no table {path}; correct its name or its folder.")
    count = 0
    with reading_errors(path):
        for chunk in chunks:
            check_names(names(chunk))
            count += len(chunk)
            yield chunk
    if count == 0:
        raise TableError(f"a table must have at least one row, {path} has none.")


@contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """What parsers of damaged files raise, which is anything at all, in one sentence."""
    kind = "Parquet" if is_parquet(path) else "CSV"
    try:
        yield
    except TableError:
        raise
    except pd.errors.EmptyDataError:
        return
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} must be a complete CSV file in one encoding, got {error}; say which, such as "
            "--encoding latin-1."
        ) from error
    except Exception as error:
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


def _read_csv(
    path: Path, texts: Collection[str] | None, chunk_rows: int, reading: Reading, *, whole: bool
) -> Iterator[pd.DataFrame]:
    _, options = csv_options(path, texts, reading)
    with opened(path) as file:
        for chunk in pd.read_csv(file, chunksize=chunk_rows, **options):
            yield chunk
            if isinstance(file, _BoundedGzip) and not whole:
                file.left = file.limit


def csv_options(
    path: Path, texts: Collection[str] | None, reading: Reading
) -> tuple[Reading, dict[str, Any]]:
    """How the file is written, and what pandas must be told of it; its first lines are checked."""
    reading = reading.resolved(path, _start_of(path))
    options: dict[str, Any] = {"sep": reading.sep, "encoding": reading.encoding}
    _check_header(path, options)
    dtype: Any = "str" if texts is None else dict.fromkeys(texts, "str")
    return reading, {**options, "decimal": reading.decimal, "dtype": dtype, "low_memory": False}


def _start_of(path: Path) -> bytes:
    """As much of a file as its encoding is found by; of a packed one, less."""
    with opened(path) as file:
        return bytes(file.read(SNIFFED_BYTES if path.suffix != ".gz" else 1 << 16))


def _check_header(path: Path, options: dict[str, Any]) -> None:
    """Raise unless names differ, and cells have names.

    pandas would silently rename the second column of a name, and take a first column without a name
    for an index.
    """
    try:
        with opened(path) as file:
            rows = pd.read_csv(
                file, header=None, nrows=2, dtype="str", keep_default_na=False, **options
            )
    except pd.errors.ParserError as error:
        raise TableError(
            f"every row of {path} must have as many cells as there are names, got "
            f"{str(error).strip():.200}; name every column, separate cells by commas, or say --sep."
        ) from error
    check_names(pd.Index([name for name in rows.iloc[0] if name]))


def opened(path: Path) -> Any:
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


def _batches(path: Path, chunk_rows: int, *, whole: bool) -> Iterator[Any]:
    """Parquet knows the types of its columns, and has one encoding."""
    with pq.ParquetFile(path) as file:
        claimed, limit = file.metadata, max_decompressed_bytes(path)
        groups = [claimed.row_group(i).total_byte_size for i in range(claimed.num_row_groups)]
        total = 8 * claimed.num_rows * claimed.num_columns if whole else 0
        if max(total, *groups, 0) > limit:
            raise _too_large(path, limit)
        for batch in file.iter_batches(batch_size=chunk_rows):
            batch.validate(full=True)
            yield batch


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
    with said_once() as rows_read, table_writer(out) as writer:
        texts = texts_between(source, out, encoder, reading)
        for chunk in read_chunks(source, texts, reading=reading):
            rows = chunk.set_axis(pd.RangeIndex(count, count + len(chunk)))
            result = function(rows)
            if append:
                result = pd.concat([rows, renamed(rows.columns, result)], axis=1)
            writer.write(result)
            count += len(chunk)
            rows_read(count)
            on_rows(count)
    return count


@contextmanager
def said_once() -> Iterator[OnRows]:
    """Warnings of all chunks at the end: each once, and one for all new values of a column.

    The result is told how many rows there were.
    """
    counts = [0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield counts.append
    unseen = [entry.message for entry in caught if isinstance(entry.message, UnseenWarning)]
    others = {str(entry.message): entry for entry in caught if entry.message not in unseen}
    for entry in others.values():
        warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
    for warning in merge_unseen(unseen, counts[-1]):
        warnings.warn(warning, stacklevel=3)


def texts_between(
    source: Path, out: Path, encoder: TableEncoder, reading: Reading | None
) -> Collection[str]:
    """The columns to read as texts: from CSV to CSV all that the model does not read as numbers.

    What the model does not read comes out as it went in.
    """
    if is_parquet(source) or is_parquet(out):
        return encoder.texts
    names = next(read_chunks(source, chunk_rows=1, reading=reading)).columns
    return [name for name in names if name not in encoder.medians or name in encoder.texts]


def renamed(names: Collection[str], result: pd.DataFrame) -> pd.DataFrame:
    """The result, with another name for a column that the table has already: it warns."""
    new_names = {name: f"gpn_{name}" for name in result.columns if name in names}
    taken = [name for name in new_names.values() if name in names]
    if taken:
        raise TableError(
            f"the table must not have a column that is to be written, got {taken[0]!r}; rename it."
        )
    for name, new in new_names.items():
        warn_caller(
            f"the table has a column {name!r} already; what is predicted is {new!r}.",
            ReadingWarning,
        )
    return result.rename(columns=new_names)


@contextmanager
def table_writer(path: Path) -> Iterator["CsvWriter | ParquetWriter"]:
    """What writes the next chunk; the table appears at `path` once it is complete."""
    make = ParquetWriter if is_parquet(path) else CsvWriter
    check_writable(path)
    with replacing(path) as name, closing(make(name, path.suffix)) as writer:
        yield writer


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


class CsvWriter:
    """Writes a CSV file, chunk by chunk."""

    def __init__(self, name: str, suffix: str) -> None:
        open_file: Any = gzip.open if suffix == ".gz" else open
        self.file = open_file(name, "wb")
        self.is_first = True

    def write(self, chunk: pd.DataFrame) -> None:
        self.file.write(chunk.to_csv(header=self.is_first, index=False).encode())
        self.is_first = False

    def write_columns(self, texts: Any, result: pd.DataFrame) -> bool:
        """Columns of texts beside a result; False, and nothing is written, where texts need
        quotes."""
        columns = dict(zip(texts.schema.names, texts.columns, strict=True))
        for name, values in result.items():
            columns[name] = pa.array(values, from_pandas=True)
            if pa.types.is_boolean(columns[name].type):
                columns[name] = pc.if_else(columns[name], "True", "False")
        options = pa_csv.WriteOptions(include_header=False, quoting_style="none")
        rows = io.BytesIO()
        try:
            pa_csv.write_csv(pa.table(columns), rows, options)
        except pa.ArrowInvalid:
            return False
        if self.is_first:
            self.write(pd.DataFrame(columns=list(columns)))
        self.file.write(rows.getbuffer())
        return True

    def close(self) -> None:
        self.file.close()


class ParquetWriter:
    """Writes a Parquet file, chunk by chunk; the first one decides the types."""

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

    def write_columns(self, columns: Any, result: pd.DataFrame) -> bool:
        """Columns beside a result; False, and nothing is written, where the file has other types,
        or none yet."""
        if self.file is None:
            return False
        found = {name: pa.array(values, from_pandas=True) for name, values in result.items()}
        arrays = []
        try:
            for field in self.file.schema:
                column = found.get(field.name)
                column = columns.column(field.name) if column is None else column
                if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                    column = pc.if_else(pc.is_nan(column), None, column)  # as pandas writes it
                arrays.append(column if column.type == field.type else column.cast(field.type))
        except (KeyError, pa.ArrowException):
            return False
        self.file.write_table(pa.Table.from_arrays(arrays, schema=self.file.schema))
        self.n_rows += len(result)
        return True

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


def is_parquet(path: Path) -> bool:
    """Whether the name is one of a Parquet file; raise unless it is one of a table at all."""
    if path.name.endswith(CSV_SUFFIXES):
        return False
    if path.suffix in PARQUET_SUFFIXES:
        return True
    suffixes = ", ".join((*CSV_SUFFIXES[:2], *PARQUET_SUFFIXES))
    raise TableError(f"a table's name must end in {suffixes}, got {path.name!r}.")
