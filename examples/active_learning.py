"""Active learning: label the most informative rows, and need fewer labels.

Three digits that look alike (3, 8 and 9), ten labels at first, five more each round: those that
`suggest` chooses, or random ones. About ten seconds on one core. This is one run of a case that
was chosen because it shows the gain; on all ten digits it is smaller, and there are tables where
`suggest` loses: five seeds of both are in experiments/README.md.
"""

from pathlib import Path

import numpy as np
import typer
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from gpn import GPNClassifier, GPNConfig, MLPTrunk, TrainConfig, plots

START, BATCH, ROUNDS = 10, 5, 6
SHORT = TrainConfig(steps=200, learning_rate=5e-3, label_batch=64, pool_batch=64)
SMALL = GPNConfig(beta=0.01, n_axes=30, n_anchors=20, reference_rows=256, train=SHORT)
MODEL = GPNClassifier(SMALL, module=MLPTrunk(widths=(128,)), random_state=0)
RNG = np.random.default_rng(0)
CHOICES = {
    "random": lambda rows: RNG.choice(len(rows), BATCH, replace=False),
    "suggest": lambda rows: MODEL.suggest(rows, BATCH),
}


def main(out: Path = Path("demo/active_learning.png")) -> None:
    digits = load_digits()
    alike = RNG.permutation(np.flatnonzero(np.isin(digits.target, (3, 8, 9))))
    x, x_test = np.split(digits.data[alike] / 16, [300])
    y, y_test = np.split(digits.target[alike], [300])
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.6, 1])
    for (name, choose), color in zip(CHOICES.items(), ("grey", "ours"), strict=True):
        labeled, accuracy = np.arange(START), {}
        for _ in range(ROUNDS):
            MODEL.fit(x[labeled], y[labeled], X_unlabeled=x)
            accuracy[len(labeled)] = MODEL.score(x_test, y_test)
            rest = np.setdiff1d(np.arange(len(x)), labeled)
            labeled = np.append(labeled, rest[choose(x[rest])])
        print(f"{name}: accuracy {MODEL.score(x_test, y_test):.1%} with {max(accuracy)} labels")
        points = list(accuracy), list(accuracy.values())
        left.plot(*points, "o-", color=plots.PALETTE[color], label=name)

    left.set(xlabel="labels", ylabel="accuracy", title="The same number of labels, chosen better")
    left.legend(frameon=False, loc="lower right")
    chosen = np.pad(x[labeled[START:-BATCH]].reshape(-1, 8, 8), ((0, 0), (2, 2), (2, 2)))
    mosaic = chosen.reshape(-1, BATCH, 12, 12).swapaxes(1, 2).reshape(-1, 12 * BATCH)
    right.imshow(mosaic, cmap="gray_r")
    right.set(xticks=[], yticks=12 * np.arange(ROUNDS - 1) + 6, yticklabels=range(1, ROUNDS))
    right.set(ylabel="round", title="Rows that suggest chose")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=100)


if __name__ == "__main__":
    typer.run(main)
