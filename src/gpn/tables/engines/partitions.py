"""Models of tables that are too long for one machine, or for its memory: a fit over partitions.

Two passes: the first draws a uniform sample and counts the values of categories, the second adds up
the labels (`gpn.estimators.closed_form.partitions`). Which rows are drawn depends on a hash of
their cells, and on nothing else: the fit is the same however the rows are dealt into partitions.
"""

import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpn.columns.column_types import MISSING, TableError
from gpn.columns.encoder import TableEncoder, as_table, most_frequent
from gpn.core.checks import is_count
from gpn.estimators.closed_form.partitions import LabelSums, PartitionedFit
from gpn.estimators.regressor import GPNRegressor
from gpn.methods.gpn.fitting.closed_form import MAX_EXACT_LABELS, MAX_UNSEEN
from gpn.methods.gpn.model.kernel_generator import FeatureSums
from gpn.tables import files
from gpn.tables.fit_record import FitRecord, rows_to_store
from gpn.tables.model import TableModel, fit_table
from gpn.tables.reading import Reading
from gpn.tables.summary import fit_summary
from gpn.tables.target import is_class, split_unlabeled, target_column, target_numbers

T = TypeVar("T")

SAMPLE_ROWS = 20_000
LANDMARKS = 1000
MAX_COUNTED = 10_000  # values of a column of texts; one with more is no category
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Sampled:
    """A first look at a partition: its rows with a label, those with the lowest hashes, and how
    often each text comes in its columns."""

    count: int
    rows: pd.DataFrame
    hashes: Hashes
    texts: dict[str, Counter[str]]

    def plus(self, other: "Sampled", size: int) -> "Sampled":
        """Of both partitions together."""
        rows = pd.concat([self.rows, other.rows], ignore_index=True)
        hashes = np.concatenate([self.hashes, other.hashes])
        lowest = np.argsort(hashes, kind="stable")[:size]
        texts = {
            name: self.texts.get(name, Counter()) + other.texts.get(name, Counter())
            for name in {*self.texts, *other.texts}
        }
        return Sampled(self.count + other.count, rows.iloc[lowest], hashes[lowest], texts)


@dataclass(frozen=True)
class FirstPass:
    """What the first pass does with each partition."""

    target: str
    size: int

    def __call__(self, table: pd.DataFrame) -> Sampled:
        known, _ = _labeled(table, self.target)
        hashes = row_hashes(known)
        lowest = np.argsort(hashes, kind="stable")[: self.size]
        texts = {
            name: _text_counts(known[name])
            for name in known.columns
            if name != self.target and pd.api.types.is_string_dtype(known[name].dtype)
        }
        return Sampled(len(known), known.iloc[lowest], hashes[lowest], texts)


@dataclass(frozen=True)
class SecondPass:
    """What the second pass does: sums over all labels but those whose hash is up to a limit."""

    target: str
    encoder: TableEncoder
    decimal: str
    limit: np.uint64
    sums: LabelSums

    def __call__(self, table: pd.DataFrame) -> FeatureSums:
        known, _ = _labeled(table, self.target)
        known = known[row_hashes(known) > self.limit]
        if len(known) == 0:
            return self.sums.empty.emptied()
        y = target_numbers(target_column(known, self.target), self.decimal)
        return self.sums(self.encoder.transform(known), np.asarray(y))


def fit_partitions(
    partitions: Any,
    target: str,
    *,
    landmarks: int = LANDMARKS,
    sample_rows: int = SAMPLE_ROWS,
    drop: Sequence[str] = (),
    ids: Sequence[str] = (),
    keep: Sequence[str] = (),
    reading: Reading | None = None,
    random_state: int = 0,
) -> TableModel:
    """A model of the numbers `target`, given all labels of many partitions.

    partitions: frames of pandas, or paths of Parquet files, in a list; a Ray data set; or a Dask
    data frame. Their columns are alike. landmarks: rows whose values carry what the labels say; the
    time of a label grows with their square. sample_rows: a uniform sample, which decides the rest.

    Up to 5,000 labels are fitted together, by `fit_table`. Classes, and a second model as a mean,
    need all rows at a time: fit a sample of these.
    """
    started, target, reading = time.perf_counter(), str(target), reading or Reading()
    _check_count("landmarks", landmarks, 10)
    _check_count("sample_rows", sample_rows, 2 * landmarks + MAX_UNSEEN)
    over = _passes(partitions)
    found = over(FirstPass(target, sample_rows), partial(_both, size=sample_rows))
    sample = _by_hash(found, target)
    y = target_column(sample.rows, target)
    if is_class(y, reading.decimal):
        raise TableError(
            f"a fit over partitions must have a target of numbers, {target!r} holds classes; fit a "
            "sample of the rows by fit_table."
        )
    if found.count <= MAX_EXACT_LABELS:
        return fit_table(
            sample.rows,
            target,
            classes=False,
            reading=reading,
            random_state=random_state,
            drop=drop,
            ids=ids,
            keep=keep,
        )
    encoder = TableEncoder.fit(
        sample.rows, target, drop=(*drop, *ids), keep=keep, decimal=reading.decimal
    )
    encoder = _with_all_values(encoder, found.texts)
    x, labels = encoder.transform(sample.rows), np.asarray(target_numbers(y, reading.decimal))
    by_value = np.lexsort((*x.T, labels))  # the order of rows in any fit
    x, labels, hashes = x[by_value], labels[by_value], sample.hashes[by_value]
    order = np.argsort(hashes, kind="stable")
    unseen = min(MAX_UNSEEN, len(order) // 10)
    regressor = GPNRegressor(mean=None, random_state=random_state, device="cpu")
    fit = PartitionedFit.begin(regressor, x, labels, order, unseen, landmarks)
    limit = hashes[order[unseen - 1]]
    second = SecondPass(target, encoder, reading.decimal, limit, fit.sums)
    estimator = fit.finish(over(second, FeatureSums.plus))
    stored = rows_to_store(x, labels)
    record = FitRecord(
        labeled=found.count,
        unlabeled=None,
        notes=encoder.notes,
        diagnostics=estimator.posterior_.fit_report.to_dict(),  # type: ignore[attr-defined]
        summary=fit_summary(estimator, x, labels, time.perf_counter() - started),
        x=stored[0],
        y=stored[1],
    )
    return TableModel(estimator, encoder, target, record, reading, tuple(ids))


def _text_counts(column: pd.Series) -> Counter[str]:
    """How often each text comes, and how often none."""
    counts = column.value_counts(dropna=False).head(MAX_COUNTED)
    return Counter({MISSING if pd.isna(text) else str(text): int(n) for text, n in counts.items()})


def row_hashes(table: pd.DataFrame) -> Hashes:
    """A hash of each row's cells, whatever the order of columns; numbers count as float64."""
    columns = {
        name: table[name].astype("float64") if _is_number(table[name]) else table[name]
        for name in sorted(table.columns)
    }
    found: Hashes = pd.util.hash_pandas_object(pd.DataFrame(columns), index=False).to_numpy()
    return found


def _is_number(column: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column))


