"""Every task by name: `TASKS[name](seed, folder)` is a split."""

from collections.abc import Callable
from pathlib import Path

from experiments.paper.images import cifar10, mnist
from experiments.paper.split import Split
from experiments.paper.superconductor import superconductor, superconductor_grouped

TASKS: dict[str, Callable[[int, Path | None], Split]] = {
    "superconductor": superconductor,
    "superconductor-grouped": superconductor_grouped,
    "mnist": mnist,
    "cifar10": cifar10,
}
