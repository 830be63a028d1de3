"""Images, a convolutional network of your own, and a pool with OOD images.

Labels are 300 of the digits 0 to 4; the unlabeled pool holds all ten. About ten seconds on a core.
"""

from pathlib import Path

import numpy as np
import torch
import typer
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import nn

from gpn import GPNClassifier, GPNConfig, TrainConfig, plots


def trunk() -> nn.Module:
    """Any module from images (n, 1, 8, 8) to features (n, h)."""
    torch.manual_seed(0)
    first, second, half = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2)
    return nn.Sequential(first, nn.ReLU(), half, second, nn.ReLU(), nn.Flatten())


def main(out: Path = Path("demo/images_own_trunk.png")) -> None:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, classes = digits.images[order, None] / 16, digits.target[order]
    known, others = np.flatnonzero(classes < 5), np.flatnonzero(classes >= 5)
    labeled, test, ood = known[:300], known[600:], others[400:]
    pool = np.concatenate([known[300:600], others[:400]])
    short = TrainConfig(steps=300, label_batch=128, pool_batch=128)
    config = GPNConfig(beta=0.03, n_axes=50, train=short)
    model = GPNClassifier(config, module=trunk(), random_state=0)
    model.fit(images[labeled], classes[labeled], X_unlabeled=images[pool])
    flagged = [model.is_ood(images[rows]).mean() for rows in (test, ood)]
    print(f"flagged: {flagged[0]:.0%} of new digits 0 to 4, {flagged[1]:.0%} of the others")
    print(f"accuracy on new digits 0 to 4: {model.score(images[test], classes[test]):.1%}")

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=[1, 2.4, 3.2])
    for line, (rows, color) in enumerate(((test, "ours"), (ood, "orange"))):
        image, boxes = (figure.add_subplot(grid[line, column]) for column in (0, 1))
        image.imshow(images[rows[1], 0], cmap="gray_r")
        image.set(xticks=[], yticks=[], title=f"{('ID', 'OOD')[line]}: {classes[rows[1]]}")
        drawn = model.sample_proba(images[rows[1:2]], 200)[0].T
        plots.class_boxes(boxes, drawn, "01234", color=plots.PALETTE[color])
        boxes.set(ylabel="probability", title=f"200 functions {('agree', 'disagree')[line]}")
    names = {"new digits 0 to 4": test, "digits 5 to 9": ood}
    scores = {name: model.ood_score(images[rows]) for name, rows in names.items()}
    axes = figure.add_subplot(grid[:, 2], title="Digits without labels have higher scores")
    plots.ood_histogram(axes, scores, threshold=model.threshold())
    axes.legend(frameon=False, loc="upper left")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=100)


if __name__ == "__main__":
    typer.run(main)
