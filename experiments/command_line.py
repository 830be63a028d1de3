"""The gpn command line on the superconductor table, end to end with defaults, timed.

    python -m experiments.command_line --data FOLDER

A random fifth of the rows is for testing. Labels are the training rows from 13.9 K on, the pool is
all training rows without target. Writes `results/superconductor/command-line.json`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments import harness
from experiments.paper.tasks.superconductor import THRESHOLD_KELVIN
from gpn import data

TARGET = "critical_temp"
COMMANDS = {
    "fit": ["labeled.csv", "--target", TARGET, "--unlabeled", "pool.csv", "--out", "tc.gpn"],
    "predict": ["tc.gpn", "new.csv", "--out", "scored.csv"],
    "evaluate": ["tc.gpn", "test.csv", "--ood", "ood.csv"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the data folder (else GPN_DATA)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, options.data)
        output, seconds = {}, {}
        for command, arguments in COMMANDS.items():
            output[command], seconds[command] = run(command, arguments, folder)
            print(command, f"{seconds[command]:.0f} s", output[command], flush=True)
    report = {
        "device": harness.hardware(torch.device("cpu")),
        "versions": harness.versions(),
        "seconds": {**seconds, "all": sum(seconds.values())},
        "metrics": output["evaluate"],
    }
    print(harness.save(harness.RESULTS / "superconductor" / "command-line.json", report))


def write_tables(folder: Path, source: Path | None) -> None:
    """labeled, pool, new, test and ood, as CSV."""
    import pandas as pd

    table = data.superconductivity(source)
    frame = pd.DataFrame(table.x.numpy(), columns=table.columns).assign(**{TARGET: table.y.numpy()})
    order = np.random.default_rng(0).permutation(len(frame))
    train, test = (frame.iloc[rows] for rows in np.split(order, [int(0.8 * len(frame))]))
    tables = {
        "labeled": train[train[TARGET] >= THRESHOLD_KELVIN],
        "pool": train.drop(columns=TARGET),
        "new": test.drop(columns=TARGET),
        "test": test[test[TARGET] >= THRESHOLD_KELVIN],
        "ood": test[test[TARGET] < THRESHOLD_KELVIN].drop(columns=TARGET),
    }
    for name, rows in tables.items():
        rows.to_csv(folder / f"{name}.csv", index=False)


def run(command: str, arguments: list[str], folder: Path) -> tuple[Any, float]:
    """What the command prints as JSON, and its seconds."""
    started = time.perf_counter()
    words = [sys.executable, "-m", "gpn", command, *arguments, "--json"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), time.perf_counter() - started


if __name__ == "__main__":
    main()
