"""The paper's tasks: `TASKS[name](seed, folder)` is a split; cifar10 also takes an `ood` set."""

from collections.abc import Callable

from experiments.paper.tasks.images import cifar10, mnist
from experiments.paper.tasks.split import Split
from experiments.paper.tasks.superconductor import superconductor, superconductor_grouped

TASKS: dict[str, Callable[..., Split]] = {
    "superconductor": superconductor,
    "superconductor-grouped": superconductor_grouped,
    "mnist": mnist,
    "cifar10": cifar10,
}
