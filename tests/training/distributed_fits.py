"""Fits of a few variants, in one process or in several; the main process saves the results.

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
from gpn.methods.gpn.fitting import basis, select
from gpn.methods.gpn.pool.mixture import PoolWeights, mixture_weights

TRUNK = gpn.MLPTrunk(widths=(16, 16))
X = 2 * torch.rand(31, 2, generator=torch.Generator().manual_seed(0)) - 1
NUMBERS = gpn.Task(X, torch.sin(3 * X[:, :1]), pool=gpn.box([-2.0, -2.0], [2.0, 2.0]))
CLASSES = gpn.Task(X, (X[:, 0] > 0).long(), pool=2 * X)
IMAGES = X[:, :1, None, None] + X[:, 1:, None, None] * torch.linspace(-1, 1, 6).expand(3, 6, 6)
PHOTOS = gpn.Task(IMAGES, torch.arange(31) % 2, pool=2 * IMAGES)
SMALL: dict[str, Any] = {"trunk": TRUNK, "reference_rows": 32, "n_axes": 8, "noise_std": 0.1}


def variants(train: gpn.TrainConfig) -> dict[str, tuple[gpn.GPNConfig, gpn.Task]]:
    """Numbers of labels and of pool rows are odd: two processes cannot share them equally."""
    independent = {**SMALL, "anchor": "independent", "beta": 0.1, "train": train}
    learnt: dict[str, Any] = {"codes": "learnt", "pool_weights": "equal", "pairing": "one"}
    few = {"pairing": "every", "n_anchors": 6, "code_dim": 5, "trunk": gpn.MLPTrunk(widths=(8, 8))}
    searched = {"trunk": TRUNK, "anchor": "independent", "reference_rows": 32, "n_axes": 8}
    paper = {"n_anchors": 8, "code_dim": 2, "trunk": TRUNK, "train": train}
    mixture = gpn.GPNConfig(**independent, pool_weights="mixture")
    muon = train.replace(optimiser="muon", schedule="linear", averaging=0.2)
    conv = {**independent, "trunk": gpn.ConvTrunk(channels=(4,), widths=(8,)), "train": muon}
    return {
        "paper": (gpn.GPNConfig.paper(**paper), NUMBERS),
        "joint": (gpn.GPNConfig(**SMALL, anchor="joint", train=train), NUMBERS),
        "conditioned": (gpn.GPNConfig(**SMALL, anchor="conditioned", train=train), NUMBERS),
        "equal weights": (gpn.GPNConfig(**independent, pool_weights="equal"), NUMBERS),
        "mixture weights, classes": (mixture, CLASSES),
        "mixture weights, different classifiers": (mixture, CLASSES),
        "muon, averaged": (gpn.GPNConfig(**conv, pool_weights="equal"), PHOTOS),
        "one code per row": (gpn.GPNConfig(**independent, **learnt), NUMBERS),
        "few codes, learnt": (gpn.GPNConfig(**{**independent, **learnt, **few}), NUMBERS),
        "β is searched": (gpn.GPNConfig(**{**searched, "train": train}), NUMBERS),
    }


def outcomes(devices: int, folder: Path) -> dict[str, Any]:
    """The last loss terms and the weights of every variant."""
    sizes = {"steps": 20, "label_batch": 15, "pool_batch": 17}
    plain = {"optimiser": "sgd", "learning_rate": 0.02}  # Adam would hide a wrong gradient scale
    train = gpn.TrainConfig(**sizes, **plain, device="cpu", devices=devices)
    found: dict[str, Any] = {}
    for name, (config, task) in variants(train).items():
        basis.mixture_weights = _different_weights if "different" in name else mixture_weights
        file = gpn.Checkpoint(folder / "fit.ckpt", every=0)
        posterior = gpn.GPN(config).fit(task, rng=0, checkpoint=file)
        found[name] = {
            "loss": posterior.fit_report.history.checks[-1],
            "weights": posterior.generator.state_dict(),
            "gathers_rows": "row_gather" in vars(posterior.generator),
        }
    basis.mixture_weights = mixture_weights
    return found


def _different_weights(*args: Any, **options: Any) -> PoolWeights:
    """The weights of a classifier that came out differently in every process but the first."""
    found, rank = mixture_weights(*args, **options), int(os.environ.get("RANK", "0"))
    other = torch.rand(len(found.weights), generator=torch.Generator().manual_seed(rank))
    return replace(found, weights=other) if rank else found


def synchronised(devices: int) -> list[Any]:
    """The result of each process, where batch norm sees its own rows and each prefers another β."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU())
    train = gpn.TrainConfig(steps=20, device="cpu", devices=devices)
    trunk = gpn.ModuleTrunk(module=module, widths=(8,))
    small = {"anchor": "independent", "pool_weights": "equal", "reference_rows": 32, "n_axes": 8}
    select.largest_within = lambda trials: trials[int(os.environ["RANK"])]
    posterior = gpn.GPN(gpn.GPNConfig(**small, trunk=trunk, train=train)).fit(NUMBERS, rng=0)
    chosen = {"beta": posterior.config.beta, "noise_std": posterior.noise_std}
    every: list[Any] = [None] * devices
    distributed.all_gather_object(every, {**chosen, **posterior.generator.state_dict()})
    return every


def refused(devices: int) -> str:
    """The error message for processes with different seeds."""
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
    found["synchronised"] = synchronised(devices)
    found["refused"] = refused(devices)
    if os.environ["RANK"] == "0":
        torch.save(found, sys.argv[1])
