"""Peak memory of fits and predictions while a pool on disk grows, and how fast its rows are read.

Run `python -m benchmarks.big_pool`; it writes results/big_pool.json. Every number comes from a
process of its own that works on one file. Memory is the largest resident set (VmHWM): rows are read
into buffers and never mapped, so that nothing of the file is left out of it.
"""

import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gpn

SIZES = (100_000, 10_000_000)
FEATURES, LABELS, STEPS, BATCH = 81, 1000, 100, 256
PREDICTED = 300_000
OUT = Path(__file__).parent / "results" / "big_pool.json"
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
    return {"steps_per_second": STEPS / posterior.report["history"].seconds}


def default_fit(path: Path) -> dict[str, float]:
    """The estimator's own choice but for β and the noise, which it would search by such fits."""
    x, y = labels()
    config = gpn.GPNConfig(anchor="independent", beta=0.1, noise_std=0.1, trunk=TRUNK, train=TRAIN)
    model = gpn.GPNRegressor(config, device="cpu", random_state=0)
    model.fit(x, y, X_unlabeled=gpn.DiskPool(path))
    return {}


def predictions(path: Path) -> dict[str, float]:
    """Flags of all rows of a file, in pieces."""
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
    flags = model.is_ood(gpn.DiskPool(path))
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
    work.__name__: work for work in (draws, fresh_rows, default_fit, predictions)
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


def jobs(sizes: tuple[int, ...], kind: str) -> Iterator[dict[str, Any]]:
    """Each job at every size, on files that are there for as long as this runs."""
    with tempfile.TemporaryDirectory() as folder:
        for work in JOBS[kind]:
            for n in sizes:
                rows = min(n, PREDICTED) if work == "predictions" else n
                path = Path(folder) / f"{rows}{kind}"
                if not path.exists():
                    print(f"writing {rows:,} rows as {kind}", file=sys.stderr, flush=True)
                    WRITERS[kind](path, rows)
                print(f"{work}, {rows:,} rows of {kind}", file=sys.stderr, flush=True)
                yield {"work": work, "kind": kind, "n": rows, **in_own_process(work, path)}


def measure(sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """All jobs at all sizes, and how much more memory the largest pool takes than the smallest."""
    return report([job for kind in JOBS for job in jobs(sizes, kind)])


def report(found: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [row for job in found for row in _rows(job)]
    for work, kind in dict.fromkeys((job["work"], job["kind"]) for job in found):
        peaks = [job["megabytes"] for job in found if (job["work"], job["kind"]) == (work, kind)]
        rows.append(
            {
                "what": f"{work}, {kind}: memory at the largest over that at the smallest",
                "value": round(peaks[-1] / peaks[0], 3),
                "unit": "times",
                "against": "at most 1.2 wanted",
            }
        )
    versions = {"gpn": gpn.__version__, "torch": torch.__version__, "numpy": np.__version__}
    versions["python"] = platform.python_version()
    device = f"{torch.get_num_threads()} CPU threads, {platform.machine()}, busy with other work"
    return {"name": "big_pool", "device": device, "versions": versions, "rows": rows}


def _rows(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    what = f"{job['work']}, {job['n']:,} rows of {FEATURES} float32 in {job['kind']}"
    units = {
        "megabytes": ("peak memory", "MB"),
        "seconds": ("whole process", "s"),
        "steps_per_second": ("training", "steps/s"),
        "rows_per_second": ("throughput", "rows/s"),
    }
    for name, (label, unit) in units.items():
        if name in job:
            value = round(job[name], 1)
            yield {"what": f"{what}: {label}", "value": value, "unit": unit, "against": None}


def main() -> None:
    if len(sys.argv) == 3:
        started = time.perf_counter()
        found = WORK[sys.argv[1]](Path(sys.argv[2]))
        found |= {"megabytes": peak_megabytes(), "seconds": time.perf_counter() - started}
        print(json.dumps(found))
        return
    OUT.parent.mkdir(exist_ok=True)
    found: list[dict[str, Any]] = []
    for job in (job for kind in JOBS for job in jobs(SIZES, kind)):
        found.append(job)  # what is known is written at once: the whole takes a while
        OUT.write_text(json.dumps(report(found), indent=2, ensure_ascii=False) + "\n")
    for row in report(found)["rows"]:
        print(f"{row['what']:80s} {row['value']:12} {row['unit']}")


if __name__ == "__main__":
    main()
