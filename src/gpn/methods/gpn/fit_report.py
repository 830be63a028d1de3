"""What a fit found out about itself, and whether it can be trusted: pool, axes, codes and β."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from gpn.core.warnings import (
    DOUBTFUL,
    GOOD,
    UNKNOWN,
    AxesWarning,
    CodesWarning,
    Diagnostic,
    GPNWarning,
    PoolWarning,
    SearchWarning,
)
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.model.codes import CodeMoments
from gpn.methods.gpn.pool.mixture import ATYPICAL_SHARE, PoolComposition
from gpn.training.state import History

MIN_EXPLAINED_VARIANCE = 0.5
MIN_LABELS = 100
MIN_OOD_SHARE = 0.01
MAX_MEAN, MIN_SPREAD, MAX_SPREAD, MIN_RANK_SHARE = 0.5, 0.5, 2.0, 0.5
WARNINGS: dict[str, type[GPNWarning]] = {
    "pool": PoolWarning,
    "prior_axes": AxesWarning,
    "posterior_axes": AxesWarning,
    "codes": CodesWarning,
    "beta": SearchWarning,
}


@dataclass(frozen=True)
class Trial:
    """One β on the held-out labels: mean negative log score, its standard error, and coverage."""

    beta: float
    score: float
    error: float
    coverage: float
    noise_std: float | None


@dataclass(frozen=True)
class LabelVariance:
    """The exact posterior's variance at each label: given all labels, and without that label."""

    given_all: Float[Tensor, "N"]
    leave_one_out: Float[Tensor, "N"]


