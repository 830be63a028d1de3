"""Rows per second of predictions with uncertainty and flags, beside those of a mean alone.

What is compared runs in turn in one process, and the best of several rounds counts: other work on
the machine only ever makes a round slower. The load average is a line of its own.
"""

import importlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.neural_network import MLPRegressor

from benchmarks.context import BenchmarkContext
from benchmarks.harness import Row
from benchmarks.soak import watch
from gpn.tables.engines.folders import score_folder
from gpn.tables.engines.partitions import fit_partitions
from gpn.tables.engines.scorer import Scorer
from gpn.tables.model import TableModel, fit_table
from gpn.tables.scoring import score_table

ROWS, LABELS, ROUNDS = 40_000, 500, 3
WIDTHS = (10, 81)
ONE_BY_ONE = 300
FILES = 8
LONG_ROWS, LONG_LABELS, LONG_CHUNK = 20_000_000, 50, 20_000
BILLION, EFFICIENCY, WORKERS = 1e9, 0.8, (1, 10, 100)
FIT_ROWS, MANY_ROWS, FIT_COLUMNS, PART_ROWS = 500_000, 10_000_000, 20, 50_000


def table(n: int, width: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, width))
    y = np.sin(x[:, 0] + x[:, 1]) + x[:, 2] * x[:, 3] + 0.1 * x[:, 4:].sum(1)
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(width)])
    return frame.assign(y=y + 0.3 * rng.normal(size=n))


def pool(width: int) -> pd.DataFrame:
    """Unlabeled rows, of which a part has columns that go together."""
    rows = table(6000, width, 1).drop(columns="y")
    rows.loc[:3000, "x5"] = rows.loc[:3000, "x0"]
    return rows


def model(width: int, unlabeled: pd.DataFrame | None = None, labels: int = LABELS) -> TableModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labeled = table(labels, width, 0)
        return fit_table(labeled, "y", unlabeled, random_state=0, device="cpu")


def best_in_turn(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least seconds of each work over rounds of all of them; the first round is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            started = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - started)
    return {name: min(taken[1:]) for name, taken in seconds.items()}


def scoring(context: BenchmarkContext) -> Iterator[Row]:
    """Rows per second of gpn predict and in Python, beside scikit-learn's and XGBoost's means."""
    cases = [(f"{width} columns", width, None) for width in WIDTHS]
    cases.insert(1, ("10 columns, fitted with a pool", 10, pool(10)))
    for name, width, unlabeled in cases:
        yield from _case(context, name, width, unlabeled)
    yield Row("load average over the last 15 minutes", os.getloadavg()[2], "processes")


def _case(
    context: BenchmarkContext, name: str, width: int, unlabeled: pd.DataFrame | None
) -> Iterator[Row]:
    n, made = context.size(ROWS, 200), model(width, unlabeled, context.size(LABELS, 60))
    new = table(n, width, 2).drop(columns="y")
    x = new.to_numpy()
    with tempfile.TemporaryDirectory() as folder:
        works = {**_ours(made, new, x, Path(folder)), **_peers(width, x)}
        seconds = best_in_turn(works, context.size(ROUNDS, 1))
    rates = {each: n / taken for each, taken in seconds.items()}
    for each, rate in rates.items():
        yield Row(f"{name}: {each}", round(rate), "rows/s")
    peer = "HistGradientBoosting (100 trees), mean only"
    ratio = rates["gpn, Parquet to Parquet"] / rates[peer]
    yield Row(f"{name}: Parquet to Parquet, ratio", round(ratio, 4), "times", peer)
    used = time.process_time()
    made.estimator.predict_all(x)
    used = time.process_time() - used
    yield Row(f"{name}: processor time of gpn, Python", round(used / n * 1e6, 1), "µs a row")
    started = time.perf_counter()
    count = context.size(ONE_BY_ONE, 5)
    for row in x[:count]:
        made.estimator.predict_all(row[None])
    rate = count / (time.perf_counter() - started)
    yield Row(f"{name}: gpn, one row at a time in Python", round(rate), "rows/s")


def _ours(
    made: TableModel, new: pd.DataFrame, x: np.ndarray, folder: Path
) -> dict[str, Callable[[], Any]]:
    new.to_csv(folder / "new.csv", index=False)
    new.to_parquet(folder / "new.parquet", index=False)

    def files(end: str) -> Callable[[], Any]:
        return lambda: score_table(made, folder / f"new.{end}", folder / f"out.{end}")

    return {
        "gpn, Python": lambda: made.estimator.predict_all(x),
        "gpn, Parquet to Parquet": files("parquet"),
        "gpn, CSV to CSV": files("csv"),
    }


