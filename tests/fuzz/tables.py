"""Tables of users: CSV, plain and gzipped, and Parquet, whole and in chunks, and by the command."""

import gzip
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from typer.testing import CliRunner

import gpn
from gpn.cli.commands import app
from gpn.columns.column_types import TableError
from gpn.columns.encoder import TableEncoder
from gpn.tables import files
from gpn.tables.target import is_class, target_column
from tests.fuzz import formats, models
from tests.fuzz.mutate import mutated
from tests.fuzz.reader import Reader


def readers(folder: Path) -> Iterator[Reader]:
    """The table as it is read for a fit, and in chunks as for a prediction."""
    table, other = models.table(), models.table(6).drop(columns="heat").assign(day="2020-01-01")
    csvs = [frame.to_csv(index=False).encode() for frame in (table, other)]
    by_cell = mutated, formats.cells, formats.cells
    yield Reader("csv", folder / "t.csv", csvs, learnt(folder / "t.csv"), by_cell)
    packed, by_gzip = [gzip.compress(csv, 1) for csv in csvs], (mutated, formats.gzipped)
    yield Reader("csv.gz", folder / "t.csv.gz", packed, learnt(folder / "t.csv.gz"), by_gzip)
    path = folder / "t.parquet"
    yield Reader("parquet", path, [parquet(frame) for frame in (table, other)], learnt(path))


def parquet(table: pd.DataFrame) -> bytes:
    made = io.BytesIO()
    table.to_parquet(made, index=False, row_group_size=10)
    return made.getvalue()


def learnt(path: Path) -> Callable[[], Any]:
    """What a fit does with a table before it learns, and what a prediction reads of it."""

    def learn() -> None:
        table = files.read_table(path)
        columns = TableEncoder.fit(table, "yield")
        columns.transform(table)
        is_class(target_column(table, "yield"))
        chunks = list(files.read_chunks(path, columns.categories, chunk_rows=9))
        columns.transform(chunks[-1])

    return learn


def commands(folder: Path) -> Iterator[Reader]:
    """`gpn fit`, `predict`, `sample`, `suggest`, `evaluate` with damaged tables and models."""
    model, table, out = folder / "m.gpn", folder / "t.csv", folder / "o"
    good = models.model("yield")
    kinds = {name: getattr(gpn, name) for name in ("GPNRegressor", "GPNClassifier")}
    for name, kind in kinds.items():
        setattr(gpn.tables.model, name, partial(kind, models.CONFIG))
    csv, by_cell = models.table().to_csv(index=False).encode(), (mutated, formats.cells)
    for name, more in {
        "predict": ("--out", f"{out}.parquet"),
        "sample": ("-n", 2, "--out", f"{out}.csv"),
        "suggest": ("-n", 2),
        "evaluate": ("--ood", table),
    }.items():
        run = asked(name, model, table, *more)
        good.save(model)
        yield Reader(f"gpn {name}", table, [csv], run, by_cell)
    fit = asked("fit", table, "--target", "yield", "--unlabeled", table, "--out", f"{out}.gpn")
    yield Reader("gpn fit", table, [csv], fit, by_cell, share=0.1)
    (folder / "good.csv").write_bytes(csv)
    other = folder / "other.gpn"
    run = asked("predict", other, folder / "good.csv", "--out", f"{out}.csv")
    seeds = [models.saved(models.model(target), other) for target in ("yield", "grade")]
    yield Reader("gpn predict, model", other, seeds, run, (mutated, formats.model_header))


def asked(*arguments: Any) -> Callable[[], Any]:
    """Status 0, or 1 with an error in one JSON object, after any warnings; it is raised here."""

    def ask() -> None:
        result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
        if result.exit_code == 0:
            json.loads(result.stdout)
        elif isinstance(result.exception, SystemExit) and result.exit_code == 1:
            raise TableError(json.loads(result.stderr.splitlines()[-1])["error"])
        else:
            raise result.exception or AssertionError(result.output)

    return ask
