"""The figures, drawn from the result files alone: `FIGURES[name]()` is a matplotlib figure."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib import rc_context

from experiments import active_learning, harness
from experiments.paper.figures.boxes import boxes
from experiments.paper.figures.contamination import contamination
from experiments.paper.figures.modern import modern
from experiments.paper.figures.roc import roc
from experiments.paper.figures.scalability import scalability
from experiments.paper.figures.style import STYLE

FIGURES: dict[str, Callable[[], Any]] = {
    "scalability": scalability,
    "roc": roc,
    "boxes": boxes,
    "contamination": contamination,
    "active-learning": active_learning.curves,
    "cifar10-modern": modern,
}
FILES = {"contamination": "shares"}  # the file has the figure's former name


def figure(name: str) -> Path:
    """Draw one of `FIGURES` into `results/figures/`."""
    path = harness.RESULTS / "figures" / f"{FILES.get(name, name)}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        FIGURES[name]().savefig(path)
    return path
