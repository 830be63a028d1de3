"""What can be chosen in a GPN, and what is chosen when nothing is said."""

from dataclasses import dataclass
from typing import Any

import torch

from gpn.core.config import (
    Config,
    require_counts,
    require_not_negative,
    require_one_of,
    require_positive_if_given,
)
from gpn.core.networks.trunks import ConvTrunk, MLPTrunk, ModuleTrunk, Trunk
from gpn.core.priors.prior import MLPPrior, PriorSpec
from gpn.core.task import Task
from gpn.training.config import TrainConfig

# Beyond as many labels as there are noise axes, conditioned anchors come closer (fidelity/reach).
JOINT_LABELS = 64
JOINT_CLASS_LABELS = 300
# In more dimensions the joint loss of targets is too stiff to train to its minimum.
JOINT_TARGET_DIMENSIONS = 2
JOINT_DIMENSIONS = 10
# Joint anchors of classes tie all logits: a code axis for each, which is slow where they are many.
FEW_CLASSES = 4
MAX_JOINT_CLASSES = 20
# In a wide table, conditioned anchors predict and detect better up to about a thousand labels.
WIDE_CONDITIONED_LABELS = 1000
MADE_UP = 1 / 3
RAMPS, FEWER_RAMPS = 16, 12


@dataclass(frozen=True, kw_only=True)
class GPNConfig(Config):
    """Settings of a GPN; the names are the paper's where it has one. None and "auto" are chosen
    from the task, and the choice stands on the fitted posterior's `config`.

    anchor
        How the pull towards the prior treats rows. "joint": the paper's full σ_ε² δᵀ Σ_Ŷ⁻¹ δ over
        labels and pool (exact; few labels), with Σ_Ŷ in closed form where the prior has one, else
        from its own draws. "conditioned": prior functions conditioned on all labels in the space
        of the prior's leading features (many labels of few dimensions, few of many).
        "independent": β ‖δ‖² row by row (many labels, many dimensions, classes).
    codes
        "spectral": the prior's eigenfunctions are the code's axes, every z has its prior function.
        "learnt": the paper's k stored prior networks, each with a learnt code.
    generator
        "affine": b(x) + A(x) z, moments in closed form. "concat": the paper's.
    target_noise, noise_std
        One fixed N(0, noise_std²) draw per label and anchor; noise_std None is learnt wherever
        the fit needs it: with joint or conditioned anchors, target noise, or a search for β.
    beta
        Weight of independent anchors; None searches it on held-out labels.
    pool_weights
        "mixture": pool rows that look like labeled ones are anchored less. "equal": all alike.
    made_up
        Share of the pool that is made up, from labeled rows (`core/strangers.py`), for
        independent anchors with spectral codes. None is a third for images, and for tables of
        targets with mixture weights what the pool lacks: nothing where about a third of its rows
        are unlike the labeled ones.
    n_axes, noise_axes
        Most function axes per output (spectral codes), and most noise axes.
    n_anchors, code_dim, code_noise
        k stored prior functions with codes of q dimensions, trained under noise ε of that standard
        deviation (learnt codes). With spectral codes, n_anchors codes are drawn where an
        expectation has no closed form.
    jitter
        Added to the diagonal of Σ_Ŷ by joint anchors; None is a tenth of the labels' noise
        variance (a hundred-thousandth of the prior's for classes). A smaller one is stiffer to
        train, a larger one blurs functions at that scale.
    reference_rows
        Pool rows that make the spectral axes. Independent anchors learn from 200,000 rows of a
        tensor, where it has more, and of a sampler or a dataset from four times this number.
    pairing
        "every": each anchor sees each row. "one": each row draws one anchor (unbiased, and for
        the generator the price of one ordinary network). For objectives without a closed form.
    """

    anchor: str = "auto"
    codes: str = "spectral"
    generator: str = "affine"
    target_noise: bool | None = None
    noise_std: float | None = None
    beta: float | None = None
    pool_weights: str = "auto"
    made_up: float | None = None
    n_axes: int = 200
    noise_axes: int = 64
    n_anchors: int = 100
    code_dim: int = 10
    code_noise: float = 0.1
    pairing: str = "every"
    jitter: float | None = None
    reference_rows: int = 1024
    prior: PriorSpec | None = None
    trunk: Trunk | None = None
    train: TrainConfig | None = None

    def __post_init__(self) -> None:
        require_one_of(self, "anchor", ("auto", "joint", "conditioned", "independent"))
        require_one_of(self, "codes", ("spectral", "learnt"))
        require_one_of(self, "generator", ("affine", "concat"))
        require_one_of(self, "pool_weights", ("auto", "mixture", "equal"))
        require_one_of(self, "pairing", ("every", "one"))
        require_counts(self, "n_axes", "noise_axes", "n_anchors", "code_dim", "reference_rows")
        require_positive_if_given(self, "beta", "noise_std", "jitter")
        if self.made_up is not None and not 0 <= self.made_up < 1:
            raise ValueError(f"made_up must lie in [0, 1), got {self.made_up}; 0 is none at all.")
        require_not_negative(self, "code_noise")
        self._check_combinations()

    def _check_combinations(self) -> None:
        several = self.train is not None and self.train.devices * self.train.num_nodes > 1
        if several and (self.generator, self.pairing) == ("concat", "one"):
            raise ValueError(
                "rows that have a code each cannot be split among processes where codes join them, "
                "got generator='concat' and pairing='one' on several devices; use pairing='every'."
            )
        if self.anchor == "joint" and self.pairing == "one":
            raise ValueError(
                "joint anchors compare whole functions and need pairing='every', got 'one'; "
                "with pairing='one' use anchor='independent'."
            )
        if self.pool_weights == "mixture" and (
            self.codes == "learnt" or self.anchor in ("joint", "conditioned")
        ):
            raise ValueError(
                "mixture weights belong to independent anchors with spectral codes, got "
                f"anchor={self.anchor!r} and codes={self.codes!r}; use pool_weights='equal'."
            )
        if self.anchor == "conditioned" and (self.codes, self.generator) != ("spectral", "affine"):
            raise ValueError(
                "conditioned anchors need codes='spectral' and generator='affine', got "
                f"codes={self.codes!r} and generator={self.generator!r}."
            )

    @classmethod
    def paper(cls, **changes: Any) -> "GPNConfig":
        """The paper: k = 100 prior networks, 10 learnt code dimensions, β = 0.1, tanh, 40 and 10.

        Its ε ~ N(0, I) is `code_noise=1.0`; at that most of the posterior's spread is lost, so
        the preset keeps 0.1.
        """
        paper: dict[str, Any] = {
            "anchor": "independent",
            "codes": "learnt",
            "generator": "concat",
            "target_noise": False,
            "pool_weights": "equal",
            "made_up": 0.0,
            "n_anchors": 100,
            "code_dim": 10,
            "beta": 0.1,
            "prior": MLPPrior(prior_variance=(40.0, 10.0), activation="tanh"),
        }
        return cls(**{**paper, **changes})

    def resolved(self, task: Task) -> "GPNConfig":
        """This configuration with everything but β and the noise chosen for `task`."""
        anchor = self._anchor(task) if self.anchor == "auto" else self.anchor
        if anchor == "conditioned" and task.is_classification:
            raise ValueError(
                "conditioned anchors need a regression task, got integer y (classes); "
                "use anchor='joint' or anchor='independent'."
            )
        mixed = anchor == "independent" and self.codes == "spectral"
        weights = "mixture" if mixed else "equal"
        return self.replace(
            anchor=anchor,
            target_noise=self._target_noise(task, anchor),
            pool_weights=weights if self.pool_weights == "auto" else self.pool_weights,
            made_up=self._made_up(task, anchor),
            prior=self._prior(task, anchor) if self.prior is None else self.prior,
            trunk=self._trunk(task, anchor) if self.trunk is None else self.trunk,
            train=self._train(task, anchor) if self.train is None else self.train,
        )

    @property
    def is_frozen(self) -> bool:
        """Whether the trunk is a module that is used as it is: only a head is trained on it."""
        return isinstance(self.trunk, ModuleTrunk) and self.trunk.is_frozen

    def _made_up(self, task: Task, anchor: str) -> float | None:
        possible = len(task.input_shape) in (1, 3) and self._detects(anchor)
        if self.made_up and not possible:
            raise ValueError(
                "strangers can be made up for tables and images, with independent anchors and "
                f"spectral codes, got rows of shape {task.input_shape}, {anchor=} and "
                f"codes={self.codes!r}; use made_up=0."
            )
        if self.made_up is not None or not possible:
            return self.made_up or 0.0
        if len(task.input_shape) == 3:
            return MADE_UP
        return 0.0 if task.is_classification else None

    def _prior(self, task: Task, anchor: str) -> PriorSpec:
        """The paper's, or less high where strangers in a wide table are to be told apart."""
        if self._detects_in_a_wide_table(task, anchor) and not task.is_classification:
            return MLPPrior(prior_variance=(40.0, 6.0))
        return MLPPrior()

    def _trunk(self, task: Task, anchor: str) -> Trunk:
        """Small and wavy where the prior must be followed closely, wide for many features."""
        if len(task.input_shape) == 3:
            return ConvTrunk()
        dim = torch.Size(task.input_shape).numel()
        if dim > JOINT_DIMENSIONS:
            if anchor == "conditioned":
                return MLPTrunk(widths=(256, 256), activation="relu", ramps=RAMPS)
            if not self._detects(anchor):
                return MLPTrunk(widths=(512, 512, 512, 512), activation="relu")
            if task.is_classification:
                return MLPTrunk(widths=(256, 256), activation="relu")
            return MLPTrunk(widths=(512, 512), activation="relu", dropout=0.15, ramps=FEWER_RAMPS)
        if dim == 1:
            return MLPTrunk(widths=(128, 128), fourier=64)
        if anchor == "conditioned":
            return MLPTrunk(widths=(512, 512), fourier=256)
        return MLPTrunk(widths=(256, 256), fourier=128)

    def _train(self, task: Task, anchor: str) -> TrainConfig:
        """Enough steps for an exact fit of few labels, or 40 epochs of many."""
        if anchor == "independent":
            steps = max(1500, 40 * len(task.x_obs) // 256)
            decay = self._weight_decay(task, anchor)
            pool_batch = self._pool_batch(task, anchor)
            return TrainConfig(
                steps=steps, pool_batch=pool_batch, learning_rate=1e-3, weight_decay=decay
            )
        if task.is_classification:
            return TrainConfig(steps=1000, pool_batch=64, learning_rate=5e-3)
        if anchor == "conditioned":
            rate = 5e-3 if task.input_shape == (1,) else 2e-3
            return TrainConfig(steps=2000, label_batch=64, pool_batch=64, learning_rate=rate)
        pool_batch = 64 if task.input_shape == (1,) else 128
        return TrainConfig(steps=2000, pool_batch=pool_batch, learning_rate=5e-3)

    def _pool_batch(self, task: Task, anchor: str) -> int:
        """Fewer rows do for a wide table, and fewer still where they come by their weights."""
        if not self._detects_in_a_wide_table(task, anchor):
            return 256
        by_weight = self.pool_weights != "equal" and not task.is_classification
        return 64 if by_weight else 128

    def _weight_decay(self, task: Task, anchor: str) -> float:
        if self._detects_in_a_wide_table(task, anchor):
            return 1.0 if task.is_classification else 2.0
        return 0.3 if self._detects(anchor) else 0.0

    def _detects_in_a_wide_table(self, task: Task, anchor: str) -> bool:
        wide = torch.Size(task.input_shape).numel() > JOINT_DIMENSIONS
        return wide and len(task.input_shape) != 3 and self._detects(anchor)

    def _detects(self, anchor: str) -> bool:
        """Where rows are told apart rather than a posterior followed: regularise the network.

        Not in the paper's scheme, which has none of it.
        """
        return anchor == "independent" and self.codes == "spectral"

    def _target_noise(self, task: Task, anchor: str) -> bool:
        closed_form = self.codes == "spectral" and self.generator == "affine"
        possible = closed_form or not task.is_classification
        if self.target_noise and not possible:
            raise ValueError(
                "target noise on classes needs codes='spectral' and generator='affine', got "
                f"codes={self.codes!r} and generator={self.generator!r}; use target_noise=False."
            )
        return (
            possible and anchor != "independent" if self.target_noise is None else self.target_noise
        )

    def _anchor(self, task: Task) -> str:
        table = len(task.input_shape) == 1
        if not table or not (self.prior or MLPPrior()).has_kernel or self.pairing == "one":
            return "independent"
        affine = (self.codes, self.generator) == ("spectral", "affine")
        close = affine and not task.is_classification
        if self._joint(task, closer=close):
            return "joint"
        small = task.input_shape[0] <= JOINT_DIMENSIONS
        return "conditioned" if close and (small or self._few_of_many(task)) else "independent"

    def _joint(self, task: Task, *, closer: bool) -> bool:
        """Few enough labels and dimensions for the full Σ_Ŷ; fewer where there is something closer
        to the truth beyond."""
        most = JOINT_CLASS_LABELS if task.is_classification else JOINT_LABELS
        dimensions = JOINT_TARGET_DIMENSIONS if closer else JOINT_DIMENSIONS
        narrow = task.input_shape[0] <= dimensions
        if task.is_classification:
            few = task.n_outputs <= FEW_CLASSES and not self._asks_for_beta
            narrow = few or (narrow and task.n_outputs <= MAX_JOINT_CLASSES)
        return len(task.x_obs) <= most and narrow

    def _few_of_many(self, task: Task) -> bool:
        """Few labels of a wide table."""
        return len(task.x_obs) <= WIDE_CONDITIONED_LABELS and not self._asks_for_beta

    @property
    def _asks_for_beta(self) -> bool:
        """Whether something is asked for that only independent anchors have."""
        return self.beta is not None or self.pool_weights == "mixture"
