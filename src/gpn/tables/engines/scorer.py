"""A model of a table as a callable that other engines pickle, send to workers and feed batches."""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from gpn.columns.arrow import plain_inputs
from gpn.columns.column_types import TableError
from gpn.core.checks import require_level
from gpn.saving.format import load
from gpn.saving.validation import ModelError
from gpn.tables.files import renamed
from gpn.tables.model import TableModel

MAX_MODELS = 4  # that one process holds at a time
MODELS: dict[str, TableModel] = {}  # of this process, by the digests of their files
SPARK_TYPES = {"f": "double", "i": "bigint", "u": "bigint", "b": "boolean"}


class Scorer:
    """Batches in, batches with the columns of `gpn predict` out: for Ray, Dask and Spark.

    model: the path of a file that `gpn fit` or `TableModel.save` wrote, or a `TableModel`. It
    pickles to that path and the file's SHA-256, so that a worker refuses another file at the same
    path; a model in memory, or one that is to be `shipped` to workers without that path, pickles to
    the file's bytes. A process loads a model once, at its first batch.

    A batch is a frame of pandas, a table or record batch of pyarrow, or a dict of arrays by name;
    its result is of the same type. columns: those of the batch to pass on, such as ids; None passes
    on all. level, fpr: as in `gpn predict`.
    """

    def __init__(
        self,
        model: "str | os.PathLike[str] | TableModel",
        *,
        level: float = 0.95,
        fpr: float = 0.05,
        columns: Sequence[str] | None = None,
        shipped: bool = False,
    ) -> None:
        require_level(level)
        if not 0 < fpr < 1:
            raise ValueError(f"fpr must lie strictly between 0 and 1, got {fpr}; try 0.05.")
        if isinstance(columns, str):
            raise TypeError(f"columns must be names in a list, got {columns!r}; try [{columns!r}].")
        in_memory = isinstance(model, TableModel)
        content = _content_of(model) if in_memory else _read(Path(model))  # type: ignore[arg-type]
        self.level, self.fpr = level, fpr
        self.columns = None if columns is None else tuple(columns)
        self.path = None if in_memory else os.path.abspath(model)  # type: ignore[arg-type]
        self.digest = hashlib.sha256(content).hexdigest()
        self.content = content if in_memory or shipped else None
        self.model.target  # noqa: B018 - a file that is no model of a table is refused at once

    @property
    def model(self) -> TableModel:
        """The model, loaded once for all scorers of it in this process."""
        if self.digest not in MODELS:
            while len(MODELS) >= MAX_MODELS:
                MODELS.pop(next(iter(MODELS)))
            MODELS[self.digest] = _load(self)
        return MODELS[self.digest]

    def __call__(self, batch: Any) -> Any:
        """The batch's columns that are passed on, and the predictions."""
        if isinstance(batch, dict):
            scored = self(pd.DataFrame(batch))
            return {name: values.to_numpy() for name, values in scored.items()}
        if isinstance(batch, pa.RecordBatch):
            (found,) = self(pa.Table.from_batches([batch])).combine_chunks().to_batches() or [None]
            return found
        if isinstance(batch, pa.Table):
            return self._of_arrow(batch)
        if isinstance(batch, pd.DataFrame):
            return self._of_frame(batch)
        raise TypeError(
            "a batch must be a frame of pandas, a table of pyarrow or a dict of arrays, got "
            f"{type(batch).__name__}."
        )

    def of_batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Each batch of a partition, as Spark's `mapInPandas` and `mapInArrow` want it."""
        return map(self, batches)

    def meta(self, frame: pd.DataFrame) -> pd.DataFrame:
        """An empty frame with the columns and types of the result: `meta` of Dask."""
        return self._joined(frame.head(0), self._no_predictions)

    @property
    def spark_columns(self) -> str:
        """The predictions as columns of a Spark schema: "mean double, …, is_ood boolean"."""
        found = self._no_predictions.items()
        return ", ".join(
            f"`{name}` {SPARK_TYPES.get(values.dtype.kind, 'string')}" for name, values in found
        )

    @property
    def _no_predictions(self) -> pd.DataFrame:
        """The columns of predictions, without rows."""
        x, unseen = np.zeros((1, self.model.encoder.width)), np.zeros(1, bool)
        return self.model.predict_inputs(x, unseen, self.level, self.fpr).head(0)

    def _of_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        if len(frame) == 0:
            return self.meta(frame)
        return self._joined(frame, self.model.predict(frame, self.level, self.fpr))

    def _of_arrow(self, table: Any) -> Any:
        inputs = plain_inputs(self.model.encoder, table, of_csv=False)
        if inputs is not None:
            found = self.model.predict_inputs(*inputs, self.level, self.fpr)
        elif table.num_rows:
            found = self.model.predict(table.to_pandas(), self.level, self.fpr)
        else:
            found = self._no_predictions
        found = renamed(table.schema.names, found)
        passed = table.select(list(self._passed(table.schema.names)))
        for name, values in found.items():
            passed = passed.append_column(name, pa.array(values, from_pandas=True))
        return passed

    def _joined(self, frame: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
        passed = frame[list(self._passed(frame.columns))]
        return pd.concat([passed, renamed(frame.columns, found.set_axis(frame.index))], axis=1)

    def _passed(self, names: Iterable[str]) -> Sequence[str]:
        names = list(names)
        if self.columns is None:
            return names
        missing = [name for name in self.columns if name not in names]
        if missing:
            raise TableError(
                f"columns to pass on must be in every batch, {missing[0]!r} is not; there are "
                f"{', '.join(map(str, names[:8]))}."
            )
        return self.columns


def _content_of(model: TableModel) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gpn"
        model.save(path)
        return path.read_bytes()


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError(f"there is no model file {path}; gpn fit --out {path} would write it.")
    return path.read_bytes()


def _load(scorer: Scorer) -> TableModel:
    """The model of a scorer's bytes, or of the file at its path, which must be the same still."""
    content = scorer.content
    if content is None:
        assert scorer.path is not None
        content = _read(Path(scorer.path))
        if hashlib.sha256(content).hexdigest() != scorer.digest:
            raise ModelError(
                f"{scorer.path} must be the file that the scorer was made of, got another one; "
                "make a new gpn.Scorer of it."
            )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gpn"
        path.write_bytes(content)
        model = load(path)
    if not isinstance(model, TableModel):
        raise ValueError(
            f"{scorer.path} must be a model that gpn fit wrote, it holds a {type(model).__name__} "
            "without columns; use gpn.load in Python."
        )
    return model
