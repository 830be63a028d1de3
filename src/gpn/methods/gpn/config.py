"""What can be set in a GPN."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from gpn.core.config import (
    Config,
    require_counts,
    require_not_negative,
    require_one_of,
    require_positive_if_given,
)
from gpn.core.networks.trunks import ModuleTrunk, Trunk
from gpn.core.priors.prior import MLPPrior, PriorSpec
from gpn.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class GPNConfig(Config):
    """Settings of a GPN; the names are the paper's where it has one. None and "auto" are chosen
    from the task (`defaults.py`), and the choice is on the fitted posterior's `config`.

    anchor
        How the pull towards the prior treats rows. "joint": the paper's full σ_ε² δᵀ Σ_Ŷ⁻¹ δ over
        labels and pool (exact; few labels), with Σ_Ŷ in closed form where the prior has one, else
        from its draws. "conditioned": prior functions conditioned on all labels in the space of
        the prior's leading features (many labels of few dimensions, few of many).
        "independent": β ‖δ‖² row by row (many labels, many dimensions, classes).
    codes
        "spectral": the prior's eigenfunctions are the code's axes, every z has its prior function.
        "learnt": the paper's k stored prior networks, each with a learnt code.
    generator
        "closed-form": a prior with a scale per column, conditioned on the labels by linear
        algebra, without training (tables; of classes by Laplace's approximation). "affine": a
        network b(x) + A(x) z, moments in closed form; under an `ARDPrior`, which `GPNRegressor`
        then learns, it is trained to follow the closed form. "concat": the paper's network. "auto"
        is "closed-form" under an `ARDPrior` of tables where nothing is set that only a network has,
        else "affine".
    target_noise, noise_std
        One fixed N(0, noise_std²) draw per label and anchor; noise_std None is learnt wherever
        the fit needs it: with joint or conditioned anchors, target noise, or a search for β.
    temperature
        Of classes in closed form: their likelihood is raised to 1/temperature, so that below 1
        labels count more than once (a cold posterior). None is 1 under a given prior.
    beta
        Weight of independent anchors; None searches it on held-out labels.
    beta_ramp
        Share of the steps in which β rises from 0; None is 0, and a fifth on a `ResNetTrunk`.
    label_smoothing
        Share of each label that the data term spreads over all classes (independent anchors, affine
        generator); None is 0, and 0.05 on a `ResNetTrunk`.
    calibration_share
        Share of the labels that are held out of training, and whose likelihood chooses the
        posterior's temperature (classes, affine generator): smoothed labels make probabilities
        too cautious. None is 0; on a `ResNetTrunk` 0.01 and at most 500 labels, where that is
        100 or more. Of numbers, under conditioned anchors and an `ARDPrior`: labels at which the
        network is not trained, so that what it misses at new rows can be measured there.
    pool_weights
        "mixture": pool rows that look like labeled ones are anchored less. "equal": all alike.
    synthetic_ood
        Share of synthetic outliers in the pool, made from labeled rows (`pool/synthetic.py`), for
        independent anchors with spectral codes. None is a third for images (a quarter with a
        `ResNetTrunk`), and for tables of targets with mixture weights as many as the pool lacks:
        none where about a third of its rows are unlike the labeled ones.
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
        Pool rows that define the spectral axes. Independent anchors learn from 200,000 rows of a
        tensor, where it has more, and of a sampler or a dataset from four times this number.
    pairing
        "every": each anchor sees each row. "one": each row draws one anchor (unbiased, and for
        the generator the cost of one ordinary network). For objectives without a closed form.
    """

    renamed: ClassVar[dict[str, str]] = {"made_up": "synthetic_ood"}
    added: ClassVar[dict[str, Any]] = {"calibration_share": 0.0}

    anchor: str = "auto"
    codes: str = "spectral"
    generator: str = "auto"
    target_noise: bool | None = None
    noise_std: float | None = None
    temperature: float | None = None
    beta: float | None = None
    beta_ramp: float | None = None
    label_smoothing: float | None = None
    calibration_share: float | None = None
    pool_weights: str = "auto"
    synthetic_ood: float | None = None
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
        require_one_of(self, "generator", ("auto", "closed-form", "affine", "concat"))
        require_one_of(self, "pool_weights", ("auto", "mixture", "equal"))
        require_one_of(self, "pairing", ("every", "one"))
        require_counts(self, "n_axes", "noise_axes", "n_anchors", "code_dim", "reference_rows")
        require_positive_if_given(self, "beta", "noise_std", "jitter", "temperature")
        if self.synthetic_ood is not None and not 0 <= self.synthetic_ood < 1:
            raise ValueError(
                f"synthetic_ood must lie in [0, 1), got {self.synthetic_ood}; 0 is none at all."
            )
        for name in ("beta_ramp", "label_smoothing", "calibration_share"):
            if not 0 <= (getattr(self, name) or 0.0) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}.")
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
        if self.anchor == "conditioned" and not self.is_affine_spectral:
            raise ValueError(
                "conditioned anchors need codes='spectral' and generator='affine', got "
                f"codes={self.codes!r} and generator={self.generator!r}."
            )

    @classmethod
    def paper(cls, **changes: Any) -> "GPNConfig":
        """The paper: k = 100 prior networks, 10 learnt code dimensions, β = 0.1, tanh, 40 and 10.

        Its ε ~ N(0, I) is `code_noise=1.0`; at that most of the posterior's spread is lost, so
        the preset uses 0.1.
        """
        paper: dict[str, Any] = {
            "anchor": "independent",
            "codes": "learnt",
            "generator": "concat",
            "target_noise": False,
            "pool_weights": "equal",
            "synthetic_ood": 0.0,
            "n_anchors": 100,
            "code_dim": 10,
            "beta": 0.1,
            "prior": MLPPrior(prior_variance=(40.0, 10.0), activation="tanh"),
        }
        return cls(**{**paper, **changes})

    @property
    def is_frozen(self) -> bool:
        """Whether the trunk is a module that is used as it is: only a head is trained on it."""
        return isinstance(self.trunk, ModuleTrunk) and self.trunk.is_frozen

    @property
    def is_affine_spectral(self) -> bool:
        """Whether the expectation over z has a closed form."""
        return self.codes == "spectral" and self.generator in ("auto", "affine")

    @property
    def needs_network(self) -> bool:
        """Whether a setting is given that only a trained generator has."""
        given = self.trunk, self.train, self.beta, self.synthetic_ood, self.target_noise
        usual = self.anchor, self.codes, self.pool_weights, self.pairing
        sizes = "n_axes", "noise_axes", "n_anchors", "code_dim", "code_noise", "reference_rows"
        return (
            self.generator in ("affine", "concat")
            or any(value is not None for value in (*given, self.jitter))
            or usual != ("auto", "spectral", "auto", "every")
            or any(getattr(self, name) != getattr(GPNConfig, name) for name in sizes)
        )


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig(GPNConfig):
    """A configuration for one task in which nothing is left open.

    `beta` is 0 until it was searched, and where anchors have no β; `noise_std` is 0 where the
    noise is not known, as that of classes; `jitter` 0 is found from the kernel, and `temperature` 0
    by the fit. With `fill_ood`,
    as many synthetic outliers join the pool as it lacks.
    """

    target_noise: bool = False
    noise_std: float = 0.0
    beta: float = 0.0
    beta_ramp: float = 0.0
    label_smoothing: float = 0.0
    calibration_share: float = 0.0
    synthetic_ood: float = 0.0
    fill_ood: bool = False
    jitter: float = 0.0
    temperature: float = 0.0
    prior: PriorSpec
    trunk: Trunk
    train: TrainConfig

    def __post_init__(self) -> None:
        """Everything was checked as a `GPNConfig`."""

    def public(self) -> GPNConfig:
        """The same as users see it, in model files too: what is not known is None."""
        names = [field.name for field in dataclasses.fields(GPNConfig)]
        values = {name: getattr(self, name) for name in names}
        for name in ("beta", "noise_std", "jitter", "temperature"):
            values[name] = values[name] or None
        if self.fill_ood:
            values["synthetic_ood"] = None
        return GPNConfig(**values)
