"""A thousand fits in one process: memory and open files after each hundred.

    python -m experiments.thousand_fits

Small tables in turn: numbers, classes, a frame with categories, and every tenth a trained network;
each model is saved, loaded and asked. Resident memory and file descriptors are those of Linux.
Takes some minutes; writes `results/thousand_fits.json`.
"""

import gc
import os
import resource
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gpn
from experiments import harness

FITS, EVERY = 1000, 100
TRAIN = gpn.TrainConfig(steps=5, label_batch=8, pool_batch=8, device="cpu")
NETWORK = gpn.GPNConfig(trunk=gpn.MLPTrunk(widths=(8,)), train=TRAIN, n_axes=4, beta=0.1)


def one_fit(number: int, path: Path) -> None:
    """Fit, save, load, ask."""
    rng = np.random.default_rng(number)
    x = rng.normal(size=(24, 2))
    new: Any = rng.normal(size=(20, 2))
    options: dict[str, Any] = {"random_state": number}
    if number % 10 == 3:
        model = gpn.GPNRegressor(NETWORK, **options).fit(x, x[:, 0], x)
    elif number % 3 == 0:
        model = gpn.GPNClassifier(mean=None, **options).fit(x, x[:, 0] > 0, x)
    elif number % 3 == 1:
        frame, new = (pd.DataFrame(rows, columns=["a", "b"]) for rows in (x, new))
        frame, new = frame.assign(c=["p", "q"] * 12), new.assign(c=["p", "q"] * 10)
        model = gpn.GPNRegressor(mean=None, **options).fit(frame, x[:, 0])
    else:
        model = gpn.GPNRegressor(mean=None, **options).fit(x, x[:, 0], x)
    model.save(path)
    loaded = gpn.load(path)
    loaded.predict(new), loaded.is_ood(new)


def measured(fits: int, every: int) -> Iterator[dict[str, float]]:
    """Memory and file descriptors after each so many fits."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(fits):
            one_fit(number, Path(folder) / "m.gpn")
            if (number + 1) % every == 0:
                gc.collect()
                yield {"fits": number + 1, "megabytes": resident(), "files": open_files()}


def resident() -> float:
    """Megabytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def growth(rows: list[dict[str, float]]) -> dict[str, float]:
    """From a fifth of the fits to all of them."""
    first, last = rows[max(0, len(rows) // 5 - 1)], rows[-1]
    return {
        "megabytes": round(last["megabytes"] - first["megabytes"], 1),
        "files": last["files"] - first["files"],
    }


def main() -> None:
    warnings.simplefilter("ignore")
    rows = []
    for row in measured(FITS, EVERY):
        print(row, flush=True)
        rows.append(row)
    content = {"fits": FITS, "growth": growth(rows), "rows": rows, "versions": harness.versions()}
    harness.save(harness.RESULTS / "thousand_fits.json", content)


if __name__ == "__main__":
    main()
