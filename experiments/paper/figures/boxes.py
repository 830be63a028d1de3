"""The paper's figure of class probabilities: every draw at one ID and one OOD image."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import harness
from experiments.paper.figures import style
from experiments.paper.plans import PLANS
from gpn import plots
from gpn.plots import method_color

CLASSES = {
    "mnist": [str(digit) for digit in range(10)],
    "cifar10": ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
}
# The first image of each test set.
SHOWN = {
    ("mnist", "id"): "in distribution\nMNIST: a 7",
    ("mnist", "ood"): "OOD\nFashion-MNIST: ankle boot",
    ("cifar10", "id"): "in distribution\nCIFAR-10: a cat",
    ("cifar10", "ood"): "OOD\nSVHN: a 4",
}
NOTE = (
    "Class probabilities of every draw, seed 0. Boxes hold the middle half of the draws,\n"
    "dots are those far from it. Ensembles have 10 draws, one per member; others 100."
)


def boxes() -> Figure:
    """A row per method below the images."""
    data = style.plot_data(CLASSES)
    columns = [column for column in SHOWN if column[0] in data]
    methods = [m for m in PLANS["mnist"].methods if any(m in data[task] for task in data)]
    figure = Figure((style.WIDTH_INCHES, 1.9 + 0.93 * len(methods)), layout="constrained")
    grid = figure.subplots(
        1 + len(methods), len(columns), squeeze=False, height_ratios=[1.3, *[1] * len(methods)]
    )
    for axes, (task, kind) in zip(grid[0], columns, strict=True):
        _image(axes, task, kind)
    for line, method in zip(grid[1:], methods, strict=True):
        draws = [data[task].get(method, {}).get("draws", {}).get(kind) for task, kind in columns]
        _method(line, method, draws)
    for axes, (task, _) in zip(grid[-1], columns, strict=True):
        rotation = 90 if max(map(len, CLASSES[task])) > 1 else 0
        axes.set_xticks(range(1, len(CLASSES[task]) + 1), CLASSES[task], rotation=rotation)
    style.note(figure, NOTE)
    return figure


def _image(axes: Axes, task: str, kind: str) -> None:
    images = harness.load(harness.RESULTS / task / "pictures" / "images.json")
    if images is None:
        style.missing(f"{task} has no pictures/images.json")
    pixels = np.array(images[kind])
    gray = pixels.shape[-1] == 1
    axes.imshow(pixels[..., 0] if gray else pixels, cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    axes.set_title(SHOWN[task, kind])


def _method(line: Any, method: str, draws: list[list[list[float]] | None]) -> None:
    for axes, drawn in zip(line, draws, strict=True):
        axes.set(xticks=[], yticks=[])
        if drawn is not None:
            values = np.array(drawn)
            plots.class_boxes(axes, values, [""] * values.shape[1], color=method_color(method))
            axes.set(ylabel="", yticks=[0, 0.5, 1], yticklabels=[])
        axes.tick_params(length=2)
    line[0].set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    count = max(len(drawn) for drawn in draws if drawn is not None)
    name = style.label(method).replace(", ", ",\n")
    line[0].set_ylabel(f"{name}\n{count} draws")
