"""Every method on every task: the paper's networks, and five settings to choose from.

Networks are those of the paper's appendix: ensembles get the smaller ones.
"""

from dataclasses import dataclass, replace
from typing import Any

from gpn import ConvTrunk, MLPTrunk, TrainConfig
from gpn.core.networks.trunks import Trunk

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

# What is turned, and the five values that it is given; for our GPN the plan says which.
DIALS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "dropout": ("rate", (0.05, 0.1, 0.2, 0.3, 0.5)),
    "dkl": ("weight_decay", (0.01, 0.1, 0.3, 1.0, 3.0)),
    "sngp": ("spectral_bound", (0.95, 2.0, 4.0, 6.0, 10.0)),
    "ensemble-pr": ("beta", (0.01, 0.1, 1.0, 10.0, 100.0)),
    "ensemble-or": ("beta", (0.01, 0.03, 0.1, 0.3, 1.0)),
    "ensemble": ("weight_decay", (0.0, 0.01, 0.1, 0.3, 1.0)),
    "gp": ("noise_std", (0.1, 0.2, 0.3, 0.4, 0.5)),
    "gpn-paper": ("beta", (0.01, 0.03, 0.1, 0.3, 1.0)),
}


@dataclass(frozen=True)
class Plan:
    """How a task is learnt: its networks, the length of a run, and the number of seeds.

    `betas`, `decay` and `extras` are our GPN's own: the values of its dial, its weight decay, and
    changes of the trunk. Trials of settings take `trial_share` of the steps; with `settings_of`
    they are those that were chosen on another task.
    """

    trunk: Trunk
    ensemble_trunk: Trunk
    train: TrainConfig
    seeds: int
    betas: tuple[float, ...]
    decay: float
    extras: dict[str, Any]
    trial_share: float = 1.0
    settings_of: str | None = None
    methods: tuple[str, ...] = METHODS

    def dial(self, method: str) -> tuple[str, tuple[Any, ...]]:
        """What is turned, and the values to try."""
        return ("beta", self.betas) if method == "gpn" else DIALS[method]

    def quick(self, share: float) -> "Plan":
        """The same with fewer steps of smaller batches, once."""
        steps = max(10, round(share * self.train.steps))
        train = self.train.replace(steps=steps, label_batch=64, pool_batch=64)
        return replace(self, train=train, seeds=1, trial_share=1.0, settings_of=None)


def _table(width: int) -> MLPTrunk:
    return MLPTrunk(widths=(width,) * 4, activation="relu")


def _images(channels: tuple[int, ...], width: int, depth: int, **changes: Any) -> ConvTrunk:
    return ConvTrunk(channels=channels, widths=(width,) * depth, **changes)


TABLE = Plan(
    _table(512),
    _table(128),
    TrainConfig(steps=6000, learning_rate=1e-3, weight_decay=0.01, precision="tf32"),
    seeds=5,
    betas=(0.1, 0.2, 0.35, 0.5, 0.65),
    decay=2.0,
    extras={"widths": (512, 512), "dropout": 0.15, "ramps": 12},
)
SMALL_IMAGES = Plan(
    _images((32, 64), 512, 3),
    _images((32, 64), 128, 3),
    TrainConfig(steps=4000, learning_rate=1e-3, weight_decay=0.01, precision="bf16"),
    seeds=3,
    betas=(0.003, 0.01, 0.02, 0.03, 0.05),
    decay=0.3,
    extras={"dropout": 0.2},
    trial_share=0.25,
    methods=tuple(name for name in METHODS if name != "gp"),
)
COLOUR_IMAGES = replace(
    SMALL_IMAGES,
    trunk=_images((64, 128, 256), 512, 4, halve_by="max"),
    ensemble_trunk=_images((32, 64, 128), 256, 4),
    train=TrainConfig(steps=8000, learning_rate=1e-3, weight_decay=0.05, precision="bf16"),
)
PLANS: dict[str, Plan] = {
    "superconductor": TABLE,
    "superconductor-grouped": replace(TABLE, settings_of="superconductor"),
    "mnist": SMALL_IMAGES,
    "cifar10": COLOUR_IMAGES,
}


def configured(plan: Plan, method: str, value: Any) -> dict[str, Any]:
    """What `gpn.methods.get(method, ...)` is given for one value of the method's dial."""
    dial, _ = plan.dial(method)
    if method == "gp":
        return {dial: value}
    train, trunk = plan.train, plan.trunk
    own: dict[str, Any] = {dial: value}
    if dial == "weight_decay":
        train, own = train.replace(weight_decay=value), {}
    if method in ENSEMBLES:
        trunk = plan.ensemble_trunk
    if method == "ensemble-pr":  # its anchors are its weight decay
        train = train.replace(weight_decay=0.0)
    if method == "gpn":
        train, trunk = train.replace(weight_decay=plan.decay), trunk.replace(**plan.extras)
    if method in ("sngp", "dkl") and train.precision == "bf16":  # they factor matrices
        train = train.replace(precision="tf32")
    if method == "gpn-paper":  # the price of one network, where every pairing costs a hundred
        own["pairing"] = "one"
    if method == "dkl":
        train = train.replace(steps=max(10, train.steps // 3))
    return {**own, "trunk": trunk, "train": train}
