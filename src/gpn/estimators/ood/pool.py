"""What a pool adds to a detector: the odds of a pool row against a labeled one.

A pool is often a mixture of rows like the labels and of others, and may be like the labels
altogether, or hold outliers that the score knows without it. So its trees are only used where the
score with them tells unseen pool rows from unseen labels better than the score without them. The
log odds of both kinds of trees are added, with the coefficients that fit these rows best, none of
them below 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from gpn.core.pools.base import Pool
from gpn.core.types import as_generator

Rows = NDArray[np.float64]

MIN_ROWS = 10
MAX_READ = 50_000
EASY = 0.1  # 1 − AUC below which synthetic outliers count less
TYPICAL = 0.95
MIN_ERROR = 1e-6  # where all rows gain alike
N_OLD_NUMBERS = 5  # of files whose pools had one kind of trees
SURE = 2.5  # standard errors by which the AUC must exceed that without the pool, and 1/2


@dataclass(frozen=True)
class Odds:
    """Log odds of unseen rows against labels: of an outlier ``(n,)``, and of a pool row ``(k, n)``
    by k kinds of trees."""

    outlier: Rows
    of_pool: Rows


@dataclass(frozen=True)
class PoolOdds:
    """The calibrated log odds of a pool row, Σ_k coefficient_k · odds_k + intercept.

    auc: of unseen labels against unseen pool rows. typical: what 95 % of unseen labels do not
    exceed, or 0 where that is less; only what exceeds it makes a row unknown. unlike_share: of
    pool rows that are no copies of labels, those that are unlike labels. sureness: standard errors
    by which the AUC of the score grows with the pool, which a fit remembers and no file holds.
    """

    coefficients: tuple[float, ...]
    intercept: float
    auc: float
    typical: float
    unlike_share: float
    sureness: float = SURE

    def stored(self) -> tuple[float, ...]:
        """What a file holds; `restored` reads it, and files of one coefficient."""
        first, *others = self.coefficients
        return first, self.intercept, self.auc, self.typical, self.unlike_share, *others

    @classmethod
    def restored(cls, numbers: Sequence[float]) -> "PoolOdds":
        first, intercept, area, typical, unlike_share, *others = numbers
        return cls((first, *others), intercept, area, typical, unlike_share)

    @classmethod
    def fit(cls, labels: "Odds", pool: "Odds") -> "PoolOdds | None":
        """By logistic regression on rows that the trees have not seen; None: no gain."""
        coefficients, intercept = _logistic(labels.of_pool, pool.of_pool)
        of_labels, of_pool = (coefficients @ odds.of_pool + intercept for odds in (labels, pool))
        area = auc(of_labels, of_pool)
        error = np.sqrt((1 / len(of_labels) + 1 / len(of_pool)) / 12)
        if area <= 0.5 + SURE * error:
            return None
        limit = float(np.quantile(of_labels, TYPICAL))
        beyond = float(np.mean(of_pool > limit))
        unlike_share = max(beyond - (1 - TYPICAL), 0.0) / TYPICAL  # known rows exceed it, too
        found = cls(tuple(coefficients.tolist()), intercept, area, max(limit, 0.0), unlike_share)
        gain, error = auc_gain((labels.outlier, pool.outlier), (found(labels), found(pool)))
        return replace(found, sureness=gain / error) if gain > SURE * error else None

    def __call__(self, odds: "Odds") -> Rows:
        return self.add(odds.outlier, odds.of_pool)

    def add(self, outlier: Rows, of_pool: Rows) -> Rows:
        """The log odds of an outlier of either kind: synthetic, or in the pool.

        Where pool rows are easily told from labels, they say better than synthetic outliers what
        is unknown: these then count less.
        """
        weight = min(0.0, float(np.log((1 - self.auc + 1e-3) / EASY)))
        trees = np.einsum("k,...kn->...n", np.array(self.coefficients), of_pool)
        in_pool = trees + self.intercept - self.typical
        both: Rows = np.logaddexp(outlier + weight, in_pool)
        return both


def _logistic(labels: Rows, pool: Rows) -> tuple[Rows, float]:
    """Of the log odds of a pool row: coefficients, 0 where trees mislead, and the intercept."""
    odds = np.concatenate([labels, pool], axis=1).T
    is_pool = np.repeat([0, 1], [labels.shape[1], pool.shape[1]])
    coefficients, used = np.zeros(odds.shape[1]), np.ones(odds.shape[1], dtype=bool)
    while used.any():
        line = LogisticRegression(class_weight="balanced").fit(odds[:, used], is_pool)
        if (line.coef_[0] >= 0).all():
            coefficients[used] = line.coef_[0]
            return coefficients, float(line.intercept_[0])
        used[np.flatnonzero(used)[line.coef_[0].argmin()]] = False
    return coefficients, 0.0


def unlike_labels(labels: Rows, pool: Rows, count: int, rng: np.random.Generator) -> Rows | None:
    """At most `count` different pool rows that are no labels; None where fewer than ten are left.

    Trees that have seen a row know its copies, which are no sign that a pool differs.
    """
    seen = {row.tobytes() for row in np.ascontiguousarray(labels)}
    order = rng.permutation(len(pool))
    kept: list[Any] = []
    for row in np.ascontiguousarray(pool)[order]:
        if row.tobytes() not in seen:
            kept.append(row)
            seen.add(row.tobytes())
        if len(kept) == count:
            break
    return np.stack(kept) if len(kept) >= MIN_ROWS else None


def some_pool_rows(pool: Tensor | Pool | None, seed: int) -> Rows | None:
    """The pool in memory, or as many of its rows as a detector may need."""
    if pool is None:
        return None
    if isinstance(pool, Pool):
        pool = pool.sample(MAX_READ, as_generator(seed))
    elif len(pool) > MAX_READ:
        pool = pool[torch.randperm(len(pool), generator=as_generator(seed))[:MAX_READ]]
    return pool.detach().cpu().double().numpy()


def auc(low: Rows, high: Rows) -> float:
    """P(high > low) + P(equal)/2."""
    ranks = rankdata(np.concatenate([low, high]))[len(low) :]
    return float((ranks.sum() - len(high) * (len(high) + 1) / 2) / (len(low) * len(high)))


def auc_gain(before: tuple[Rows, Rows], after: tuple[Rows, Rows]) -> tuple[float, float]:
    """By how much the AUC of low against high rows grows, and its standard error (DeLong 1988).

    An AUC of less than 1/2 before counts as 1/2, which rows without a score have.
    """
    old, new = placements(*before), placements(*after)
    if old[1].mean() < 0.5:
        old = np.full(len(old[0]), 0.5), np.full(len(old[1]), 0.5)
    gaps = [b - a for a, b in zip(old, new, strict=True)]
    error = float(np.sqrt(sum(gap.var() / len(gap) for gap in gaps)))
    return float(gaps[1].mean()), max(error, MIN_ERROR)


def placements(low: Rows, high: Rows) -> tuple[Rows, Rows]:
    """P(high > each low row) and P(each high row > low), equal ones by half: both average AUC."""
    return _share_below(-high, -low), _share_below(low, high)


def _share_below(values: Rows, rows: Rows) -> Rows:
    ordered = np.sort(values)
    both = np.searchsorted(ordered, rows, "left") + np.searchsorted(ordered, rows, "right")
    share: Rows = both / (2.0 * len(values))
    return share
