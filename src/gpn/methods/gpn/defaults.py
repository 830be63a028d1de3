"""What a GPN chooses where its configuration leaves something open: a table of regimes.

Each row of the table says which measurement chose it; files are under `experiments/results`.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch

from gpn.core.networks.trunks import ConvTrunk, MLPTrunk, ResNetTrunk, Trunk
from gpn.core.priors.ard import ARDPrior
from gpn.core.priors.prior import MLPPrior, PriorSpec
from gpn.core.task import Task
from gpn.methods.gpn.config import GPNConfig, ResolvedConfig
from gpn.training.config import TrainConfig, as_device

MAX_FEW_INPUTS = 10
MAX_JOINT_LABELS, MAX_JOINT_CLASS_LABELS = 64, 300
# Of targets with more inputs, conditioned anchors come closer to the posterior (fidelity/reach).
MAX_JOINT_TARGET_INPUTS = 2
# Joint anchors of classes tie all logits: a code axis for each, which is slow for many classes.
MAX_WIDE_JOINT_CLASSES, MAX_JOINT_CLASSES = 4, 20
# Of wide tables with more labels, independent anchors predict and detect better.
MAX_WIDE_CONDITIONED_LABELS = 1000
MAX_DOUBLE_LABELS = 1000
LABEL_BATCH, EPOCHS = 256, 40
MIN_PHOTO_PIXELS = 24  # on each side
MIN_CALIBRATION_LABELS, MAX_CALIBRATION_LABELS = 100, 500

PAPER_PRIOR = MLPPrior()
TRUNKS: dict[str, Trunk] = {
    "one": MLPTrunk(widths=(128, 128), fourier=64),
    "few": MLPTrunk(widths=(256, 256), fourier=128),
    "many": MLPTrunk(widths=(512, 512, 512, 512), activation="relu"),
    "image": ConvTrunk(),
    "photo": ResNetTrunk(),
}


@dataclass(frozen=True)
class Regime:
    """Defaults for one kind of task, and the measurement that chose them.

    goal
        "joint" and "conditioned" follow the posterior, by anchors of that name; "followed" does
        where it is known in closed form, under a prior with a scale per column; "detect" has
        independent anchors with spectral codes, "paper" independent anchors with learnt codes.
    labels, inputs, weights
        "targets" or "classes"; "one", "few" (up to 10), "many", "image" or "photo" (of a residual
        network); weights of pool rows, "mixture" or "equal". None matches any.
    trunk
        None is the usual one for so many inputs (`TRUNKS`).
    """

    goal: str
    labels: str | None = None
    inputs: str | None = None
    weights: str | None = None
    _: KW_ONLY
    train: dict[str, Any]
    measured: str
    trunk: Trunk | None = None
    prior: PriorSpec = PAPER_PRIOR
    epochs: int = EPOCHS
    beta: float = 0.0
    beta_ramp: float = 0.0
    label_smoothing: float = 0.0
    calibration_share: float = 0.0
    synthetic_ood: float = 0.0
    fill_ood: bool = False

    def matches(self, goal: str, labels: str, inputs: str, weights: str) -> bool:
        wanted = (self.labels, labels), (self.inputs, inputs), (self.weights, weights)
        return self.goal == goal and all(mine in (None, theirs) for mine, theirs in wanted)


JOINT: dict[str, Any] = {"steps": 2000, "pool_batch": 128, "learning_rate": 5e-3}
CONDITIONED: dict[str, Any] = {
    "steps": 2000,
    "label_batch": 64,
    "pool_batch": 64,
    "learning_rate": 2e-3,
}
FOLLOWED: dict[str, Any] = {
    "steps": 3000,
    "label_batch": 128,
    "pool_batch": 128,
    "learning_rate": 2e-3,
}
DETECT: dict[str, Any] = {"learning_rate": 1e-3, "weight_decay": 0.3}
MUON: dict[str, Any] = {  # of a residual network on photographs
    "optimiser": "muon",
    "learning_rate": 0.2,
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "schedule": "linear",
    "averaging": 0.04,
}
PHOTO: dict[str, Any] = {**MUON, "label_batch": 1024, "pool_batch": 128, "precision": "bf16"}
WIDE_TARGETS: dict[str, Any] = {
    "trunk": MLPTrunk(widths=(512, 512), activation="relu", dropout=0.15, ramps=12),
    "prior": MLPPrior(prior_variance=(40.0, 6.0)),
}

# fmt: off
REGIMES = (
    Regime("joint", "targets", "one", train=JOINT | {"pool_batch": 64},
           measured="fidelity/six-points: W2 to the exact posterior 0.0006"),
    Regime("joint", "targets", train=JOINT, measured="fidelity/surface: W2 0.020"),
    Regime("joint", "classes", train=JOINT | {"steps": 1000, "pool_batch": 64},
           measured="fidelity/three-classes: total variation to long chains 0.005"),
    Regime("conditioned", None, "one", train=CONDITIONED | {"learning_rate": 5e-3},
           measured="fidelity/six-points and gap: W2 0.0015 and 0.0017"),
    Regime("conditioned", None, "few", train=CONDITIONED,
           trunk=MLPTrunk(widths=(512, 512), fourier=256),
           measured="fidelity/reach: W2 0.017 to 0.023 from 100 to 10,000 labels"),
    Regime("conditioned", None, "many", train=CONDITIONED,
           trunk=MLPTrunk(widths=(256, 256), activation="relu", ramps=16),
           measured="tests/theory/test_default_choices: 40 labels of 20 columns, spread ± 10 %"),
    Regime("conditioned", None, "image", train=CONDITIONED, measured="as few inputs; no default"),
    Regime("followed", train=FOLLOWED, trunk=MLPTrunk(widths=(256, 256), fourier=128),
           measured="tables: rows gpn-network of the suite"),
    Regime("detect", "classes", "photo", train=PHOTO, epochs=60, beta=0.01, beta_ramp=0.2,
           label_smoothing=0.05, calibration_share=0.01, synthetic_ood=1 / 4,
           measured="cifar10-modern: accuracy 96.1 %, OOD AUC 1.0000, unseen textures 0.984; "
                    "with synthetic outliers only: 96.1 %, 0.9982 and 0.981"),
    Regime("detect", None, "image", train=DETECT, synthetic_ood=1 / 3,
           measured="cifar10: OOD AUC 0.9998; cifar10/pool-share: without OOD images 0.829"),
    Regime("detect", "targets", "many", "mixture", **WIDE_TARGETS, fill_ood=True,
           train=DETECT | {"weight_decay": 2.0, "pool_batch": 64},
           measured="superconductor: OOD AUC 0.981, OOD CI-correct 94.0 %"),
    Regime("detect", "targets", "many", **WIDE_TARGETS,
           train=DETECT | {"weight_decay": 2.0, "pool_batch": 128},
           measured="as with mixture weights, but rows of little weight fill half of a batch"),
    Regime("detect", "classes", "many", train=DETECT | {"weight_decay": 1.0, "pool_batch": 128},
           trunk=MLPTrunk(widths=(256, 256), activation="relu"),
           measured="tests/theory/test_default_choices: digits, 400 labels: logistic regression"),
    Regime("detect", "targets", train=DETECT, fill_ood=True,
           measured="fidelity/surface/gpn-mixture: W2 1.9, so that it is no default"),
    Regime("detect", "classes", train=DETECT,
           measured="fidelity/three-classes/gpn-mixture: total variation 0.44; for many labels"),
    Regime("paper", train={"learning_rate": 1e-3}, measured="superconductor/gpn-paper: AUC 0.940"),
)
# fmt: on


def regime_of(config: GPNConfig, task: Task, anchor: str, weights: str) -> Regime:
    """The first row of the table that matches."""
    independent = "detect" if config.codes == "spectral" else "paper"
    goal = independent if anchor == "independent" else anchor
    if anchor == "conditioned" and isinstance(config.prior, ARDPrior):
        goal = "followed"
    labels = "classes" if task.is_classification else "targets"
    inputs = _inputs(task)
    if inputs == "image" and labels == "classes" and goal == "detect" and _is_photo(config, task):
        inputs = "photo"
    return next(row for row in REGIMES if row.matches(goal, labels, inputs, weights))


def resolve(config: GPNConfig, task: Task) -> ResolvedConfig:
    """The configuration with everything but β and the noise chosen for the task."""
    generator = config.generator
    if has_closed_form(config, task):
        generator = "closed-form"
    elif generator == "auto":
        generator = "affine"
    anchor = _anchor(config, task) if config.anchor == "auto" else config.anchor
    if anchor == "conditioned" and task.is_classification:
        raise ValueError(
            "conditioned anchors need a regression task, got integer y (classes); "
            "use anchor='joint' or anchor='independent'."
        )
    weights = config.pool_weights
    if weights == "auto":
        detects = anchor == "independent" and config.codes == "spectral"
        weights = "mixture" if detects else "equal"
    regime = regime_of(config, task, anchor, weights)
    batch = regime.train.get("label_batch", LABEL_BATCH)
    steps = max(1500, regime.epochs * len(task.x_obs) // batch)
    trunk = config.trunk or regime.trunk or TRUNKS[regime.inputs or _inputs(task)]
    train = config.train or TrainConfig(**{"steps": steps, **regime.train})
    known = {name: value for name, value in vars(config).items() if value is not None}
    chosen = {
        "generator": generator,
        "anchor": anchor,
        "pool_weights": weights,
        "target_noise": _target_noise(config, task, anchor),
        "prior": config.prior or regime.prior,
        "trunk": trunk,
        "train": train,
        "beta": config.beta or regime.beta,
        "beta_ramp": _chosen(config.beta_ramp, regime.beta_ramp),
        "label_smoothing": _chosen(config.label_smoothing, regime.label_smoothing),
        "calibration_share": _calibration_share(config, task, regime, generator),
        **_synthetic(config, task, regime),
    }
    return ResolvedConfig(**{**known, **chosen})


def has_closed_form(config: GPNConfig, task: Task) -> bool:
    """Whether the posterior is found by conditioning a kernel, and not by training."""
    if (
        isinstance(config.prior, ARDPrior)
        and len(config.prior.column_scales) != task.x_obs[0].numel()
    ):
        raise ValueError(
            f"an ARDPrior must have a scale for each column, {task.x_obs[0].numel()} here, got "
            f"{len(config.prior.column_scales)}."
        )
    if config.generator != "closed-form":
        return isinstance(config.prior, ARDPrior) and is_table(config, task)
    if len(task.input_shape) != 1:
        raise ValueError(
            f"generator='closed-form' needs rows (n, d), got inputs {task.input_shape}; use "
            "generator='auto'."
        )
    if config.prior is not None and not isinstance(config.prior, ARDPrior):
        raise ValueError(
            "generator='closed-form' needs an ARDPrior, or None for one by the labels, got "
            f"{type(config.prior).__name__}; use generator='affine'."
        )
    return True


def is_table(config: GPNConfig, task: Task) -> bool:
    """Whether nothing stands against the closed form: neither the task nor a setting."""
    return not (len(task.input_shape) != 1 or config.needs_network)


def preferred_dtype(n_labels: int, input_shape: tuple[int, ...]) -> torch.dtype:
    """float64 where a posterior can be followed closely: few labels of few inputs."""
    inputs = torch.Size(input_shape).numel()
    close = n_labels <= MAX_DOUBLE_LABELS and inputs <= MAX_FEW_INPUTS
    return torch.float64 if close else torch.float32


def _is_photo(config: GPNConfig, task: Task) -> bool:
    """Whether a residual network is asked for, or affordable: colour images and a GPU."""
    if config.trunk is not None:
        return isinstance(config.trunk, ResNetTrunk)
    channels, height, width = task.input_shape
    on_gpu = as_device(config.train.device if config.train else "auto").type == "cuda"
    return on_gpu and channels == 3 and min(height, width) >= MIN_PHOTO_PIXELS


def _chosen(given: float | None, default: float) -> float:
    return default if given is None else given


def _inputs(task: Task) -> str:
    """How wide a row is."""
    dim = torch.Size(task.input_shape).numel()
    if len(task.input_shape) == 3:
        return "image"
    return "one" if dim == 1 else "few" if dim <= MAX_FEW_INPUTS else "many"


def _anchor(config: GPNConfig, task: Task) -> str:
    """Joint while labels are few, conditioned while the kernel's features suffice."""
    has_kernel = (config.prior or MLPPrior()).has_kernel
    if len(task.input_shape) != 1 or not has_kernel or config.pairing == "one":
        return "independent"
    exact = config.is_affine_spectral and not task.is_classification
    if exact and isinstance(config.prior, ARDPrior):
        return "conditioned"
    asks_for_beta = config.beta is not None or config.pool_weights == "mixture"
    if _joint_is_feasible(task, conditioned_is_closer=exact, asks_for_beta=asks_for_beta):
        return "joint"
    n_labels, few_inputs = len(task.x_obs), task.input_shape[0] <= MAX_FEW_INPUTS
    few_labels = n_labels <= MAX_WIDE_CONDITIONED_LABELS and not asks_for_beta
    return "conditioned" if exact and (few_inputs or few_labels) else "independent"


