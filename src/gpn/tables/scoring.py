"""Predictions of whole tables, from file to file."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpn.columns.arrow import plain_inputs
from gpn.tables.chunks import Chunk, ahead, behind, read_chunks
from gpn.tables.files import CsvWriter, OnRows, ParquetWriter, renamed, said_once, table_writer
from gpn.tables.model import TableModel
from gpn.tables.reading import Reading

Why = Callable[[pd.DataFrame, NDArray[np.bool_]], list[str]]


class Counts(NamedTuple):
    """Rows that were scored, those that are flagged, and those with a value that is new."""

    rows: int = 0
    flagged: int = 0
    unseen: int = 0

    def plus(self, other: "Counts") -> "Counts":
        """The counts of both."""
        return Counts(*map(sum, zip(self, other, strict=True)))


def score_table(
    model: TableModel,
    source: Path,
    out: Path,
    *,
    level: float = 0.95,
    fpr: float = 0.05,
    why: Why | None = None,
    on_rows: OnRows = lambda count: None,
    reading: Reading | None = None,
) -> Counts:
    """Write the table `source` with its predictions to `out`, chunk by chunk.

    Chunks are read, scored and written at the same time; memory does not grow with the table.
    `why` says of the flagged rows of a chunk what is written into a column of this name.
    """
    counts = Counts()
    with said_once() as rows_read, table_writer(out) as writer, behind() as write:
        for chunk in ahead(read_chunks(source, out, model.encoder, reading)):
            result = score_chunk(model, chunk, level, fpr)
            if why is not None:
                flags = result["is_ood"].to_numpy()
                result["why"] = ""
                result.loc[flags, "why"] = why(chunk.frame().set_axis(result.index), flags)
            flagged, unseen = int(result["is_ood"].sum()), int(result.attrs["n_unseen"])
            counts = counts.plus(Counts(len(result), flagged, unseen))
            write(_write, writer, chunk, renamed(chunk.names, result))
            rows_read(counts.rows)
            on_rows(counts.rows)
    return counts


def score_chunk(model: TableModel, chunk: Chunk, level: float, fpr: float) -> pd.DataFrame:
    """The predictions of a chunk's rows."""
    inputs = None
    if chunk.columns is not None:
        inputs = plain_inputs(model.encoder, chunk.columns, of_csv=chunk.is_csv)
    if inputs is None:
        return model.predict(chunk.frame(), level, fpr)
    return model.predict_inputs(*inputs, level, fpr)


def _write(writer: CsvWriter | ParquetWriter, chunk: Chunk, result: pd.DataFrame) -> None:
    if chunk.columns is None or not writer.write_columns(chunk.columns, result):
        frame = chunk.frame()
        writer.write(pd.concat([frame, result.set_axis(frame.index)], axis=1))
