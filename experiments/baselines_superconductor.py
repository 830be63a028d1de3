"""SNGP and DKL on the superconductor task, in the paper's split and networks.

    python experiments/baselines_superconductor.py DATA_FOLDER [--methods sngp] [--device cpu]

Labels are the training rows with a critical temperature of 13.9 K or more; the test rows above are
in distribution, those below are not. Losses and widths are in units of the standard deviation of
the full training target. Writes experiments/results/superconductor/<method>.json.
"""

import argparse
import dataclasses
import json
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from gpn.core.networks import MLPTrunk
from gpn.core.posterior import Posterior
from gpn.core.task import Task
from gpn.core.train import TrainConfig
from gpn.methods.dkl import DKL, DKLConfig
from gpn.methods.sngp import SNGP, SNGPConfig
from gpn.metrics import interval_coverage, interval_width

RESULTS = Path(__file__).parent / "results" / "superconductor"
THRESHOLD = 13.9
DRAWS = 100
TRUNK = MLPTrunk(widths=(512,) * 4, activation="relu")
TRAIN = TrainConfig(learning_rate=1e-3, weight_decay=1e-2)
NAMES = ("dkl", "sngp")


def method(name: str, device: str) -> SNGP | DKL:
    """The paper's trunk, and otherwise the library's defaults."""
    if name == "sngp":
        return SNGP(SNGPConfig(trunk=TRUNK, train=TRAIN.replace(steps=4000, device=device)))
    return DKL(DKLConfig(trunk=TRUNK, train=TRAIN.replace(steps=2000, device=device)))


@dataclass(frozen=True)
class Split:
    """One random split: the labeled task, and test rows in and out of distribution."""

    task: Task
    x_id: Tensor
    y_id: Tensor
    x_ood: Tensor
    y_ood: Tensor


def split(table: np.ndarray, seed: int) -> Split:
    """80 % of the rows for training; everything standardised by the training rows."""
    order = np.random.default_rng(seed).permutation(len(table))
    train, test = np.split(order, [int(0.8 * len(order))])
    hot = table[:, -1] >= THRESHOLD
    scaled = (table - table[train].mean(0)) / table[train].std(0)
    rows = torch.from_numpy(scaled).float()
    x, y = rows[:, :-1], rows[:, -1:]
    labeled, inside, outside = train[hot[train]], test[hot[test]], test[~hot[test]]
    task = Task(x[labeled], y[labeled], pool=x[train])
    return Split(task, x[inside], y[inside], x[outside], y[outside])


def evaluate(posterior: Posterior, parts: Split) -> dict[str, float]:
    """The paper's columns, all from 100 draws but for the mean."""
    inside = posterior.sample(parts.x_id, DRAWS, rng=1).cpu()
    outside = posterior.sample(parts.x_ood, DRAWS, rng=1).cpu()
    scores = torch.cat([inside, outside], dim=1).var(0)[:, 0]
    is_outside = [0] * len(parts.x_id) + [1] * len(parts.x_ood)
    return {
        "id_loss": float((posterior.mean(parts.x_id).cpu() - parts.y_id).square().mean()),
        "id_width": float(interval_width(inside).mean()),
        "id_coverage": float(interval_coverage(inside, parts.y_id)),
        "ood_coverage": float(interval_coverage(outside, parts.y_ood)),
        "ood_auc": float(roc_auc_score(is_outside, scores.numpy())),
    }


def run(name: str, fitter: SNGP | DKL, table: np.ndarray, seeds: int) -> dict[str, Any]:
    """Fit and measure once per seed, each with a split of its own."""
    rows, fit_seconds, sample_seconds = [], [], []
    for seed in range(seeds):
        parts = split(table, seed)
        started = time.perf_counter()
        posterior = fitter.fit(parts.task, rng=seed)
        fitted = time.perf_counter()
        rows.append(evaluate(posterior, parts))
        fit_seconds.append(fitted - started)
        sample_seconds.append(time.perf_counter() - fitted)
        print(name, seed, f"{fit_seconds[-1]:.0f}s", rows[-1], flush=True)
    return {
        "task": "superconductor",
        "method": name,
        "config": dataclasses.asdict(fitter.config),
        "seeds": list(range(seeds)),
        "device": device_name(fitter.config.train.pick_device()),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "seconds": {"fit": float(np.mean(fit_seconds)), "sample": float(np.mean(sample_seconds))},
        "metrics": {key: summary([row[key] for row in rows]) for key in rows[0]},
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {torch.get_num_threads()} threads"


def summary(values: list[float]) -> dict[str, float]:
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": spread, "n": len(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where superconductivity/train.csv lies")
    parser.add_argument("--methods", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    csv = options.folder / "superconductivity" / "train.csv"
    table = np.loadtxt(csv, delimiter=",", skiprows=1)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in options.methods:
        report = run(name, method(name, options.device), table, options.seeds)
        (RESULTS / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
