"""Tables in files: CSV and Parquet, whole or in pieces, and written completely or not at all."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpn.columns import TableError, texts_of
from gpn.saving import beside

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS_AT_ONCE = 20_000
CSV, PARQUET = (".csv", ".csv.gz", ".gz"), (".parquet", ".pq")


def read(path: Path, texts: Iterable[str] | None = None) -> "DataFrame":
    """The whole table; it must have rows. `texts` None: every column that is not of numbers."""
    import pandas as pd

    table = pd.concat(list(pieces_of(path, texts or ())), ignore_index=True)
    if texts is not None:
        return table
    found = texts_of(table)
    return read(path, found) if found else table


def pieces_of(
    path: Path, texts: Iterable[str] = (), rows: int = ROWS_AT_ONCE
) -> Iterator["DataFrame"]:
    """The table in pieces of at most `rows`, so that memory does not grow with it.

    Columns of `texts` are read as they stand: "01" is not 1, whatever else a piece holds.
    """
    import pandas as pd

    kind = _kind(path)
    if not path.is_file():
        raise TableError(f"a table must be a file that exists, got {path}.")
    count = 0
    try:
        for piece in _parquet(path, rows) if kind == "parquet" else _csv(path, rows, texts):
            count += len(piece)
            yield piece
    except pd.errors.EmptyDataError:
        count = 0
    except (pd.errors.ParserError, UnicodeDecodeError, OSError, EOFError, _arrow_error()) as error:
        raise TableError(f"{path} must be a complete {kind} file, got {error}.") from error
    if count == 0:
        raise TableError(f"a table must have at least one row, {path} has none.")


def _csv(path: Path, rows: int, texts: Iterable[str]) -> Iterator["DataFrame"]:
    import pandas as pd

    yield from pd.read_csv(path, chunksize=rows, dtype=dict.fromkeys(texts, "str"))


def _parquet(path: Path, rows: int) -> Iterator["DataFrame"]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=rows):
            yield batch.to_pandas()


def _arrow_error() -> type[Exception]:
    import pyarrow as pa

    return pa.ArrowException


@contextmanager
def writer(path: Path) -> Iterator[Any]:
    """A function that adds a piece to the table at `path`, which appears once all is written."""
    kind = _kind(path)
    name = temporary(path)
    out = _ParquetOut(name) if kind == "parquet" else _CsvOut(name, gz=path.suffix == ".gz")
    try:
        yield out.add
        out.close()
        os.replace(name, path)
    except BaseException:
        out.close()
        os.unlink(name)
        raise


def temporary(path: Path) -> str:
    """A new file beside `path`; an error says where one cannot be made."""
    if path.is_dir():
        raise TableError(f"--out must be a file, got the folder {path}; name a file in it.")
    try:
        return beside(path)
    except OSError as error:
        raise TableError(
            f"the folder of {path} must exist and be writable, got {error.strerror}; "
            "choose another --out."
        ) from error


class _CsvOut:
    def __init__(self, name: str, *, gz: bool) -> None:
        self.name, self.gz, self.first = name, gz, True

    def add(self, piece: "DataFrame") -> None:
        compression: Any = "gzip" if self.gz else None
        piece.to_csv(
            self.name,
            mode="w" if self.first else "a",
            header=self.first,
            index=False,
            compression=compression,
        )
        self.first = False

    def close(self) -> None:
        pass


class _ParquetOut:
    def __init__(self, name: str) -> None:
        self.name, self.rows = name, 0
        self.file: Any = None

    def add(self, piece: "DataFrame") -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pandas(piece, preserve_index=False)
        if self.file is None:
            self.file = pq.ParquetWriter(self.name, table.schema)
        columns = [self._cast(table[field.name], field) for field in self.file.schema]
        self.file.write_table(pa.Table.from_arrays(columns, schema=self.file.schema))
        self.rows += len(piece)

    def _cast(self, column: Any, field: Any) -> Any:
        """The column in the type that it had in the first piece."""
        try:
            return column.cast(field.type)
        except _arrow_error() as error:
            raise TableError(
                f"a column must keep its type in a Parquet file, {field.name!r} was {field.type} "
                f"and is {column.type} from row {self.rows} on ({error}); correct the column, or "
                "write a .csv."
            ) from error

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _kind(path: Path) -> str:
    if path.name.endswith(CSV):
        return "CSV"
    if path.suffix in PARQUET:
        return "parquet"
    raise TableError(
        f"a table's name must end in {', '.join((*CSV[:2], *PARQUET))}, got {path.name!r}."
    )
