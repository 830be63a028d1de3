"""Weights of calibration rows under covariate shift: how much likelier a target row is there.

Where new rows follow q(x) and calibration rows p(x), with the same labels given x, calibration rows
count with the weight q(x)/p(x) (Tibshirani et al. 2019, `conformal.py`). The ratio is the odds of
classifiers that have not seen the row: linear, quadratic, or trees, whichever tells unseen rows
apart best, and none where no classifier does better than a coin.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, xlogy
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from gpn.core.warnings import GPNWarning, warn_caller

Rows = NDArray[np.float64]
Kinds = NDArray[np.int64]  # 0: calibration, 1: target
Classifier = Callable[[Rows, Kinds, Rows], Rows]  # log odds of a target row at other rows

FOLDS = 5
MIN_ROWS = 20
MAX_TARGET_ROWS = 20_000
MAX_QUADRATIC_COLUMNS = 30
N_TREES, MIN_LEAF = 200, 10
CLIP = 1e-3
MIN_GAIN = 0.002  # nats per row that a shift must be worth
MIN_EFFECTIVE, FEW_EFFECTIVE = 10.0, 50.0
MAX_BEYOND, MANY_BEYOND = 0.25, 0.05  # shares of target rows beyond all calibration rows


class FewEffectiveRowsWarning(GPNWarning):
    """Few calibration rows are like the target rows."""


@dataclass(frozen=True)
class ShiftWeights:
    """q(x)/p(x) of each calibration row, and its mean over target rows: that of a new row."""

    of_rows: Rows
    of_new: float

    @property
    def effective(self) -> float:
        """(Σ w)² / Σ w²: so many rows of equal weight are as good."""
        return float(self.of_rows.sum() ** 2 / (self.of_rows**2).sum())


def shift_weights(rows: Rows, target: Rows) -> ShiftWeights:
    """Weights by cross-fitted density ratios; raises where the two hardly overlap."""
    if min(len(rows), len(target)) < MIN_ROWS:
        raise ValueError(
            f"a shift must be seen in at least {MIN_ROWS} calibration and {MIN_ROWS} target rows, "
            f"got {len(rows)} and {len(target)}; calibrate without X_target, or with more rows."
        )
    rng = np.random.default_rng(0)
    if len(target) > MAX_TARGET_ROWS:
        target = target[rng.choice(len(target), MAX_TARGET_ROWS, replace=False)]
    odds = _best_log_odds(np.concatenate([rows, target]), len(rows))
    own, new = odds[: len(rows)], odds[len(rows) :]
    beyond = float(np.mean(new > own.max()))
    top = own.max()
    weights = np.exp(own - top)
    found = ShiftWeights(weights, float(np.exp(np.minimum(new - top, 0.0)).mean()))
    _check_overlap(found.effective, beyond, len(rows))
    return found


def _check_overlap(effective: float, beyond: float, n_rows: int) -> None:
    """Raise or warn where too few calibration rows are like target rows."""
    said = (
        f"got {n_rows} that count as {effective:.0f}, and {beyond:.0%} of target rows beyond all "
        "of them"
    )
    if effective < MIN_EFFECTIVE or beyond > MAX_BEYOND:
        raise ValueError(
            f"calibration rows must overlap with the target rows, {said}; label some target rows "
            "and calibrate with these."
        )
    if effective < FEW_EFFECTIVE or beyond > MANY_BEYOND:
        warn_caller(
            f"calibration rows like the target rows should count as {FEW_EFFECTIVE:.0f} at least, "
            f"{said}; coverage on the target is uncertain: label some target rows.",
            FewEffectiveRowsWarning,
        )


def _best_log_odds(rows: Rows, n_own: int) -> Rows:
    """Log odds of unseen rows by the classifier of the least loss; 0 where none helps."""
    kinds = np.repeat([0, 1], [n_own, len(rows) - n_own])
    candidates: list[Classifier] = [_linear, _trees]
    if rows.shape[1] <= MAX_QUADRATIC_COLUMNS:
        candidates.append(_quadratic)
    best, least = np.zeros(len(rows)), np.log(2.0) - MIN_GAIN
    for candidate in candidates:
        odds = _recalibrated(_cross_fitted(rows, kinds, candidate), kinds)
        loss = _balanced_loss(odds, kinds)
        if loss < least:
            best, least = odds, loss
    return best


def _cross_fitted(rows: Rows, kinds: Kinds, classifier: Classifier) -> Rows:
    odds = np.zeros(len(rows))
    for rest, fold in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(rows, kinds):
        odds[fold] = classifier(rows[rest], kinds[rest], rows[fold])
    return odds


def _recalibrated(odds: Rows, kinds: Kinds) -> Rows:
    """The slope and the intercept that fit unseen rows best; odds of too small a slope shrink."""
    line = LogisticRegression(class_weight="balanced").fit(odds[:, None], kinds)
    fitted: Rows = line.decision_function(odds[:, None])
    return fitted


def _balanced_loss(odds: Rows, kinds: Kinds) -> float:
    """−log likelihood per row, where both kinds weigh the same."""
    losses = -xlogy(1.0, np.clip(expit(np.where(kinds == 1, odds, -odds)), 1e-300, 1.0))
    return float((losses[kinds == 0].mean() + losses[kinds == 1].mean()) / 2)


def _linear(rows: Rows, kinds: Kinds, new: Rows) -> Rows:
    return _logistic(rows, kinds, new, 1)


def _quadratic(rows: Rows, kinds: Kinds, new: Rows) -> Rows:
    return _logistic(rows, kinds, new, 2)


def _logistic(rows: Rows, kinds: Kinds, new: Rows, degree: int) -> Rows:
    model: Any = make_pipeline(
        StandardScaler(),
        PolynomialFeatures(degree, include_bias=False),
        StandardScaler(),
        LogisticRegression(class_weight="balanced", max_iter=1000),
    )
    odds: Rows = model.fit(rows, kinds).decision_function(new)
    return odds


def _trees(rows: Rows, kinds: Kinds, new: Rows) -> Rows:
    forest = ExtraTreesClassifier(
        N_TREES, min_samples_leaf=MIN_LEAF, class_weight="balanced", n_jobs=1, random_state=0
    ).fit(rows, kinds)
    odds: Rows = logit(np.clip(forest.predict_proba(new)[:, 1], CLIP, 1 - CLIP))
    return odds
