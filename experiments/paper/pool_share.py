"""How much the pool must hold: OOD AUC as strangers become rare in it, and without any pool.

Strangers make up 50, 10, 1 and 0 % of a pool whose other rows are the labeled ones; "none" is a
pool made up from the labels alone: uniform over each feature's range. Settings are those that the
main protocol chose, and fits take a quarter of its steps. Writes `results/<task>/pool-share.json`.
"""

import json
from pathlib import Path
from typing import Any

import torch

from experiments import results
from experiments.paper.place import Place, Say
from experiments.paper.run import fit, judged
from experiments.paper.split import Split
from gpn.core.pool import TensorPool

SHARES: dict[str, float | None] = {"50%": 0.5, "10%": 0.1, "1%": 0.01, "0%": 0.0, "none": None}
STEPS = 0.25
METHODS = ("gpn", "gpn-paper", "ensemble-or")


def run_shares(task: str, place: Place, say: Say = print, only: int | None = None) -> Path:
    """Every method at every share for every seed (or `only` one); what is done is not done again.

    Each run has a file of its own under `runs/`, so that several processes can share the work.
    """
    seeds = range(place.plan(task).seeds) if only is None else [only]
    rows = [
        _row(task, method, share, seed, place, say)
        for seed in seeds
        for share in SHARES
        for method in METHODS
    ]
    report = {"task": task, "device": results.device(), "versions": results.versions()}
    return results.save(place.file(task, "pool-share"), {**report, "rows": rows})


def _row(task: str, method: str, share: str, seed: int, place: Place, say: Say) -> dict[str, Any]:
    path = place.file(task, f"runs/{method}-share-{share.rstrip('%')}-{seed}")
    where = {"method": method, "share": share, "seed": seed}
    where[place.plan(task).dial(method)[0]] = chosen = place.choice(task, method)
    if path.exists() and where.items() <= (row := json.loads(path.read_text())).items():
        return row
    split = with_share(place.split(task, seed).merged(), SHARES[share], seed)
    built = place.method(task, method, chosen, STEPS)
    posterior, run = fit(split, built, seed, place)
    metrics = judged(posterior, split, method)
    say(f"{task} {method} seed {seed}: strangers {share:5s} ood_auc {metrics['ood_auc']:.4f}")
    row = {**where, "seconds": run["seconds"], "metrics": metrics}
    results.save(path, row)
    return row


def with_share(split: Split, share: float | None, seed: int) -> Split:
    """The split with strangers as `share` of its pool, or with a pool out of thin air."""
    if share is not None:
        return split.contaminated(share, seed)
    made_up = split.contaminated(0.0, seed)
    x, rng = split.task.x_obs, torch.Generator().manual_seed(seed)
    low, high = x.amin(0), x.amax(0)
    made_up.task.pool = TensorPool(low + (high - low) * torch.rand(x.shape, generator=rng))
    return made_up
