"""Every method on every task: the paper's networks, and five settings to choose from.

Networks are those of the paper's appendix: ensembles get the smaller ones.
"""

from dataclasses import dataclass, replace
from typing import Any

from gpn import ConvTrunk, MLPTrunk, TrainConfig
from gpn.core.networks import Trunk

METHODS = (
    "dropout",
    "dkl",
    "sngp",
    "ensemble-pr",
    "ensemble-or",
    "ensemble",
    "gp",
    "gpn-paper",
    "gpn",
)
ENSEMBLES = ("ensemble-pr", "ensemble-or", "ensemble")

# What is turned, and the five values that it is given.
DIALS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "dropout": ("rate", (0.05, 0.1, 0.2, 0.3, 0.5)),
    "dkl": ("weight_decay", (0.01, 0.1, 0.3, 1.0, 3.0)),
    "sngp": ("spectral_bound", (0.95, 2.0, 4.0, 6.0, 10.0)),
    "ensemble-pr": ("beta", (0.01, 0.1, 1.0, 10.0, 100.0)),
    "ensemble-or": ("beta", (0.01, 0.03, 0.1, 0.3, 1.0)),
    "ensemble": ("weight_decay", (0.0, 0.01, 0.1, 0.3, 1.0)),
    "gp": ("noise_std", (0.1, 0.2, 0.3, 0.4, 0.5)),
    "gpn-paper": ("beta", (0.01, 0.03, 0.1, 0.3, 1.0)),
    "gpn": ("beta", (0.1, 0.3, 0.5, 1.0, 2.0)),
}


@dataclass(frozen=True)
class Plan:
    """How a task is learnt: its networks, the length of a run, and the number of seeds."""

    trunk: Trunk
    ensemble_trunk: Trunk
    train: TrainConfig
    seeds: int
    methods: tuple[str, ...] = METHODS

    def quick(self, share: float) -> "Plan":
        """The same with fewer steps of smaller batches, once."""
        steps = max(10, round(share * self.train.steps))
        train = self.train.replace(steps=steps, label_batch=64, pool_batch=64)
        return replace(self, train=train, seeds=1)


def _table(width: int) -> MLPTrunk:
    return MLPTrunk(widths=(width,) * 4, activation="relu")


def _images(channels: tuple[int, ...], width: int, depth: int) -> ConvTrunk:
    return ConvTrunk(channels=channels, widths=(width,) * depth)


TABLE = Plan(
    _table(512),
    _table(128),
    TrainConfig(steps=6000, learning_rate=1e-3, weight_decay=0.01),
    seeds=5,
)
SMALL_IMAGES = Plan(
    _images((32, 64), 512, 3),
    _images((32, 64), 128, 3),
    TrainConfig(steps=6000, learning_rate=1e-3, weight_decay=0.01),
    seeds=3,
    methods=tuple(name for name in METHODS if name != "gp"),
)
COLOUR_IMAGES = replace(
    SMALL_IMAGES,
    trunk=_images((64, 128, 256), 512, 4),
    ensemble_trunk=_images((64, 128, 256), 256, 4),
    train=TrainConfig(steps=10_000, learning_rate=1e-3, weight_decay=0.05),
)
PLANS: dict[str, Plan] = {
    "superconductor": TABLE,
    "superconductor-grouped": TABLE,
    "mnist": SMALL_IMAGES,
    "cifar10": COLOUR_IMAGES,
}


def configured(plan: Plan, method: str, value: Any) -> dict[str, Any]:
    """What `gpn.methods.get(method, ...)` is given for one value of the method's dial."""
    dial, _ = DIALS[method]
    if method == "gp":
        return {dial: value}
    train, trunk = plan.train, plan.trunk
    own: dict[str, Any] = {dial: value}
    if dial == "weight_decay":
        train, own = train.replace(weight_decay=value), {}
    if method in ENSEMBLES:
        trunk = plan.ensemble_trunk
    if method == "gpn":
        train, trunk = train.replace(weight_decay=0.3), trunk.replace(dropout=0.1)
    if method == "dkl":
        train = train.replace(steps=max(10, train.steps // 3))
    return {**own, "trunk": trunk, "train": train}
