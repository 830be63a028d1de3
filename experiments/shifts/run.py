"""Run the suite: one file for each table and method; finished ones are not run again."""

import time
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from experiments import harness
from experiments.shifts.data import CLASSES, POOLS, Cell, Rows, cells, read
from experiments.shifts.methods import METHODS, Fitted, ShiftMethod
from gpn.estimators.ood.pool import auc

TEST_FOLD = 0


def run_suite(tables: Iterable[str], methods: list[str], folder: Path | None) -> None:
    """Every table and method without a result file, on one thread."""
    for table in tables:
        for method in methods:
            if result_file(table, method).exists():
                continue
            with threadpool_limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                row, seconds = measured(table, method, folder)
            config = {"test_fold": TEST_FOLD, "method": method}
            harness.write_result(f"shifts/{table}", method, config, [0], [row], {"fit": seconds})
            areas = [value for name, value in row.items() if name.startswith("auc/")]
            print(f"{table} {method}: mean AUC {np.mean(areas):.3f}, {seconds:.1f} s", flush=True)


def result_file(table: str, method: str) -> Path:
    return harness.RESULTS / "shifts" / table / f"{method}.json"


def measured(table: str, method: str, folder: Path | None) -> tuple[dict[str, float], float]:
    """Metrics by shift and pool, and the seconds of a fit."""
    row: dict[str, float] = {}
    alarms: dict[str, list[float]] = {pool: [] for pool in POOLS}
    seconds: list[float] = []
    earlier: dict[tuple[int, bytes], Fitted] = {}
    for cell in cells(read(table, folder), TEST_FOLD):
        for pool in POOLS:
            unlabeled = cell.pools[pool] if METHODS[method].takes_pool else None
            key = hash_of(cell, unlabeled)
            if key not in earlier:
                started = time.perf_counter()
                earlier[key] = fitted(
                    METHODS[method], cell, unlabeled, has_classes=table in CLASSES
                )
                seconds.append(time.perf_counter() - started)
            found = earlier[key]
            known, shifted = found.score(cell.known), found.score(cell.shifted)
            row[f"auc/{cell.shift}/{pool}"] = auc(known, shifted)
            row[f"fpr95/{cell.shift}/{pool}"] = fpr95(known, shifted)
            row[f"flagged/{cell.shift}/{pool}"] = float((shifted > found.threshold).mean())
            alarms[pool].append(float((known > found.threshold).mean()))
    row |= {f"false_alarms/{pool}": float(np.mean(alarms[pool])) for pool in POOLS}
    return row, float(np.mean(seconds))


def fitted(method: ShiftMethod, cell: Cell, pool: Rows | None, *, has_classes: bool) -> Fitted:
    """By the targets too, where the method takes them and they are numbers."""
    if method.fit_targets is None or has_classes:
        return method.fit(cell.labels, pool, 0)
    return method.fit_targets(cell.labels, cell.targets, pool, 0)


def hash_of(cell: Cell, pool: Rows | None) -> tuple[int, bytes]:
    """The same for the same labels and pool."""
    return len(cell.labels), cell.labels.tobytes() + (b"" if pool is None else pool.tobytes())


def fpr95(known: Rows, shifted: Rows) -> float:
    """The share of known rows at or above the score that 95 % of shifted rows reach."""
    return float((known >= np.quantile(shifted, 0.05)).mean())
