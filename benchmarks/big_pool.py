"""Peak memory of fits and predictions while a pool on disk grows, and how fast its rows are read.

Every number comes from a process of its own (`python -m benchmarks.big_pool WORK FILE`) that works
on one file. Memory is the largest resident set (VmHWM): rows are read into buffers and never
mapped, so that nothing of the file is left out of it.
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
from benchmarks.harness import Row
from benchmarks.place import Place

FEWEST, MOST = 100_000, 10_000_000
FEATURES, LABELS, STEPS, BATCH = 81, 1000, 100, 256
TRAIN = gpn.TrainConfig(steps=STEPS, pool_batch=BATCH, device="cpu")
TRUNK = gpn.MLPTrunk(widths=(64, 64))


def chunks(n: int, most: int = 50_000) -> Iterator[np.ndarray]:
    """`n` rows, a few at once."""
    rng = np.random.default_rng(0)
    for first in range(0, n, most):
        yield rng.standard_normal((min(most, n - first), FEATURES), dtype=np.float32)


def write_npy(path: Path, n: int) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": (n, FEATURES)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for rows in chunks(n):
            file.write(rows.data)


def write_parquet(path: Path, n: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"x{i}" for i in range(FEATURES)]
    schema = pa.schema([(name, pa.float32()) for name in names])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for rows in chunks(n):
            file.write_table(pa.Table.from_arrays([pa.array(c) for c in rows.T], schema=schema))


def labels() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(1).standard_normal((LABELS, FEATURES))
    return x, x[:, 0] + np.sin(x[:, 1])


def fresh_rows(path: Path) -> dict[str, float]:
    """Learnt codes: every step reads new rows."""
    x, y = labels()
    config = gpn.GPNConfig.paper(n_anchors=20, trunk=TRUNK, train=TRAIN)
    task = gpn.Task(x.astype(np.float32), y.astype(np.float32), pool=gpn.DiskPool(path))
    posterior = gpn.GPN(config).fit(task, rng=0, progress=False)
    return {"steps_per_second": STEPS / posterior.fit_report.history.seconds}


def default_fit(path: Path) -> dict[str, float]:
    """A fit by an estimator, a small one: rows are scaled, judged, weighed and kept as ever."""
    x, y = labels()
    config = gpn.GPNConfig(anchor="independent", beta=0.1, noise_std=0.1, trunk=TRUNK, train=TRAIN)
    model = gpn.GPNRegressor(config, device="cpu", random_state=0)
    model.fit(x, y, X_unlabeled=gpn.DiskPool(path))
    return {}


def predictions(path: Path) -> dict[str, float]:
    """Flags of all rows of a file, in pieces."""
    return _flags(gpn.DiskPool(path))


def mapped(path: Path) -> dict[str, float]:
    """Flags of all rows of a memory-mapped array, in pieces."""
    return _flags(np.load(path, mmap_mode="r"))


def _flags(rows: gpn.DiskPool | np.ndarray) -> dict[str, float]:
    x, y = labels()
    config = gpn.GPNConfig(
        anchor="independent",
        beta=0.1,
        noise_std=0.1,
        pool_weights="equal",
        trunk=TRUNK,
        train=TRAIN.replace(steps=20),
    )
    model = gpn.GPNRegressor(config, device="cpu", random_state=0).fit(x, y, X_unlabeled=x)
    started = time.perf_counter()
    flags = model.is_ood(rows)
    return {"rows_per_second": len(flags) / (time.perf_counter() - started)}


def draws(path: Path) -> dict[str, float]:
    """Nothing but draws, in the order of a training."""
    rng = torch.Generator().manual_seed(0)
    drawn = gpn.DiskPool(path).draws(BATCH, rng)
    drawn.next(rng)
    started = time.perf_counter()
    for _ in range(STEPS):
        drawn.next(rng)
    seconds = time.perf_counter() - started
    drawn.close()
    return {"rows_per_second": STEPS * BATCH / seconds}


WORK: dict[str, Callable[[Path], dict[str, float]]] = {
    work.__name__: work for work in (draws, fresh_rows, default_fit, predictions, mapped)
}
WRITERS = {".npy": write_npy, ".parquet": write_parquet}
JOBS = {".npy": tuple(WORK), ".parquet": ("draws", "fresh_rows")}


def in_own_process(work: str, path: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.big_pool", work, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def peak_megabytes() -> float:
    """The largest resident set of this process; only Linux says it."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def big_pool(place: Place) -> Iterator[Row]:
    """Peak memory as a pool on disk grows a hundredfold, and the speed of reading it."""
    sizes = (FEWEST, MOST) if not place.quick else (1000, 2000)
    kinds = JOBS if not place.quick else {".npy": ("draws",)}
    with tempfile.TemporaryDirectory() as folder:
        for kind, works in kinds.items():
            for work in works:
                found = [measured(work, kind, n, Path(folder)) for n in sizes]
                for n, numbers in zip(sizes, found, strict=True):
                    yield from _rows(f"{work}, {n:,} rows of {FEATURES} float32 in {kind}", numbers)
                small, large = (numbers["megabytes"] for numbers in found)
                what = f"{work}, {kind}: memory at the largest over that at the smallest"
                yield Row(what, round(large / small, 3), "times", "at most 1.2 wanted")


def measured(work: str, kind: str, n: int, folder: Path) -> dict[str, float]:
    """What one job says of a pool of `n` rows, whose file is written where it is missing."""
    path = folder / f"{n}{kind}"
    if not path.exists():
        WRITERS[kind](path, n)
    return in_own_process(work, path)


def _rows(what: str, numbers: dict[str, float]) -> Iterator[Row]:
    units = {
        "megabytes": ("peak memory", "MB"),
        "seconds": ("whole process", "s"),
        "steps_per_second": ("training", "steps/s"),
        "rows_per_second": ("throughput", "rows/s"),
    }
    for name, (label, unit) in units.items():
        if name in numbers:
            yield Row(f"{what}: {label}", round(numbers[name], 1), unit)


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in WORK:
        sys.exit(
            f"this must be given one of {', '.join(WORK)}, and a file; for all of them try "
            "python -m benchmarks run big_pool."
        )
    started = time.perf_counter()
    found = WORK[sys.argv[1]](Path(sys.argv[2]))
    found |= {"megabytes": peak_megabytes(), "seconds": time.perf_counter() - started}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
