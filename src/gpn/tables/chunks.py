"""Tables in chunks of columns: read ahead, scored and written at the same time.

Where cells are plain (`gpn.columns.arrow`) they go from file to file as Arrow columns. A chunk with
anything else is read by pandas, as every table of `gpn fit` is: what it holds, what is said of it
and what comes out is the same.
"""

import io
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv

from gpn.columns.encoder import TableEncoder
from gpn.tables import files
from gpn.tables.reading import Reading

T = TypeVar("T")

AHEAD = 2  # chunks that are read, and that are written, while others are scored
ODD = frozenset(b'"\r\0')  # where these are, a line may be no row
END = object()


class Chunk:
    """Some rows of a table: Arrow columns where the file has plain ones, and a frame of pandas.

    `columns` is None where only the frame will do. `is_csv` says that all columns are texts.
    """

    def __init__(
        self, columns: Any, frame: Callable[[], pd.DataFrame], start: int, *, is_csv: bool
    ) -> None:
        self.columns, self.read_frame, self.start, self.is_csv = columns, frame, start, is_csv

    @property
    def names(self) -> list[str]:
        """The columns of the table."""
        names = self.frame().columns if self.columns is None else self.columns.schema.names
        return list(names)

    def frame(self) -> pd.DataFrame:
        """The rows as pandas reads them, numbered as in the whole table."""
        rows = self.read_frame()
        return rows.set_axis(pd.RangeIndex(self.start, self.start + len(rows)))


def read_chunks(
    path: Path, out: Path, encoder: TableEncoder, reading: Reading | None
) -> Generator[Chunk, None, None]:
    """The chunks of a table, with Arrow columns where source and result are of one kind."""
    texts = files.texts_between(path, out, encoder, reading)
    if files.is_parquet(path) != files.is_parquet(out):
        return _of_frames(files.read_chunks(path, texts, reading=reading))
    if files.is_parquet(path):
        return _of_parquet(path)
    return _of_csv(path, texts, reading or Reading())


def _of_frames(frames: Iterable[pd.DataFrame], start: int = 0) -> Generator[Chunk, None, None]:
    for frame in frames:
        yield Chunk(None, frame.copy, start, is_csv=False)
        start += len(frame)


def _of_parquet(path: Path) -> Generator[Chunk, None, None]:
    start = 0
    for batch in files.read_batches(path):
        columns = pa.Table.from_batches([batch])
        yield Chunk(columns, partial(_as_frame, path, batch), start, is_csv=False)
        start += batch.num_rows


def _as_frame(path: Path, batch: Any) -> pd.DataFrame:
    with files.reading_errors(path):
        return batch.to_pandas()


def _of_csv(path: Path, texts: Any, reading: Reading) -> Generator[Chunk, None, None]:
    """Lines of a plain file by Arrow; from where lines are no rows on, all by pandas."""
    reading, options = files.csv_options(path, texts, reading)
    start = 0
    with files.opened(path) as file:
        header = file.readline()
        names = header.decode("utf-8", "replace").rstrip("\n").split(reading.sep)
        written_plainly = reading.encoding == "utf-8" and reading.decimal == "."
        is_plain = written_plainly and path.suffix != ".gz" and not ODD.intersection(header)
        while is_plain and len(names) > 1 and all(names):
            lines = b"".join(islice(file, files.CHUNK_ROWS))
            if not lines:
                if start == 0:
                    break
                return
            columns = _text_columns(lines, names, reading.sep)
            if columns is None:
                break
            if columns.num_rows:
                yield Chunk(
                    columns, partial(_parsed, path, header + lines, options), start, is_csv=True
                )
                start += columns.num_rows
    yield from _of_frames(
        _without_first(files.read_chunks(path, texts, reading=reading), start), start
    )


def _parsed(path: Path, lines: bytes, options: dict[str, Any]) -> pd.DataFrame:
    with files.reading_errors(path):
        return pd.read_csv(io.BytesIO(lines), **options)


def _text_columns(lines: bytes, names: list[str], sep: str) -> Any | None:
    """Lines as columns of texts; None where they may not be one row each."""
    if any(byte in lines for byte in ODD):
        return None
    types = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    try:
        return pa_csv.read_csv(
            pa.BufferReader(lines),
            pa_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(lines) + 1),
            pa_csv.ParseOptions(delimiter=sep, quote_char=False),
            types,
        )
    except pa.ArrowInvalid:
        return None


def _without_first(frames: Iterator[pd.DataFrame], count: int) -> Iterator[pd.DataFrame]:
    """All rows but the first `count`."""
    for frame in frames:
        if count < len(frame):
            yield frame.iloc[count:] if count else frame
        count = max(0, count - len(frame))


def ahead(chunks: Generator[T, None, None]) -> Iterator[T]:
    """The chunks, the next ones of which a thread reads meanwhile.

    The first one is read at once: what it warns of has its place in the caller's code.
    """
    first: Any = next(chunks, END)
    if first is END:
        return
    with closing(chunks), ThreadPoolExecutor(1) as reader:
        waiting = deque(reader.submit(next, chunks, END) for _ in range(AHEAD))
        yield first
        while (chunk := cast(T, waiting.popleft().result())) is not END:
            waiting.append(reader.submit(next, chunks, END))
            yield chunk


@contextmanager
def behind() -> Iterator[Callable[..., None]]:
    """A function that calls another one in a thread, in order, and raises what these raise."""
    with ThreadPoolExecutor(1) as writer:
        waiting: deque[Future[None]] = deque()

        def submit(write: Callable[..., None], *arguments: Any) -> None:
            waiting.append(writer.submit(write, *arguments))
            while len(waiting) > AHEAD:
                waiting.popleft().result()

        yield submit
        for future in waiting:
            future.result()
