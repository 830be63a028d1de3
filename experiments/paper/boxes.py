"""The paper's figure of class probabilities: every draw at one known and one strange image."""

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import results
from experiments.paper.panels import WIDTH, label, missing, note, pictures
from experiments.paper.settings import PLANS
from gpn import plots
from gpn.plots import method_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = {
    "mnist": [str(digit) for digit in range(10)],
    "cifar10": ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
}
# The first of each test set: its kind, where it comes from, and what it is.
SHOWN = {
    ("mnist", "id"): "known\nMNIST: a 7",
    ("mnist", "ood"): "strange\nFashion-MNIST: ankle boot",
    ("cifar10", "id"): "known\nCIFAR-10: a cat",
    ("cifar10", "ood"): "strange\nSVHN: a 4",
}
NOTE = (
    "Class probabilities of every draw, seed 0. Boxes hold the middle half of the draws,\n"
    "dots are those far from it. Ensembles have 10 draws, one per member; others 100."
)
Files = dict[str, dict[str, dict[str, Any]]]


def boxes() -> "Figure":
    """A row per method under the images that it is asked about."""
    from matplotlib.figure import Figure

    files = pictures(CLASSES)
    columns = [column for column in SHOWN if column[0] in files]
    methods = [m for m in PLANS["mnist"].methods if any(m in files[task] for task in files)]
    size = (WIDTH, 1.9 + 0.93 * len(methods))
    picture = Figure(size, layout="constrained")
    grid = picture.subplots(
        1 + len(methods), len(columns), squeeze=False, height_ratios=[1.3, *[1] * len(methods)]
    )
    for axes, (task, kind) in zip(grid[0], columns, strict=True):
        _image(axes, task, kind)
    for line, method in zip(grid[1:], methods, strict=True):
        _method(line, method, columns, files)
    _name_classes(grid[-1], columns)
    note(picture, NOTE)
    return picture


def _image(axes: "Axes", task: str, kind: str) -> None:
    path = results.RESULTS / task / "pictures" / "images.json"
    if not path.exists():
        missing(f"{task} has no pictures/images.json")
    pixels = np.array(results.read(f"{task}/pictures", "images")[kind])
    gray = pixels.shape[-1] == 1
    axes.imshow(pixels[..., 0] if gray else pixels, cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    axes.set_title(SHOWN[task, kind])


def _method(line: Any, method: str, columns: list[tuple[str, str]], files: Files) -> None:
    for axes, (task, kind) in zip(line, columns, strict=True):
        axes.set(xticks=[], yticks=[])
        if method in files[task]:
            draws = np.array(files[task][method]["draws"][kind])
            plots.class_boxes(axes, draws, [""] * draws.shape[1], color=method_color(method))
            axes.set(ylabel="", yticks=[0, 0.5, 1], yticklabels=[])
        axes.tick_params(length=2)
    counts = {len(files[task][method]["draws"]["id"]) for task in files if method in files[task]}
    line[0].set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    name = label(method).replace(", ", ",\n")
    line[0].set_ylabel(f"{name}\n{max(counts)} draws")


def _name_classes(line: Any, columns: list[tuple[str, str]]) -> None:
    """Below the last row alone, for the whole column."""
    for axes, (task, _) in zip(line, columns, strict=True):
        names = CLASSES[task]
        turned = 90 if max(map(len, names)) > 1 else 0
        axes.set_xticks(range(1, len(names) + 1), names, rotation=turned)
