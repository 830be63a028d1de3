"""A GPN in closed form on features of a network that is not trained any more.

    python -m experiments.frozen_features extract --data FOLDER --file features.npz
    python -m experiments.frozen_features fit --file features.npz

`extract` trains the residual network of `modern_images` on CIFAR-10's labels alone and keeps the 64
leading principal components of its features at training, test, SVHN and texture images; any other
network's features would do. `fit` conditions `GPNClassifier` on 100 labels per class, and on all
labels, without a pool: on a table of features it needs neither a GPU nor a training loop. The
network itself has seen all labels in both cases. Writes `results/frozen-features/<labels>.json`.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments import harness
from experiments import modern_images as modern
from experiments.paper.evaluate import detection
from gpn import GPNClassifier
from gpn.core.types import channels_last
from gpn.methods.gpn.model.generator import AffineGenerator

TASK = "frozen-features"
COMPONENTS = 64
PER_CLASS = {"100-per-class": 100, "all-labels": None}
OOD = {"": "svhn", "_unseen_textures": "textures"}
Rows = dict[str, np.ndarray[Any, np.dtype[Any]]]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="experiments.frozen_features")
    parser.add_argument("command", choices=("extract", "fit"))
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, help="for a trial of a few steps")
    options = parser.parse_args(arguments)
    if options.command == "extract":
        extract(options)
        return
    rows = dict(np.load(options.file))
    for name, per_class in PER_CLASS.items():
        measured = measure(rows, per_class)
        config = {"estimator": "GPNClassifier(mean=None)", "components": COMPONENTS}
        seconds = {"fit": measured["fit_seconds"]}
        path = harness.write_result(TASK, name, config, [0], [measured], seconds)
        print(path, {key: round(value, 4) for key, value in measured.items()}, flush=True)


def extract(options: argparse.Namespace) -> None:
    """Train the network, and write its features with what it reaches by itself."""
    options.valid = False
    split, config = modern.split_of("plain", 0, options), modern.CONFIG
    config = modern.shortened(config, split, options)
    start = time.perf_counter()
    network = modern.fit_plain(split, config, 0, exposed=False)
    seconds = modern.seconds_since(start)
    found = modern.plain_metrics(modern.logits_of(network, split), split.test.y_id)
    images = {"train": split.task.x_obs, "id": split.test.x_id, "svhn": split.test.x_ood}
    images |= split.unseen
    features = {name: _features(network, x) for name, x in images.items()}
    reduced = {f"x_{name}": x for name, x in principal(features, "train").items()}
    labels = {"y_train": split.task.y_obs.numpy(), "y_id": split.test.y_id.numpy()}
    names = "accuracy", "nll", "ece", "ood_auc", "ood_auc_unseen_textures"
    facts = {f"network_{name}": np.array(found[name]) for name in names}
    np.savez(options.file, **reduced, **labels, **facts, network_seconds=np.array(seconds))
    print({name: float(value) for name, value in facts.items()}, flush=True)


@torch.no_grad()
def _features(network: AffineGenerator, images: Tensor) -> Tensor:
    device = next(network.parameters()).device
    chunks = images.split(modern.CHUNK_ROWS)
    return torch.cat([network.features(channels_last(c.to(device))).cpu() for c in chunks])


def principal(features: dict[str, Tensor], which: str) -> Rows:
    """All features in the leading principal components of `which`, rounded to 16 bits."""
    mean = features[which].double().mean(0)
    centred = features[which].double() - mean
    axes = torch.linalg.eigh(centred.T @ centred)[1].flip(1)[:, :COMPONENTS]
    return {
        name: ((x.double() - mean) @ axes).numpy().astype(np.float16)
        for name, x in features.items()
    }


def measure(rows: Rows, per_class: int | None) -> dict[str, float]:
    """The posterior given these labels: accuracy, calibration, detection and seconds."""
    x, y = rows["x_train"].astype(np.float32), rows["y_train"]
    picked = some_of_each(y, per_class)
    start = time.perf_counter()
    model = GPNClassifier(mean=None, random_state=0).fit(x[picked], y[picked])
    seconds = time.perf_counter() - start
    known = rows["x_id"].astype(np.float32)
    p = torch.from_numpy(model.predict_proba(known))
    measured = modern.known_metrics(p, torch.from_numpy(rows["y_id"]))
    scores = torch.from_numpy(model.ood_score(known))
    for suffix, name in OOD.items():
        ood = torch.from_numpy(model.ood_score(rows[f"x_{name}"].astype(np.float32)))
        measured |= detection(suffix, scores, ood)
    network = {name: float(value) for name, value in rows.items() if name.startswith("network_")}
    return {**measured, "labels": float(len(picked)), "fit_seconds": seconds, **network}


def some_of_each(y: np.ndarray[Any, np.dtype[Any]], per_class: int | None) -> Any:
    """The numbers of random rows, as many of each class; None is all rows."""
    order = np.random.default_rng(0).permutation(len(y))
    if per_class is None:
        return order
    return np.concatenate([order[y[order] == c][:per_class] for c in np.unique(y)])


if __name__ == "__main__":
    main()
