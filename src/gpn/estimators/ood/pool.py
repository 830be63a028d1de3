"""What a pool adds to a detector: the odds of a pool row against a labeled one.

A pool is often a mixture of rows like the labels and of others, and may be like the labels
altogether. So its trees are only used where they tell unseen labels from unseen pool rows, and
their log odds are shrunk by the slope that fits these rows best.
"""

from dataclasses import dataclass
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
SURE = 2.0  # standard errors by which the AUC must exceed 1/2


@dataclass(frozen=True)
class PoolOdds:
    """The calibrated log odds of a pool row, slope · odds of the trees + intercept.

    auc: of unseen labels against unseen pool rows. typical: what 95 % of unseen labels do not
    exceed, or 0 where that is less; only what exceeds it makes a row unknown. unlike_share: of
    pool rows that are no copies of labels, those that are unlike labels.
    """

    slope: float
    intercept: float
    auc: float
    typical: float
    unlike_share: float

    @classmethod
    def fit(cls, of_labels: Rows, of_pool: Rows) -> "PoolOdds | None":
        """By logistic regression on rows that the trees have not seen; None: no difference."""
        area = auc(of_labels, of_pool)
        error = np.sqrt((1 / len(of_labels) + 1 / len(of_pool)) / 12)
        if area <= 0.5 + SURE * error:
            return None
        odds = np.concatenate([of_labels, of_pool])[:, None]
        is_pool = np.repeat([0, 1], [len(of_labels), len(of_pool)])
        line = LogisticRegression(class_weight="balanced").fit(odds, is_pool)
        slope, intercept = max(float(line.coef_[0, 0]), 0.0), float(line.intercept_[0])
        typical = max(float(np.quantile(slope * of_labels + intercept, TYPICAL)), 0.0)
        beyond = float(np.mean(of_pool > np.quantile(of_labels, TYPICAL)))
        unlike_share = max(beyond - (1 - TYPICAL), 0.0) / TYPICAL  # known rows exceed it, too
        return cls(slope, intercept, area, typical, unlike_share)

    def add(self, outlier: Rows, of_pool: Rows) -> Rows:
        """The log odds of an outlier of either kind: synthetic, or in the pool.

        Where pool rows are easily told from labels, they say better than synthetic outliers what
        is unknown: these then count less.
        """
        weight = min(0.0, float(np.log((1 - self.auc + 1e-3) / EASY)))
        in_pool = self.slope * of_pool + self.intercept - self.typical
        both: Rows = np.logaddexp(outlier + weight, in_pool)
        return both


def unlike_labels(labels: Rows, pool: Rows, count: int, rng: np.random.Generator) -> Rows | None:
    """At most `count` pool rows, without copies of labels; None where fewer than ten are left."""
    own = {row.tobytes() for row in np.ascontiguousarray(labels)}
    order = rng.permutation(len(pool))
    kept: list[Any] = []
    for row in np.ascontiguousarray(pool)[order]:
        if row.tobytes() not in own:
            kept.append(row)
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