def _peers(width: int, x: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Means alone, by models with their default settings."""
    labeled = table(5000, width, 3)
    known, y = labeled.drop(columns="y").to_numpy(), labeled["y"].to_numpy()
    found = {
        "HistGradientBoosting (100 trees), mean only": HistGradientBoostingRegressor(),
        "MLP (one layer of 100), mean only": MLPRegressor(max_iter=20, random_state=0),
    }
    with suppress(ImportError):
        found["XGBoost (100 trees), mean only"] = importlib.import_module("xgboost").XGBRegressor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = {name: each.fit(known, y) for name, each in found.items()}

    def predicting(one: Any) -> Callable[[], Any]:
        return lambda: one.predict(x)

    return {name: predicting(each) for name, each in fitted.items()}


def engines(context: BenchmarkContext) -> Iterator[Row]:
    """A folder of Parquet files by one and two workers of Ray on one machine; 10⁹ rows on paper."""
    ray = importlib.import_module("ray")
    n, made = context.size(ROWS, 400), model(10, labels=context.size(LABELS, 60))
    rates: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "new"
        source.mkdir()
        for number in range(FILES):
            part = table(n // FILES, 10, number).drop(columns="y")
            part.to_parquet(source / f"{number}.parquet", index=False)
        for workers in (1, 2):
            ray.init(
                num_cpus=workers,
                object_store_memory=100 << 20,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=40,
            )
            scorer = Scorer(made)
            score_folder(scorer, source, Path(folder) / "warm", "ray")
            seconds = []
            for _ in range(context.size(ROUNDS, 1)):
                started = time.perf_counter()
                score_folder(scorer, source, Path(folder) / "out", "ray")
                seconds.append(time.perf_counter() - started)
            ray.shutdown()
            rates[workers] = n / min(seconds)
            yield Row(f"Ray, workers of one thread: {workers}", round(rates[workers]), "rows/s")
    scaling = rates[2] / (2 * rates[1])
    yield Row("two workers against twice one", round(scaling, 3), "times", "≥ 0.8")
    for workers in WORKERS:
        hours = BILLION / (rates[1] * workers * (1 if workers == 1 else EFFICIENCY)) / 3600
        yield Row(f"10⁹ rows on paper, {workers} workers", round(hours, 1), "h")
    yield Row("load average over the last 15 minutes", os.getloadavg()[2], "processes")


def long_table(context: BenchmarkContext) -> Iterator[Row]:
    """Memory of gpn predict over twenty million rows, CSV to CSV, by a small model."""
    rows = context.size(LONG_ROWS, LONG_CHUNK)
    with tempfile.TemporaryDirectory() as folder:
        path, new, out = (Path(folder) / name for name in ("m.gpn", "new.csv", "out.csv"))
        model(5, labels=LONG_LABELS).save(path)
        text = table(LONG_CHUNK, 5, 2).drop(columns="y").round(4).to_csv(index=False)
        head, body = text.split("\n", 1)
        with new.open("w") as file:
            file.write(f"{head}\n")
            for _ in range(rows // LONG_CHUNK):
                file.write(body)
        command = [sys.executable, "-m", "gpn", "predict", str(path), str(new), "--out", str(out)]
        seconds, memory = watch(command, {**os.environ, "PYTHONWARNINGS": "ignore"})
    half = len(memory) // 2
    first, second = max(memory[:half], default=0.0), max(memory[half:], default=0.0)
    growth = round(second / max(first, 1e-9), 4)
    yield Row(
        f"gpn predict, {rows:,} rows of 5 columns, CSV to CSV", round(rows / seconds), "rows/s"
    )
    yield Row("peak memory, first half of the time", round(first, 1), "MB")
    yield Row("peak memory, second half of the time", round(second, 1), "MB")
    yield Row("second half against first", growth, "times", "≤ 1.05")
    yield Row("load average over the last 15 minutes", os.getloadavg()[2], "processes")


class Parts(Sequence[pd.DataFrame]):
    """Partitions that are made when they are read: memory holds one."""

    def __init__(self, rows: int) -> None:
        self.size = min(rows, PART_ROWS)
        self.count = rows // self.size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: Any) -> Any:
        if number >= self.count:
            raise IndexError(number)
        return table(self.size, FIT_COLUMNS, number)


def partitions(context: BenchmarkContext) -> Iterator[Row]:
    """A fit over partitions of half a million labels by twenty columns; ten million on paper."""
    few, many = context.size(FIT_ROWS // 5, 6000), context.size(FIT_ROWS, 12_000)
    options = {"landmarks": 50, "sample_rows": 2100} if context.quick else {}
    seconds: dict[int, float] = {}
    processor: dict[int, float] = {}
    for rows in (few, many):
        started, used = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_partitions(Parts(rows), "y", **options)
        seconds[rows] = time.perf_counter() - started
        processor[rows] = time.process_time() - used
        yield Row(f"{rows:,} labels: time", round(seconds[rows], 1), "s")
        yield Row(f"{rows:,} labels: processor time", round(processor[rows], 1), "s")
    for what, taken in (("time", seconds), ("processor time", processor)):
        each = max(taken[many] - taken[few], 0.0) / (many - few)
        total = taken[few] + each * (MANY_ROWS - few)
        yield Row(f"{MANY_ROWS:,} labels on paper: {what}", round(total, 1), "s", "≤ 600 s")
    peak = importlib.import_module("resource").getrusage(0).ru_maxrss / 1024
    yield Row("peak memory of the process", round(peak, 1), "MB", "≤ 4096 MB")
    yield Row("threads of torch", torch.get_num_threads(), "threads")
    yield Row("load average over the last 15 minutes", os.getloadavg()[2], "processes")
