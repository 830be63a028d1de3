"""Whether a fit can be trusted, by what it left in its story: pool, axes, codes and β."""

import math
from collections.abc import Mapping
from typing import Any

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
from gpn.methods.gpn.model.codes import CodeMoments, code_moments
from gpn.methods.gpn.pool.mixture import COMMON

LOW_KEPT = 0.5

MIN_LABELS = 100

MIN_STRANGERS = 0.01

MAX_SHIFT, MIN_SPREAD, MAX_SPREAD, MIN_RANK = 0.5, 0.5, 2.0, 0.5

KINDS: dict[str, type[GPNWarning]] = {
    "pool": PoolWarning,
    "prior_axes": AxesWarning,
    "posterior_axes": AxesWarning,
    "codes": CodesWarning,
    "beta": SearchWarning,
}


def diagnose(config: GPNConfig, story: Mapping[str, Any]) -> dict[str, Diagnostic]:
    """Everything that can be said of a fit with this story."""
    return {
        "pool": _pool(story),
        "prior_axes": _axes("prior's", story.get("prior_variance_kept")),
        "posterior_axes": _axes("posterior's", story.get("posterior_variance_kept")),
        "codes": _codes(config, story.get("codes")),
        "beta": _beta(config.beta, story.get("beta_search", [])),
    }


def _pool(story: Mapping[str, Any]) -> Diagnostic:
    """The share of strangers s in the pool, from the share that is unlike all but 5 % of labels.

    That is s + 0.05 (1 − s) of the rows judged where strangers are told without fail. Without any,
    n labels and m such rows give it a standard error of √(0.05 · 0.95 (1/n + 1/m)); within three,
    there may be none. Pool rows that repeat labeled ones are no strangers and were not judged.
    """
    unlike, labels = story.get("unlike_labeled"), story.get("labels_judged", 0)
    if unlike is None:
        said = "what the pool holds is not known: this fit trained no classifier of it."
        return Diagnostic(None, UNKNOWN, said)
    n_judged = story["pool_judged"]
    among = max(0.0, (unlike - COMMON) / (1 - COMMON))
    share = among * n_judged / max(1, n_judged + story.get("pool_repeats", 0))
    if labels < MIN_LABELS:
        return Diagnostic(share, UNKNOWN, f"{labels} labels are too few to tell strangers by.")
    doubt = 3 * math.sqrt(COMMON * (1 - COMMON) * (1 / labels + 1 / max(1, n_judged)))
    if share > MIN_STRANGERS and among > doubt:
        said = f"about {share:.0%} of the pool are unlike the labeled rows."
        return Diagnostic(share, GOOD, said)
    return Diagnostic(
        share,
        DOUBTFUL,
        "the pool should hold rows unlike the labeled ones, it seems to hold none (about "
        f"{share:.1%}); what is unknown is learnt from such rows: add them, or trust flags less.",
    )


def _axes(whose: str, kept: float | None) -> Diagnostic:
    if kept is None:
        return Diagnostic(None, UNKNOWN, f"this fit had no axes to hold the {whose} variance.")
    said = f"most of the {whose} variance on the pool, they hold {kept:.0%}"
    if kept >= LOW_KEPT:
        return Diagnostic(kept, GOOD, f"the code axes should hold {said}.")
    more = "raise n_axes, or expect draws that are too smooth"
    return Diagnostic(kept, DOUBTFUL, f"the code axes should hold {said}; {more}.")


def _codes(config: GPNConfig, codes: Any) -> Diagnostic:
    """Functions are drawn at z ~ N(0, I), so that the codes learnt with must look like it."""
    if config.codes == "spectral":
        return Diagnostic(None, GOOD, "codes are drawn from N(0, I) in training, too.")
    if codes is None:
        return Diagnostic(None, UNKNOWN, "the learnt codes of this fit are not known any more.")
    law, size = code_moments(codes.detach()), codes.shape[1]
    said = (
        f"mean {law.shift:.2f} (0), standard deviation {law.spread:.2f} (1), effective rank "
        f"{law.rank:.1f} (of {size})"
    )
    if _as_drawn(law, size):
        return Diagnostic(law.rank / size, GOOD, f"the learnt codes are about N(0, I): {said}.")
    return Diagnostic(
        law.rank / size,
        DOUBTFUL,
        f"the learnt codes should be about N(0, I), from which functions are drawn, got {said}; "
        "raise n_anchors, lower code_dim, or use codes='spectral'.",
    )


def _as_drawn(law: CodeMoments, size: int) -> bool:
    spread = MIN_SPREAD <= law.spread <= MAX_SPREAD
    return law.shift <= MAX_SHIFT and spread and law.rank >= MIN_RANK * size


def _beta(chosen: float | None, trials: list[dict[str, Any]]) -> Diagnostic:
    """Whether a β beyond those tried might have been chosen."""
    if chosen is None or len(trials) < 2:
        return Diagnostic(None, UNKNOWN, "β was not searched for: given, or without a part here.")
    tried = sorted(trial["beta"] for trial in trials)
    if chosen not in (tried[0], tried[-1]):
        return Diagnostic(chosen, GOOD, f"β, {chosen:g}, lies within those tried.")
    side = "smaller" if chosen == tried[0] else "larger"
    return Diagnostic(
        chosen,
        DOUBTFUL,
        f"β should lie within those tried, {tried[0]:g} to {tried[-1]:g}, got {chosen:g}; a "
        f"{side} one may do better, set GPNConfig(beta=...) and compare.",
    )
