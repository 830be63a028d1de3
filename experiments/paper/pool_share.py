"""How much the pool must hold: OOD AUC as strangers become rare in it, and without any pool.

Strangers make up 50, 10, 1 and 0 % of a pool whose other rows are the labeled ones; "none" is a
pool made up from the labels alone: uniform over each feature's range. Settings are those that the
main protocol chose. Writes `results/<task>/pool-share.json`.
"""

import json
from pathlib import Path
from typing import Any

import torch

from experiments import results
from experiments.paper.run import Place, Say, measure, split_of
from experiments.paper.settings import DIALS, configured
from experiments.paper.split import Split
from gpn import methods
from gpn.core.pool import TensorPool

SHARES: dict[str, float | None] = {"50%": 0.5, "10%": 0.1, "1%": 0.01, "0%": 0.0, "none": None}
METHODS = ("gpn", "gpn-paper", "ensemble-or")


def run_shares(task: str, place: Place, say: Say = print) -> Path:
    """Every method at every share, as many seeds as the task's plan says; resumes where it was."""
    path = place.results / task / "pool-share.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    done = {(row["method"], row["share"], row["seed"]) for row in rows}
    for seed in range(place.plan(task).seeds):
        for share in SHARES:
            for method in METHODS:
                if (method, share, seed) not in done:
                    rows.append(_row(task, method, share, seed, place))
                    _write(path, task, rows)
                    auc = rows[-1]["metrics"]["ood_auc"]
                    say(f"{task} {method} seed {seed}: strangers {share:5s} ood_auc {auc:.4f}")
    return path


def _row(task: str, method: str, share: str, seed: int, place: Place) -> dict[str, Any]:
    chosen = place.choice(task, method)
    config = configured(place.plan(task), method, chosen)
    config["train"] = config["train"].replace(device=place.device)
    split = with_share(split_of(task, seed, place).merged(), SHARES[share], seed)
    run = measure(split, "test", methods.get(method, **config), method, seed, place)
    where = {"method": method, "share": share, "seed": seed, DIALS[method][0]: chosen}
    return {**where, "seconds": run["seconds"], "metrics": run["test"]}


def with_share(split: Split, share: float | None, seed: int) -> Split:
    """The split with strangers as `share` of its pool, or with a pool out of thin air."""
    if share is not None:
        return split.contaminated(share, seed)
    made_up = split.contaminated(0.0, seed)
    x, rng = split.task.x_obs, torch.Generator().manual_seed(seed)
    low, high = x.amin(0), x.amax(0)
    made_up.task.pool = TensorPool(low + (high - low) * torch.rand(x.shape, generator=rng))
    return made_up


def _write(path: Path, task: str, rows: list[dict[str, Any]]) -> None:
    report = {
        "task": task,
        "device": results.device(),
        "versions": results.versions(),
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