def _check_count(name: str, count: Any, least: int) -> None:
    if not is_count(count, least):
        raise ValueError(f"{name} must be a whole number of at least {least:,}, got {count!r:.60}.")


def _both(one: Sampled, other: Sampled, *, size: int) -> Sampled:
    return one.plus(other, size)


def _labeled(table: pd.DataFrame, target: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows with a label and without; a partition may have none."""
    if len(table) == 0:
        return table.rename(columns=str), table
    named = as_table(table)
    if target in named.columns and _is_number(named[target]):
        known = named[target].notna()
        return named[known], named[~known]
    if target in named.columns and named[target].isna().all():
        return named.head(0), named
    return split_unlabeled(named, target)


def _by_hash(found: Sampled, target: str) -> Sampled:
    """The sample in an order that does not depend on the partitions."""
    if found.count == 0:
        raise TableError(f"the target {target!r} must be known in some rows of the partitions.")
    order = np.argsort(found.hashes, kind="stable")
    rows = found.rows.iloc[order].reset_index(drop=True)
    return replace(found, rows=rows, hashes=found.hashes[order])


def _with_all_values(encoder: TableEncoder, texts: dict[str, Counter[str]]) -> TableEncoder:
    """The encoder with the most frequent values of all partitions, which a sample may lack."""
    categories = {
        name: most_frequent(texts[name]) if name in texts else known
        for name, known in encoder.categories.items()
    }
    return replace(encoder, categories=categories)


Pass = Callable[[Callable[[pd.DataFrame], Any], Callable[[Any, Any], Any]], Any]


def _passes(partitions: Any) -> Pass:
    """A function (work, add) that adds up the results of `work` over all partitions."""
    library = type(partitions).__module__.partition(".")[0]
    if library == "ray":
        return partial(_over_ray, partitions)
    if library.startswith("dask"):
        return partial(_over_dask, partitions)
    if isinstance(partitions, pd.DataFrame | str | Path) or not isinstance(partitions, Sequence):
        raise TypeError(
            "partitions must be a list of frames or of Parquet files, a Ray data set or a Dask "
            f"data frame, got {type(partitions).__name__}; put what you have into a list."
        )
    if len(partitions) == 0:
        raise TableError("partitions must be one at least, got none.")
    return partial(_over_list, partitions)


def _over_list(
    partitions: Sequence[Any],
    work: Callable[[pd.DataFrame], T],
    add: Callable[[T, T], T],
) -> T:
    return reduce(add, (work(frame) for part in partitions for frame in _frames(part)))


def _frames(part: Any) -> Iterator[pd.DataFrame]:
    if isinstance(part, pd.DataFrame):
        yield part
    elif isinstance(part, str | Path):
        for batch in files.read_batches(Path(part)):
            yield batch.to_pandas()
    else:
        raise TypeError(
            f"a partition must be a frame of pandas or a path of a Parquet file, got "
            f"{type(part).__name__}."
        )


def _over_dask(frame: Any, work: Callable[[pd.DataFrame], T], add: Callable[[T, T], T]) -> T:
    """A tree of sums, so that no worker holds those of all partitions."""
    dask = importlib.import_module("dask")
    level = [dask.delayed(work)(part) for part in frame.to_delayed()]
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [dask.delayed(add)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    (found,) = dask.compute(level[0])
    return found


def _over_ray(data: Any, work: Callable[[pd.DataFrame], T], add: Callable[[T, T], T]) -> T:
    """One stream of blocks for each processor of the cluster, each added up where it is read."""
    ray = importlib.import_module("ray")

    def added(blocks: Any) -> T | None:
        batches: Iterable[pd.DataFrame] = blocks.iter_batches(
            batch_size=files.CHUNK_ROWS, batch_format="pandas"
        )
        found = None
        for batch in batches:
            one = work(batch)
            found = one if found is None else add(found, one)
        return found

    streams = data.streaming_split(max(1, int(ray.cluster_resources().get("CPU", 1)) - 1))
    task = ray.remote(num_cpus=0)(added)
    parts = ray.get([task.remote(stream) for stream in streams])
    return reduce(add, (part for part in parts if part is not None))
