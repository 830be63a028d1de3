"""`GPNRegressor` with its defaults on the superconductor table, and the rows that it does not know.

    python -m experiments.superconductor_estimator --data FOLDER --jobs 5

The splits are those of the paper's task, validation rows joined to the training rows. Pools: all
training rows (the paper's), rows without a label and a third of the known ones (`unlabeled`), none,
and the labeled rows with a share of OOD rows among them (`share-0.1`). Writes
`results/superconductor/estimator-<pool>.json`; losses are in units of the full training target's
standard deviation.
"""

import argparse
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from experiments import harness
from experiments.paper.tasks.split import Split
from experiments.paper.tasks.superconductor import superconductor
from gpn import GPNRegressor

SEEDS = range(5)
POOLS = ("usual", "unlabeled", "none", "share-0.1", "share-0.01", "share-0")
Array = np.ndarray[Any, np.dtype[Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the data folder (else GPN_DATA)")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time")
    parser.add_argument("--pools", choices=POOLS, nargs="+", default=POOLS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args()
    seeds = options.seeds
    jobs = [(pool, seed, options.data) for pool in options.pools for seed in seeds]
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    workers = ProcessPoolExecutor(
        options.jobs, get_context("spawn"), initializer=torch.set_num_threads, initargs=(threads,)
    )
    with workers as executor:
        rows = list(executor.map(measured, *zip(*jobs, strict=True)))
    for number, pool in enumerate(options.pools):
        own = rows[number * len(seeds) : (number + 1) * len(seeds)]
        seconds = {"fit": float(np.mean([row.pop("seconds") for row in own]))}
        config = {"pool": pool, "estimator": "GPNRegressor()"}
        path = harness.write_result(
            "superconductor", f"estimator-{pool}", config, list(seeds), own, seconds
        )
        print(path, {name: round(float(np.mean([row[name] for row in own])), 4) for name in own[0]})


def measured(pool: str, seed: int, folder: Path | None) -> dict[str, float]:
    """One fit, and what it says about test rows."""
    split = superconductor(seed, folder)
    labels, targets, unlabeled = merged(split, pool, seed)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPNRegressor(random_state=seed, device="cpu").fit(labels, targets, unlabeled)
    seconds = time.perf_counter() - started
    return {**metrics(model, split), "seconds": seconds}


def merged(split: Split, pool: str, seed: int) -> tuple[Array, Array, Array | None]:
    """Labels of training and validation rows, and the pool."""
    task, valid = split.task, split.valid
    labels = torch.cat([task.x_obs, valid.x_id]).double().numpy()
    targets = torch.cat([task.y_obs, valid.y_id]).double().numpy()[:, 0]
    ood = torch.cat([split.pool_ood, valid.x_ood]).double().numpy()
    if pool == "none":
        return labels, targets, None
    if pool == "usual":
        return labels, targets, np.concatenate([labels, ood])
    if pool.startswith("share-"):
        share = float(pool.removeprefix("share-"))
        count = round(share / (1 - share) * len(labels))
        return labels, targets, np.concatenate([labels, ood[:count]])
    known = np.random.default_rng(seed).random(len(labels)) < 1 / 3  # labels that we do not look at
    return labels[~known], targets[~known], np.concatenate([labels[known], ood])


def metrics(model: GPNRegressor, split: Split) -> dict[str, float]:
    """Errors and intervals of known rows, and how well others are detected."""
    known, ood = (rows.double().numpy() for rows in (split.test.x_id, split.test.x_ood))
    y, y_ood = (rows.double().numpy()[:, 0] for rows in (split.test.y_id, split.test.y_ood))
    said = model.predict_distribution(known)
    low, high = model.predict_interval(known)
    of_function = model.predict_interval(ood, observation_noise=False)
    is_ood = np.r_[np.zeros(len(known)), np.ones(len(ood))]
    every = np.concatenate([known, ood])
    return {
        "id_loss": float(np.mean((y - said.mean()) ** 2)),
        "nll": -float(np.mean(said.logpdf(y))),
        "label_coverage": float(np.mean((low <= y) & (y <= high))),
        "ood_coverage": float(np.mean((of_function[0] <= y_ood) & (y_ood <= of_function[1]))),
        "ood_auc": float(roc_auc_score(is_ood, model.predict(every, return_std=True)[1])),
        "ood_auc_score": float(roc_auc_score(is_ood, model.ood_score(every))),
        "false_alarms": float(model.is_ood(known).mean()),
        "flagged": float(model.is_ood(ood).mean()),
    }


if __name__ == "__main__":
    main()
