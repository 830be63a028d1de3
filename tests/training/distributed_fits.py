"""Fits of a few variants, by one process or by several; the first one writes what came out.

Run by test_distributed.py: torchrun --standalone --nproc-per-node 2 (this file) out.pt 2 folder
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

import gpn
from gpn.methods.gpn.fitting import basis as ground
from gpn.methods.gpn.fitting import select as search
from gpn.methods.gpn.pool.mixture import MixtureWeights, mixture_weights

TRUNK = gpn.MLPTrunk(widths=(16, 16))
X = 2 * torch.rand(31, 2, generator=torch.Generator().manual_seed(0)) - 1
NUMBERS = gpn.Task(X, torch.sin(3 * X[:, :1]), pool=gpn.box([-2.0, -2.0], [2.0, 2.0]))
CLASSES = gpn.Task(X, (X[:, 0] > 0).long(), pool=2 * X)
SMALL: dict[str, Any] = {"trunk": TRUNK, "reference_rows": 32, "n_axes": 8, "noise_std": 0.1}


def variants(train: gpn.TrainConfig) -> dict[str, tuple[gpn.GPNConfig, gpn.Task]]:
    """Labels and pool in numbers that two does not divide."""
    free = {**SMALL, "anchor": "independent", "beta": 0.1, "train": train}
    learnt: dict[str, Any] = {"codes": "learnt", "pool_weights": "equal", "pairing": "one"}
    few = {"pairing": "every", "n_anchors": 6, "code_dim": 5, "trunk": gpn.MLPTrunk(widths=(8, 8))}
    searched = {"trunk": TRUNK, "anchor": "independent", "reference_rows": 32, "n_axes": 8}
    paper = {"n_anchors": 8, "code_dim": 2, "trunk": TRUNK, "train": train}
    return {
        "paper": (gpn.GPNConfig.paper(**paper), NUMBERS),
        "joint": (gpn.GPNConfig(**SMALL, anchor="joint", train=train), NUMBERS),
        "conditioned": (gpn.GPNConfig(**SMALL, anchor="conditioned", train=train), NUMBERS),
        "equal weights": (gpn.GPNConfig(**free, pool_weights="equal"), NUMBERS),
        "mixture weights, classes": (gpn.GPNConfig(**free, pool_weights="mixture"), CLASSES),
        "mixture weights, each judges": (gpn.GPNConfig(**free, pool_weights="mixture"), CLASSES),
        "one code per row": (gpn.GPNConfig(**free, **learnt), NUMBERS),
        "few codes, learnt": (gpn.GPNConfig(**{**free, **learnt, **few}), NUMBERS),
        "β is searched for": (gpn.GPNConfig(**{**searched, "train": train}), NUMBERS),
    }


def outcomes(devices: int, folder: Path) -> dict[str, Any]:
    """The last loss terms and the weights of every variant."""
    sizes = {"steps": 20, "label_batch": 15, "pool_batch": 17}
    slow = {"optimiser": "sgd", "learning_rate": 0.02}  # Adam would not see a wrong scale
    train = gpn.TrainConfig(**sizes, **slow, device="cpu", devices=devices)
    found: dict[str, Any] = {}
    judged = ground.mixture_weights
    for name, (config, task) in variants(train).items():
        ground.mixture_weights = judged if "each" not in name else _off
        file = gpn.Checkpoint(folder / "fit.ckpt", every=0)
        posterior = gpn.GPN(config).fit(task, rng=0, checkpoint=file)
        loss = posterior.fit_report.history.checks[-1]
        found[name] = {"loss": loss, "weights": posterior.generator.state_dict()}
    ground.mixture_weights = judged
    return found


def _off(*rows: Any) -> MixtureWeights:
    """What a judge says that has learnt otherwise in every process but the first."""
    given, rank = mixture_weights(*rows), int(os.environ.get("RANK", "0"))
    other = torch.rand(len(given.weights), generator=torch.Generator().manual_seed(rank))
    return replace(given, weights=other) if rank else given


def agreed(devices: int) -> list[Any]:
    """What each process ends with, where batch norm sees its own rows and each likes another β."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU())
    train = gpn.TrainConfig(steps=20, device="cpu", devices=devices)
    trunk = gpn.ModuleTrunk(module=module, widths=(8,))
    small = {"anchor": "independent", "pool_weights": "equal", "reference_rows": 32, "n_axes": 8}
    search.largest_within = lambda trials: trials[int(os.environ["RANK"])]
    posterior = gpn.GPN(gpn.GPNConfig(**small, trunk=trunk, train=train)).fit(NUMBERS, rng=0)
    own = {"beta": posterior.config.beta, "noise_std": posterior.noise_std}
    every: list[Any] = [None] * devices
    distributed.all_gather_object(every, {**own, **posterior.generator.state_dict()})
    return every


def refused(devices: int) -> str:
    """What is said of processes that were given different seeds."""
    train = gpn.TrainConfig(steps=2, device="cpu", devices=devices)
    config = gpn.GPNConfig.paper(trunk=TRUNK, train=train)
    try:
        gpn.GPN(config).fit(NUMBERS, rng=int(os.environ["RANK"]))
    except ValueError as error:
        return str(error)
    return "nothing"


if __name__ == "__main__":
    torch.set_num_threads(1)
    devices = int(sys.argv[2])
    found = outcomes(devices, Path(sys.argv[3]))
    found["agreed"] = agreed(devices)
    found["refused"] = refused(devices)
    if os.environ["RANK"] == "0":
        torch.save(found, sys.argv[1])
