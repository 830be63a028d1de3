"""Tables in files: CSV and Parquet, whole or in pieces, and written completely or not at all."""

import gzip
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpn.core.files import temporary_file
from gpn.data.safe_read import max_decompressed_bytes
from gpn.tables.column_types import TableError, are_codes
from gpn.tables.encoder import check_names, texts_of

if TYPE_CHECKING:
    from pandas import DataFrame


CHUNK_ROWS = 20_000

CSV, PARQUET = (".csv", ".csv.gz", ".gz"), (".parquet", ".pq")


def read(path: Path, texts: Iterable[str] | None = None) -> "DataFrame":
    """The whole table; it must have rows.

    `texts` None: every column that is not of numbers, and those of codes such as "01".
    """
    import pandas as pd

    table = pd.concat(list(pieces_of(path, texts or (), whole=True)), ignore_index=True)
    if texts is not None:
        return table
    found = [*texts_of(table), *_codes(path, table)]
    return read(path, found) if found else table


def _codes(path: Path, table: "DataFrame") -> list[str]:
    """The columns that were read as whole numbers, and whose cells are codes such as "01"."""
    if _kind(path) == "parquet":
        return []
    numbers = table.select_dtypes("number")
    whole = [name for name in numbers if (table[name].dropna() % 1 == 0).all()]
    written: dict[str, set[str]] = {name: set() for name in whole}
    for piece in pieces_of(path, whole, whole=True) if whole else ():
        for name in whole:
            written[name].update(map(str, piece[name].dropna()))
    return [name for name in whole if are_codes(written[name], int(table[name].count()))]


def as_they_stand(path: Path, out: Path, numbers: Iterable[str]) -> list[str]:
    """The columns beside `numbers`, if CSV becomes CSV: read as texts they come out the same."""
    if "parquet" in (_kind(path), _kind(out)):
        return []
    return [name for name in next(pieces_of(path, rows=1)).columns if name not in numbers]


def sample(
    path: Path, texts: Iterable[str], most: int, tell: Callable[[int], object]
) -> tuple["DataFrame", int]:
    """At most `most` rows of the table, all sets equally likely, in their order; and its length.

    Every row gets a random number, and the rows of the lowest stay: memory holds twice `most` rows
    and a piece at any time. `tell` hears of the rows read so far.
    """
    import numpy as np
    import pandas as pd

    rng, count, limit = np.random.default_rng(0), 0, 1.0
    kept: list[DataFrame] = []
    keys: list[Any] = []
    for piece in pieces_of(path, texts):
        drawn = rng.random(len(piece))
        low = np.flatnonzero(drawn <= limit)
        kept.append(piece.iloc[low])
        keys.append(drawn[low])
        if sum(map(len, keys)) > 2 * most:
            limit = _cut(kept, keys, most)
        count += len(piece)
        tell(count)
    _cut(kept, keys, most)
    return pd.concat(kept, ignore_index=True), count


def _cut(kept: list["DataFrame"], keys: list[Any], most: int) -> float:
    """Leave the rows of the `most` lowest keys, and say which was the highest of these."""
    import numpy as np
    import pandas as pd

    table, drawn = pd.concat(kept, ignore_index=True), np.concatenate(keys)
    low = np.sort(np.argpartition(drawn, most)[:most]) if len(drawn) > most else slice(None)
    kept[:], keys[:] = [table.iloc[low]], [drawn[low]]
    return float(keys[0].max())


def pieces_of(
    path: Path, texts: Iterable[str] = (), rows: int = CHUNK_ROWS, *, whole: bool = False
) -> Iterator["DataFrame"]:
    """The table in pieces of at most `rows`, so that memory does not grow with it.

    Columns of `texts` are read as they stand: "01" is not 1, whatever else a piece holds. `whole`
    says that the pieces are to be put together: all of them must fit in memory then.
    """
    import pandas as pd

    kind, path = _kind(path), Path(path)
    if not path.is_file():
        raise TableError(f"a table must be a file that exists, got {path}.")
    count = 0
    parse = _parquet if kind == "parquet" else _csv
    try:
        for piece in parse(path, rows, texts, whole=whole):
            check_names(piece)
            count += len(piece)
            yield piece
    except TableError:
        raise
    except pd.errors.EmptyDataError:
        count = 0
    except Exception as error:  # parsers of damaged files raise anything at all
        raise TableError(
            f"{path} must be a complete {kind} file, got {error!s:.500} ({type(error).__name__})."
        ) from error
    if count == 0:
        raise TableError(f"a table must have at least one row, {path} has none.")


def _csv(path: Path, rows: int, texts: Iterable[str], *, whole: bool) -> Iterator["DataFrame"]:
    import pandas as pd

    _check_header(path)
    with _opened(path) as file:
        options: Any = {"dtype": dict.fromkeys(texts, "str"), "low_memory": False}
        count = 0
        for piece in pd.read_csv(file, chunksize=rows, **options):
            count += len(piece)
            if not piece.index.equals(pd.RangeIndex(count - len(piece), count)):
                raise TableError(
                    f"every row of {path} must have as many cells as there are names, got more in "
                    "the first; name every column, or separate cells by commas."
                )
            yield piece
            if isinstance(file, _Inflated) and not whole:
                file.left = file.most


def _opened(path: Path) -> Any:
    return _Inflated(path) if path.suffix == ".gz" else path.open("rb")


def _check_header(path: Path) -> None:
    """That no two columns have the same name: pandas would rename the second without a word."""
    import pandas as pd

    with _opened(path) as file:
        options: Any = {"dtype": "str", "keep_default_na": False}
        first = pd.read_csv(file, header=None, nrows=1, **options).iloc[0].tolist()
    check_names(pd.DataFrame(columns=[name for name in first if name]))


class _Inflated(gzip.GzipFile):
    """A gzip stream that gives no more at once than the file's size can make credible."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self.path = path
        self.left = self.most = max_decompressed_bytes(path)

    def read1(self, size: int = -1) -> bytes:
        return self._counted(super().read1(size))

    def read(self, size: int | None = -1) -> bytes:
        return self._counted(super().read(size))

    def _counted(self, chunk: bytes) -> bytes:
        self.left -= len(chunk)
        if self.left < 0:
            raise _too_much(self.path, self.most)
        return chunk


def _too_much(path: Path, most: int) -> TableError:
    return TableError(
        f"{path} must unfold to at most {most} bytes at once, got more; if that is right, unpack "
        "it to a plain .csv first."
    )


def _parquet(path: Path, rows: int, texts: Iterable[str], *, whole: bool) -> Iterator["DataFrame"]:
    """Parquet knows its types: `texts` are read as such anyway."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        said, most = file.metadata, max_decompressed_bytes(path)
        groups = [said.row_group(i).total_byte_size for i in range(said.num_row_groups)]
        if max(groups, default=0) > most or (whole and 8 * said.num_rows * said.num_columns > most):
            raise _too_much(path, most)
        for batch in file.iter_batches(batch_size=rows):
            batch.validate(full=True)
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
        return temporary_file(path)
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

        try:
            table = pa.Table.from_pandas(piece, preserve_index=False)
        except _arrow_error() as error:
            raise TableError(
                f"a column must hold values of one type to be written to a Parquet file, got "
                f"{error!s:.300}; write a .csv."
            ) from error
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
