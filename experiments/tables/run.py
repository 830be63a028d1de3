"""Run the suite; a finished split of the present settings is not run again."""

import itertools
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from experiments import harness
from experiments.tables.data import read_table
from experiments.tables.methods import METHODS, Machine
from experiments.tables.methods.base import package
from experiments.tables.predictive import measure
from gpn import TrainConfig

Row = dict[str, Any]
NOT_METRICS = {"split", "n_train", "n_test", "n_columns", "device"}


@dataclass(frozen=True)
class Job:
    """One split of one table for one method."""

    table: str
    method: str
    split: int
    folder: Path | None
    device: str
    threads: int


def run_suite(jobs: Iterable[Job], processes: int) -> None:
    """Every job that is not finished, `processes` at a time; each result is saved at once.

    A job that fails does not stop the others; their number is the exit message.
    """
    left = [job for job in jobs if job.split not in finished_rows(job.table, job.method)]
    failed = 0
    for count, (job, row) in enumerate(_rows(left, processes), start=1):
        what = f"[{count}/{len(left)}] {job.table} {job.method} split {job.split}"
        if isinstance(row, str):
            failed += 1
            print(f"{what} failed: {row}", flush=True)
            continue
        save_row(job.table, job.method, row)
        said = f"rmse {row['rmse']:.4g}, nll {row['nll']:.4g}, coverage {row['coverage_95']:.1%}"
        print(f"{what}: {said}, {row['fit_seconds']:.1f} s", flush=True)
    if failed:
        raise SystemExit(f"error: {failed} of {len(left)} splits failed, as said above.")


def _rows(jobs: list[Job], processes: int) -> Iterator[tuple[Job, Row | str]]:
    if processes == 1:
        yield from ((job, _try_split(job)) for job in jobs)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as workers:
        futures = {workers.submit(_try_split, job): job for job in jobs}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _try_split(job: Job) -> Row | str:
    """The row, or where it failed."""
    try:
        return run_split(job)
    except Exception:
        return traceback.format_exc()


def all_jobs(
    tables: Iterable[str],
    methods: Iterable[str],
    splits: list[int] | None,
    folder: Path | None,
    device: str,
    threads: int,
) -> list[Job]:
    """The largest tables first, so that no long fit is left for the end."""
    read = sorted((read_table(name, folder) for name in tables), key=lambda one: -one.x.size)
    return [
        Job(table.name, method, split, folder, device, threads)
        for table, method in itertools.product(read, methods)
        for split in table.splits
        if splits is None or split in splits
    ]


def run_split(job: Job) -> Row:
    """Fit, predict, measure."""
    method = METHODS[job.method]
    device = TrainConfig(device=job.device if method.uses_gpu else "cpu").pick_device()
    torch.set_num_threads(job.threads)
    split = read_table(job.table, job.folder).split(job.split)
    with threadpool_limits(job.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        predict = method.fit(split.x, split.y, seed=job.split, machine=Machine(device, job.threads))
        _wait_for(device)
        fitted = time.perf_counter()
        predicted = predict(split.x_test)
        ended = time.perf_counter()
        measured = measure(predicted, split.y_test)
    return {
        "split": job.split,
        "n_train": len(split.y),
        "n_test": len(split.y_test),
        "n_columns": split.x.shape[1],
        "device": harness.hardware(device),
        **measured,
        "fit_seconds": fitted - started,
        "predict_seconds": ended - fitted,
    }


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def result_file(table: str, method: str) -> Path:
    return harness.RESULTS / "tables" / table / f"{method}.json"


def finished_rows(table: str, method: str) -> dict[int, Row]:
    """What was measured with the present settings, by split."""
    report = harness.load(result_file(table, method)) or {}
    if report.get("config") != harness.plain(METHODS[method]):
        return {}
    return {row["split"]: row for row in report["rows"]}


def save_row(table: str, method: str, row: Row) -> Path:
    """Add a split to the method's file."""
    by_split = {**finished_rows(table, method), row["split"]: row}
    rows = [by_split[split] for split in sorted(by_split)]
    metrics = [{name: row[name] for name in row if name not in NOT_METRICS} for row in rows]
    extra = {
        "device": " and ".join(dict.fromkeys(row["device"] for row in rows)),
        "versions": {**harness.versions(), **_package_versions(method)},
        "rows": rows,
    }
    seconds = {
        name: harness.summary([row[f"{name}_seconds"] for row in rows])["mean"]
        for name in ("fit", "predict")
    }
    return harness.write_result(
        f"tables/{table}", method, METHODS[method], sorted(by_split), metrics, seconds, extra
    )


def _package_versions(method: str) -> dict[str, str]:
    return {name: package(name).__version__ for name in METHODS[method].packages}
