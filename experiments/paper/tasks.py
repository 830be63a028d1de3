"""Every task by name: `TASKS[name](seed, folder)` is a split; cifar10 takes an `ood` set too."""

from collections.abc import Callable

from experiments.paper.images import cifar10, mnist
from experiments.paper.split import Split
from experiments.paper.superconductor import superconductor, superconductor_grouped

TASKS: dict[str, Callable[..., Split]] = {
    "superconductor": superconductor,
    "superconductor-grouped": superconductor_grouped,
    "mnist": mnist,
    "cifar10": cifar10,
}
