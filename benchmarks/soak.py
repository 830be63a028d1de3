"""Memory and throughput of `gpn predict` over five million rows.

The command runs as a process of its own; its resident memory is read every second (Linux).
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import gpn
from benchmarks.context import BenchmarkContext
from benchmarks.harness import Row, memory_megabytes
from gpn.tables.model import fit_table

N_ROWS, N_COLUMNS, CHUNK_ROWS = 5_000_000, 8, 20_000
INTERVAL_SECONDS, MAX_GROWTH = 1.0, 1.05
CONFIG = gpn.GPNConfig(
    anchor="independent",
    beta=0.1,
    noise_std=0.1,
    train=gpn.TrainConfig(steps=100, label_batch=64, pool_batch=64, device="cpu"),
)


def table(n: int, seed: int, spread: float = 1.0) -> pd.DataFrame:
    values = np.random.default_rng(seed).uniform(-spread, spread, (n, N_COLUMNS))
    frame = pd.DataFrame(values, columns=[f"x{i}" for i in range(N_COLUMNS)])
    return frame.assign(y=np.sin(3 * frame["x0"]) + frame["x1"] * frame["x2"])


def write_model(path: Path) -> None:
    pool = table(2000, 1, 2.0).drop(columns="y")
    fit_table(table(500, 0), "y", pool, config=CONFIG, random_state=0).save(path)


def write_rows(path: Path, rows: int) -> None:
    """A CSV of so many rows, one chunk repeated."""
    chunk = table(min(rows, CHUNK_ROWS), 2, 1.5).drop(columns="y")
    head, body = chunk.to_csv(index=False, float_format="%.5f").split("\n", 1)
    lines = body.splitlines(keepends=True)
    with path.open("w") as file:
        file.write(head + "\n")
        for first in range(0, rows, CHUNK_ROWS):
            file.writelines(lines[: rows - first])


def watch(command: list[str], env: dict[str, str]) -> tuple[float, list[float]]:
    """The seconds of the command, and its memory at every second."""
    started, memory = time.monotonic(), []
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    while child.poll() is None:
        if (now := memory_megabytes("VmRSS", child.pid)) is not None:
            memory.append(now)
        time.sleep(INTERVAL_SECONDS)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} must end well, got status {child.returncode}.")
    return time.monotonic() - started, memory


def soak(context: BenchmarkContext) -> Iterator[Row]:
    """Memory and throughput of `gpn predict` over five million rows."""
    rows = context.size(N_ROWS, CHUNK_ROWS)
    with tempfile.TemporaryDirectory() as folder:
        model, new, scored = (Path(folder) / name for name in ("m.gpn", "new.csv", "scored.csv"))
        write_model(model)
        write_rows(new, rows)
        command = [sys.executable, "-m", "gpn", "predict", str(model), str(new)]
        env = {**os.environ, "PYTHONWARNINGS": "ignore"}
        seconds, memory = watch([*command, "--out", str(scored)], env)
        written = scored.stat().st_size / 1e6
    yield from report(rows, seconds, memory, written)


def report(rows: int, seconds: float, memory: list[float], written: float) -> list[Row]:
    half = len(memory) // 2
    first, second = max(memory[:half], default=0.0), max(memory[half:], default=0.0)
    what = f"gpn predict, {rows:,} rows of {N_COLUMNS} columns, CSV to CSV"
    growth = round(second / max(first, 1e-9), 4)
    return [
        Row(f"{what}: time", round(seconds, 1), "s"),
        Row(f"{what}: throughput", round(rows / seconds), "rows/s"),
        Row(f"{what}: written", round(written, 1), "MB"),
        Row("peak memory, first half of the time", round(first, 1), "MB"),
        Row("peak memory, second half of the time", round(second, 1), "MB"),
        Row("second half against first", growth, "times", f"≤ {MAX_GROWTH}"),
    ]