@dataclass(frozen=True)
class UnseenLabels:
    """Mean and variance of the function at labels `rows`, by a posterior that has not seen them."""

    rows: Int[Tensor, "u"]
    mean: Float[Tensor, "u o"]
    variance: Float[Tensor, "u o"]


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """What a fit found out; what its variant does not have is None.

    explained_variance
        The share of the prior's variance at pool rows that the code axes hold.
    posterior_explained_variance
        The same of the conditioned posterior.
    unseen
        Labels as they are predicted without themselves (closed form only).
    left_out
        Of many labels, some that are left out one by one after all were learnt (closed form only).
    followed
        The mean at all labels of the posterior that a network was trained to follow.
    at_edge
        Hyperparameters that the search for a prior left at the end of their range.
    temperature
        Of labels given functions, chosen by held-out labels.
    jitter, added_jitter
        What joint anchors add to the diagonal of Σ_Ŷ, and what a factor needed beyond that.
    """

    history: History | None = None
    beta_search: tuple[Trial, ...] = ()
    explained_variance: float | None = None
    posterior_explained_variance: float | None = None
    pool: PoolComposition | None = None
    synthetic_rows: int = 0
    codes: CodeMoments | None = None
    label_variance: LabelVariance | None = None
    unseen: UnseenLabels | None = None
    left_out: UnseenLabels | None = None
    followed: Float[Tensor, "N o"] | None = None
    at_edge: tuple[str, ...] = ()
    temperature: float | None = None
    jitter: float | None = None
    added_jitter: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The numbers that a model file records."""
        numbers = {
            "explained_variance": self.explained_variance,
            "posterior_explained_variance": self.posterior_explained_variance,
            "synthetic_rows": self.synthetic_rows or None,
            "temperature": self.temperature,
            "jitter": self.jitter,
            "added_jitter": self.added_jitter or None,
            **({} if self.pool is None else asdict(self.pool)),
        }
        known: dict[str, Any] = {k: float(v) for k, v in numbers.items() if v is not None}
        if self.beta_search:
            known["beta_search"] = [asdict(trial) for trial in self.beta_search]
        if self.history is not None:
            history = self.history
            known |= {"steps": history.steps, "training_seconds": round(history.seconds, 2)}
        return known


def diagnose(config: GPNConfig, report: FitReport) -> dict[str, Diagnostic]:
    """One verdict for each thing that may go wrong in a fit."""
    return {
        "pool": _pool(report.pool),
        "prior_axes": _axes("prior's", report.explained_variance),
        "posterior_axes": _axes("posterior's", report.posterior_explained_variance),
        "codes": _codes(config, report.codes),
        "beta": _beta(config.beta, report.beta_search),
    }


def _pool(pool: PoolComposition | None) -> Diagnostic:
    """The share s of OOD rows in the pool, from the share a that is unlike all but 5 % of labels.

    Among classified rows a = s + 0.05 (1 − s), where OOD rows are always detected. With s = 0, n
    labels and m such rows give a a standard error of √(0.05 · 0.95 (1/n + 1/m)); within three of
    them there may be no OOD rows. Pool rows that duplicate labeled ones are not OOD.
    """
    if pool is None:
        sentence = "what the pool holds is not known: this fit trained no classifier of it."
        return Diagnostic(None, UNKNOWN, sentence)
    among = max(0.0, (pool.atypical_share - ATYPICAL_SHARE) / (1 - ATYPICAL_SHARE))
    share = among * pool.n_classified / max(1, pool.n_classified + pool.n_duplicates)
    if pool.n_labels < MIN_LABELS:
        sentence = f"{pool.n_labels} labels are too few to detect OOD rows in the pool."
        return Diagnostic(share, UNKNOWN, sentence)
    variance = ATYPICAL_SHARE * (1 - ATYPICAL_SHARE)
    doubt = 3 * math.sqrt(variance * (1 / pool.n_labels + 1 / max(1, pool.n_classified)))
    if share > MIN_OOD_SHARE and among > doubt:
        sentence = f"about {share:.0%} of the pool are unlike the labeled rows."
        return Diagnostic(share, GOOD, sentence)
    return Diagnostic(
        share,
        DOUBTFUL,
        "the pool should hold rows unlike the labeled ones, it seems to hold none (about "
        f"{share:.1%}); what is unknown is learnt from such rows: add them, or trust flags less.",
    )


def _axes(whose: str, explained: float | None) -> Diagnostic:
    if explained is None:
        return Diagnostic(None, UNKNOWN, f"this fit has no axes for the {whose} variance.")
    sentence = (
        f"the code axes should hold most of the {whose} variance on the pool, they hold "
        f"{explained:.0%}"
    )
    if explained >= MIN_EXPLAINED_VARIANCE:
        return Diagnostic(explained, GOOD, f"{sentence}.")
    advice = "raise n_axes, or expect draws that are too smooth"
    return Diagnostic(explained, DOUBTFUL, f"{sentence}; {advice}.")


def _codes(config: GPNConfig, codes: CodeMoments | None) -> Diagnostic:
    """Functions are drawn at z ~ N(0, I), so the learnt codes must look like such draws."""
    if config.codes == "spectral":
        return Diagnostic(None, GOOD, "codes are drawn from N(0, I) in training, too.")
    if codes is None:
        return Diagnostic(None, UNKNOWN, "the learnt codes of this fit are not known any more.")
    size = config.code_dim
    found = (
        f"mean {codes.shift:.2f} (0), standard deviation {codes.spread:.2f} (1), effective rank "
        f"{codes.rank:.1f} (of {size})"
    )
    normal_spread = MIN_SPREAD <= codes.spread <= MAX_SPREAD
    full_rank = codes.rank >= MIN_RANK_SHARE * size
    if codes.shift <= MAX_MEAN and normal_spread and full_rank:
        return Diagnostic(codes.rank / size, GOOD, f"the learnt codes are about N(0, I): {found}.")
    return Diagnostic(
        codes.rank / size,
        DOUBTFUL,
        f"the learnt codes should be about N(0, I), from which functions are drawn, got {found}; "
        "raise n_anchors, lower code_dim, or use codes='spectral'.",
    )


def _beta(chosen: float | None, trials: tuple[Trial, ...]) -> Diagnostic:
    """Whether a β beyond those tried might have been chosen."""
    if chosen is None or len(trials) < 2:
        return Diagnostic(None, UNKNOWN, "β was not searched: it was given, or plays no part.")
    tried = sorted(trial.beta for trial in trials)
    if chosen not in (tried[0], tried[-1]):
        return Diagnostic(chosen, GOOD, f"β, {chosen:g}, lies within those tried.")
    side = "smaller" if chosen == tried[0] else "larger"
    return Diagnostic(
        chosen,
        DOUBTFUL,
        f"β should lie within those tried, {tried[0]:g} to {tried[-1]:g}, got {chosen:g}; a "
        f"{side} one may do better, set GPNConfig(beta=...) and compare.",
    )
