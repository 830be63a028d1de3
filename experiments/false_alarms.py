"""Do thresholds hold their promise? False alarms of `is_ood` on new known rows of thirty data sets.

    python -m experiments.false_alarms --tables FOLDER --jobs 2

The data sets are the twenty regression tables, scikit-learn's iris, wine, breast cancer and digits,
and six that are simulated. For each, n random rows are labeled and up to 1,000 others are new. A
threshold that n labels set cannot hold its share exactly on every data set: over data sets the
share has the standard deviation √(f (1 − f) (1/(n + 2) + 1/m)) at best, for m new rows. Writes
`results/false_alarms.json`.
"""

import argparse
import statistics
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_friedman1

from experiments import harness
from experiments.shifts.data import CLASSES, names, read
from gpn import GPNClassifier, GPNRegressor

Rows = NDArray[np.float64]

SIZES = (20, 50, 200, 1000)
SHARES = (0.05, 0.01)
MIN_NEW, MAX_NEW = 80, 1000
SIMULATED_ROWS = 2500
RESULT = harness.RESULTS / "false_alarms.json"


def simulated(name: str) -> tuple[Rows, Rows]:
    """Rows of a known distribution, and targets."""
    rng = np.random.default_rng(7)
    n = SIMULATED_ROWS
    if name == "friedman":
        x, y = make_friedman1(n, noise=1.0, random_state=7)
        return x, y
    if name == "uniform":
        x = rng.uniform(-1, 1, (n, 2))
    elif name == "correlated":
        x = rng.standard_normal((n, 6)) @ rng.standard_normal((6, 6))
    elif name == "log-normal":
        x = np.exp(rng.standard_normal((n, 4)))
    elif name == "clusters":
        x = 4 * rng.standard_normal((5, 3))[rng.integers(5, size=n)] + rng.standard_normal((n, 3))
    else:
        x = np.c_[rng.standard_normal((n, 3)), rng.integers(4, size=(n, 3))].astype(float)
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.3 * rng.standard_normal(n)
    return x, y


SIMULATED = ("friedman", "uniform", "correlated", "log-normal", "clusters", "mixed types")


def jobs(folder: Path | None) -> Iterator[tuple[str, int, int, Path | None]]:
    """Few labels take little time and vary most: four choices of labels, of more labels one."""
    for name in (*names(folder), *SIMULATED):
        n_rows = SIMULATED_ROWS if name in SIMULATED else len(read(name, folder).y)
        for size in SIZES:
            if n_rows >= size + MIN_NEW:
                yield from ((name, size, seed, folder) for seed in range(4 if size <= 50 else 1))


def measured(name: str, size: int, seed: int, folder: Path | None) -> dict[str, Any]:
    """The share of new known rows that are flagged."""
    torch.set_num_threads(1)
    if name in SIMULATED:
        x, y = simulated(name)
    else:
        table = read(name, folder)
        x, y = table.x, table.y
    order = np.random.default_rng(seed).permutation(len(y))
    labeled, new = order[:size], order[size:][:MAX_NEW]
    model: Any = GPNRegressor(random_state=seed)
    if name in CLASSES:
        model = GPNClassifier(random_state=seed)
        y = y.astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[labeled], y[labeled])
        shares = {f"{f:g}": float(model.is_ood(x[new], fpr=f).mean()) for f in SHARES}
    return {"name": name, "n": size, "seed": seed, "new": len(new), "shares": shares}


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By number of labels and promised share: the mean, and the spread against the best."""
    found = []
    for size in SIZES:
        own = [row for row in rows if row["n"] == size]
        for share in SHARES if own else ():
            got = [row["shares"][f"{share:g}"] for row in own]
            inverse = 1 / (size + 2) + statistics.fmean(1 / row["new"] for row in own)
            found.append(
                {
                    "n": size,
                    "promised": share,
                    "mean": statistics.fmean(got),
                    "spread": statistics.stdev(got),
                    "least_spread": (share * (1 - share) * inverse) ** 0.5,
                    "above_twice": statistics.fmean(one > 2 * share for one in got),
                    "fits": len(own),
                    "data_sets": len({row["name"] for row in own}),
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="the folder of tables (else GPN_DATA/tables)")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of labels")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    every = [job for job in jobs(options.tables) if job[1] in options.sizes]
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as workers:
        rows = list(workers.map(measured, *zip(*every, strict=True)))
    found = summary(rows)
    report = {"device": harness.hardware(), "versions": harness.versions(), "summary": found}
    harness.save(options.out, {**report, "rows": rows})
    heads = ["labels", "promised", "mean", "spread", "least", "above twice", "fits"]
    lines = [
        [
            str(one["n"]),
            f"{one['promised']:.0%}",
            f"{one['mean']:.2%}",
            f"{one['spread']:.2%}",
            f"{one['least_spread']:.2%}",
            f"{one['above_twice']:.0%}",
            str(one["fits"]),
        ]
        for one in found
    ]
    print(harness.markdown(heads, lines))


if __name__ == "__main__":
    main()
