"""The plan of each task: the paper's networks, and five values of one hyperparameter per method.

Networks are those of the paper's appendix: ensembles get the smaller ones.
"""

from dataclasses import dataclass, replace
from typing import Any

from gpn import ConvTrunk, MLPTrunk, TrainConfig
from gpn.core.networks.trunks import Trunk

ENSEMBLES = ("ensemble-pr", "ensemble-or", "ensemble")

# The hyperparameter of each method and the five values to try; a plan has those of our GPN.
GRIDS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "dropout": ("rate", (0.05, 0.1, 0.2, 0.3, 0.5)),
    "dkl": ("weight_decay", (0.01, 0.1, 0.3, 1.0, 3.0)),
    "sngp": ("spectral_bound", (0.95, 2.0, 4.0, 6.0, 10.0)),
    "ensemble-pr": ("beta", (0.01, 0.1, 1.0, 10.0, 100.0)),
    "ensemble-or": ("beta", (0.01, 0.03, 0.1, 0.3, 1.0)),
    "ensemble": ("weight_decay", (0.0, 0.01, 0.1, 0.3, 1.0)),
    "gp": ("noise_std", (0.1, 0.2, 0.3, 0.4, 0.5)),
    "gpn-paper": ("beta", (0.01, 0.03, 0.1, 0.3, 1.0)),
}
METHODS = (*GRIDS, "gpn")


@dataclass(frozen=True)
class Plan:
    """Networks, training and number of seeds for one task.

    betas, weight_decay, trunk_changes
        Our GPN's own: the values of β to try, its weight decay, and changes of the trunk.
    trial_share
        The share of the steps that a trial of a hyperparameter takes.
    settings_of
        The task whose chosen hyperparameters are used here, in place of trials.
    """

    trunk: Trunk
    ensemble_trunk: Trunk
    train: TrainConfig
    seeds: int
    betas: tuple[float, ...]
    weight_decay: float
    trunk_changes: dict[str, Any]
    trial_share: float = 1.0
    settings_of: str | None = None
    methods: tuple[str, ...] = METHODS

    @property
    def gpn_trunk(self) -> Trunk:
        """The trunk of our GPN."""
        return self.trunk.replace(**self.trunk_changes)

    def grid(self, method: str) -> tuple[str, tuple[Any, ...]]:
        """The method's hyperparameter, and the values to try."""
        return ("beta", self.betas) if method == "gpn" else GRIDS[method]

    def quick(self, share: float) -> "Plan":
        """The same plan with fewer steps of smaller batches, and one seed."""
        steps = max(10, round(share * self.train.steps))
        train = self.train.replace(steps=steps, label_batch=64, pool_batch=64)
        return replace(self, train=train, seeds=1, trial_share=1.0, settings_of=None)


TABLE = Plan(
    MLPTrunk(widths=(512,) * 4, activation="relu"),
    MLPTrunk(widths=(128,) * 4, activation="relu"),
    TrainConfig(steps=6000, learning_rate=1e-3, weight_decay=0.01, precision="tf32"),
    seeds=5,
    betas=(0.1, 0.2, 0.35, 0.5, 0.65),
    weight_decay=2.0,
    trunk_changes={"widths": (512, 512), "dropout": 0.15, "ramps": 12},
)
SMALL_IMAGES = Plan(
    ConvTrunk(channels=(32, 64), widths=(512,) * 3),
    ConvTrunk(channels=(32, 64), widths=(128,) * 3),
    TrainConfig(steps=4000, learning_rate=1e-3, weight_decay=0.01, precision="bf16"),
    seeds=3,
    betas=(0.003, 0.01, 0.02, 0.03, 0.05),
    weight_decay=0.3,
    trunk_changes={"dropout": 0.2},
    trial_share=0.25,
    methods=tuple(name for name in METHODS if name != "gp"),
)
COLOUR_IMAGES = replace(
    SMALL_IMAGES,
    trunk=ConvTrunk(channels=(64, 128, 256), widths=(512,) * 4, halve_by="max"),
    ensemble_trunk=ConvTrunk(channels=(32, 64, 128), widths=(256,) * 4),
    train=TrainConfig(steps=8000, learning_rate=1e-3, weight_decay=0.05, precision="bf16"),
)
PLANS: dict[str, Plan] = {
    "superconductor": TABLE,
    "superconductor-grouped": replace(TABLE, settings_of="superconductor"),
    "mnist": SMALL_IMAGES,
    "cifar10": COLOUR_IMAGES,
}


def method_config(plan: Plan, method: str, value: Any) -> dict[str, Any]:
    """The arguments of `gpn.methods.get(method, ...)` for one value of the hyperparameter."""
    name, _ = plan.grid(method)
    if method == "gp":
        return {name: value}
    train, trunk = plan.train, plan.trunk
    changes: dict[str, Any] = {name: value}
    if name == "weight_decay":
        train, changes = train.replace(weight_decay=value), {}
    if method in ENSEMBLES:
        trunk = plan.ensemble_trunk
    if method == "ensemble-pr":  # its anchors take the place of weight decay
        train = train.replace(weight_decay=0.0)
    if method == "gpn":
        train, trunk = train.replace(weight_decay=plan.weight_decay), plan.gpn_trunk
    if method in ("sngp", "dkl") and train.precision == "bf16":  # they factor matrices
        train = train.replace(precision="tf32")
    if method == "gpn-paper":  # one anchor per row: a hundred times cheaper than every pair
        changes["pairing"] = "one"
    if method == "dkl":
        train = train.replace(steps=max(10, train.steps // 3))
    return {**changes, "trunk": trunk, "train": train}