def _joint_is_feasible(task: Task, *, conditioned_is_closer: bool, asks_for_beta: bool) -> bool:
    """Whether labels and inputs are few enough for the full Σ_Ŷ."""
    n_labels, inputs, classes = len(task.x_obs), task.input_shape[0], task.n_outputs
    if not task.is_classification:
        most = MAX_JOINT_TARGET_INPUTS if conditioned_is_closer else MAX_FEW_INPUTS
        return n_labels <= MAX_JOINT_LABELS and inputs <= most
    wide = classes <= MAX_WIDE_JOINT_CLASSES and not asks_for_beta
    narrow = classes <= MAX_JOINT_CLASSES and inputs <= MAX_FEW_INPUTS
    return n_labels <= MAX_JOINT_CLASS_LABELS and (wide or narrow)


def _target_noise(config: GPNConfig, task: Task, anchor: str) -> bool:
    possible = config.is_affine_spectral or not task.is_classification
    if config.target_noise and not possible:
        raise ValueError(
            "target noise on classes needs codes='spectral' and generator='affine', got "
            f"codes={config.codes!r} and generator={config.generator!r}; use target_noise=False."
        )
    if config.target_noise is not None:
        return config.target_noise
    return possible and anchor != "independent"


def _calibration_share(config: GPNConfig, task: Task, regime: Regime, generator: str) -> float:
    """The share of labels that chooses a temperature; fewer than a hundred would choose badly.

    A network that follows a posterior in closed form is not trained at that share of labels.
    """
    n_labels = len(task.x_obs)
    follows = config.anchor == "conditioned" and isinstance(config.prior, ARDPrior)
    if follows and generator == "affine" and not task.is_classification:
        return config.calibration_share or 0.0
    if not config.calibration_share:
        enough = regime.calibration_share * n_labels >= MIN_CALIBRATION_LABELS
        wanted = config.calibration_share is None and enough
        return min(regime.calibration_share, MAX_CALIBRATION_LABELS / n_labels) if wanted else 0.0
    if not task.is_classification or generator != "affine":
        raise ValueError(
            "a temperature of labels is for classes and generator='affine', got "
            f"{'classes' if task.is_classification else 'targets'} and {generator=}; use "
            "calibration_share=0."
        )
    return config.calibration_share


def _synthetic(config: GPNConfig, task: Task, regime: Regime) -> dict[str, Any]:
    """The share of synthetic outliers, or that the pool is filled up with them."""
    possible = regime.goal == "detect" and len(task.input_shape) in (1, 3)
    if config.synthetic_ood and not possible:
        raise ValueError(
            "synthetic outliers exist for tables and images, with independent anchors and spectral "
            f"codes, got rows of shape {task.input_shape}, {regime.goal} anchors and "
            f"codes={config.codes!r}; use synthetic_ood=0."
        )
    if config.synthetic_ood is not None or not possible:
        return {"synthetic_ood": config.synthetic_ood or 0.0, "fill_ood": False}
    return {"synthetic_ood": regime.synthetic_ood, "fill_ood": regime.fill_ood}
