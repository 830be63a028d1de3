"""Peak memory of fits and predictions as a pool on disk grows, and the speed of reading it.

Every number comes from a process of its own (`python -m benchmarks.big_pool WORK FILE`) on one
file. Memory is the largest resident set (VmHWM): rows are read into buffers and never mapped, so
that it includes all that is read of the file.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

import gpn
from benchmarks.context import BenchmarkContext
from benchmarks.harness import Row, memory_megabytes

SIZES, QUICK_SIZES = (100_000, 10_000_000), (1000, 2000)
N_FEATURES, N_LABELS, STEPS, BATCH, CHUNK_ROWS = 81, 1000, 100, 256, 50_000
TRAIN = gpn.TrainConfig(steps=STEPS, pool_batch=BATCH, device="cpu")
TRUNK = gpn.MLPTrunk(widths=(64, 64))
SMALL = gpn.GPNConfig(anchor="independent", beta=0.1, noise_std=0.1, trunk=TRUNK, train=TRAIN)
UNITS = {
    "megabytes": ("peak memory", "MB"),
    "seconds": ("whole process", "s"),
    "steps_per_second": ("training", "steps/s"),
    "rows_per_second": ("throughput", "rows/s"),
}
Numbers = dict[str, float]


def chunks(n: int) -> Iterator[np.ndarray]:
    """`n` random rows in chunks."""
    rng = np.random.default_rng(0)
    for first in range(0, n, CHUNK_ROWS):
        yield rng.standard_normal((min(CHUNK_ROWS, n - first), N_FEATURES), dtype=np.float32)


def write_npy(path: Path, n: int) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": (n, N_FEATURES)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for rows in chunks(n):
            file.write(rows.data)


def write_parquet(path: Path, n: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(f"x{i}", pa.float32()) for i in range(N_FEATURES)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for rows in chunks(n):
            file.write_table(pa.Table.from_arrays([pa.array(c) for c in rows.T], schema=schema))


def labels() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(1).standard_normal((N_LABELS, N_FEATURES))
    return x, x[:, 0] + np.sin(x[:, 1])


def draws(path: Path) -> Numbers:
    """Pool rows as a training run draws them, and nothing else."""
    rng = torch.Generator().manual_seed(0)
    stream = gpn.DiskPool(path).draws(BATCH, rng)
    stream.next(rng)
    started = time.perf_counter()
    for _ in range(STEPS):
        stream.next(rng)
    seconds = time.perf_counter() - started
    stream.close()
    return {"rows_per_second": STEPS * BATCH / seconds}


def fresh_rows(path: Path) -> Numbers:
    """A fit with learnt codes: every step reads new rows."""
    x, y = labels()
    config = gpn.GPNConfig.paper(n_anchors=20, trunk=TRUNK, train=TRAIN)
    task = gpn.Task(x.astype(np.float32), y.astype(np.float32), pool=gpn.DiskPool(path))
    posterior = gpn.GPN(config).fit(task, rng=0, progress=False)
    return {"steps_per_second": STEPS / posterior.fit_report.history.seconds}


def default_fit(path: Path) -> Numbers:
    """A small fit by an estimator, with scaling and pool weights."""
    model = gpn.GPNRegressor(SMALL, device="cpu", random_state=0)
    model.fit(*labels(), X_unlabeled=gpn.DiskPool(path))
    return {}


def predictions(path: Path) -> Numbers:
    """OOD flags of all rows of a file, in chunks."""
    return _flags(gpn.DiskPool(path))


def mapped(path: Path) -> Numbers:
    """OOD flags of all rows of a memory-mapped array, in chunks."""
    return _flags(np.load(path, mmap_mode="r"))


def _flags(rows: gpn.DiskPool | np.ndarray) -> Numbers:
    x, y = labels()
    config = SMALL.replace(pool_weights="equal", train=TRAIN.replace(steps=20))
    model = gpn.GPNRegressor(config, device="cpu", random_state=0).fit(x, y, X_unlabeled=x)
    started = time.perf_counter()
    flags = model.is_ood(rows)
    return {"rows_per_second": len(flags) / (time.perf_counter() - started)}


WORK: dict[str, Callable[[Path], Numbers]] = {
    work.__name__: work for work in (draws, fresh_rows, default_fit, predictions, mapped)
}
WRITERS = {".npy": write_npy, ".parquet": write_parquet}
JOBS = {".npy": tuple(WORK), ".parquet": ("draws", "fresh_rows")}


def big_pool(context: BenchmarkContext) -> Iterator[Row]:
    """Peak memory as a pool on disk grows a hundredfold, and the speed of reading it."""
    sizes, jobs = (QUICK_SIZES, {".npy": ("draws",)}) if context.quick else (SIZES, JOBS)
    with tempfile.TemporaryDirectory() as folder:
        for kind, works in jobs.items():
            files = {n: Path(folder) / f"{n}{kind}" for n in sizes}
            for n, path in files.items():
                WRITERS[kind](path, n)
            for work in works:
                memory = []
                for n, path in files.items():
                    numbers = in_own_process(work, path)
                    memory.append(numbers["megabytes"])
                    what = f"{work}, {n:,} rows of {N_FEATURES} float32 in {kind}"
                    for name, (label, unit) in UNITS.items():
                        if name in numbers:
                            yield Row(f"{what}: {label}", round(numbers[name], 1), unit)
                what = f"{work}, {kind}: memory at the largest over that at the smallest"
                growth = round(memory[-1] / memory[0], 3)
                yield Row(what, growth, "times", "at most 1.2 wanted")


def in_own_process(work: str, path: Path) -> Numbers:
    command = [sys.executable, "-m", "benchmarks.big_pool", work, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in WORK:
        sys.exit(
            f"arguments must be one of {', '.join(WORK)} and a file; to run all of them, try "
            "python -m benchmarks run big_pool."
        )
    started = time.perf_counter()
    numbers = WORK[sys.argv[1]](Path(sys.argv[2]))
    seconds = time.perf_counter() - started
    memory = memory_megabytes("VmHWM")
    print(json.dumps({**numbers, "megabytes": memory, "seconds": seconds}))


if __name__ == "__main__":
    main()
