"""One whole number per row: the same for rows with the same values, wherever they lie.

Mixture-aware pool weights: rows that look like labeled ones are anchored less.

A pool is often a mixture π p_labeled + (1 − π) p_other. A classifier of labeled against pool rows
estimates the density ratio r = p_labeled / p_pool, which is 1/π wherever only labeled-like rows
live; a pool row then is labeled-like with probability π r, and its weight is 1 − π r. No row is
judged by a classifier that learnt from it or from a copy of it, so that rows learnt by heart do no
harm. Pool rows that are labeled rows once more need no judge: they are labeled-like.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gpn.core.types import Inputs

NUMBERS_AT_ONCE = 2**24

LARGEST = 2**62


def row_keys(rows: Float[Tensor, "n *d"]) -> Int[Tensor, "n"]:
    """Σ_j c_j bits_j modulo 2⁶⁴ with random odd c: that of whole numbers is exact in any order.

    Two different rows share a key about once in 2⁶⁴ pairs; of round numbers, whose bits end in
    zeros, once in 2⁴⁰.
    """
    flat = rows.flatten(1)
    at_once = max(1, NUMBERS_AT_ONCE // max(1, flat.shape[1]))
    return torch.cat([_keys(part) for part in flat.split(at_once)])


def _keys(rows: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
    bits = (rows + 0.0).contiguous().view(torch.int32).long()  # −0 + 0 is 0
    random = torch.Generator().manual_seed(0)
    factors = torch.randint(LARGEST, (bits.shape[1],), generator=random) * 2 + 1
    return (bits * factors.to(bits.device)).sum(1)


LogRatio = Callable[[Inputs], Float[Tensor, "n"]]

Learner = Callable[[Inputs, Float[Tensor, "R *d"]], LogRatio]

# log r at every labeled and every pool row, less that of a typical labeled row.
Judge = Callable[[Inputs, Float[Tensor, "R *d"]], tuple[Float[Tensor, "n"], Float[Tensor, "R"]]]

COMMON = 0.05


@dataclass(frozen=True)
class MixtureWeights:
    """One weight per pool row, in [floor, 1], and the estimated share π of labeled-like rows.

    Where strangers overlap with labeled rows, both err on the side of labeled-like. `unlike` are
    pool rows with a smaller ratio than all but 5 % of labeled rows: of strangers nearly all, and
    one in twenty of the others that were `judged`, which labeled rows once more are not.
    """

    weights: Float[Tensor, "R"]
    labeled_share: float
    unlike: Bool[Tensor, "R"]
    judged: Bool[Tensor, "R"]


def mixture_weights(
    x_obs: Inputs, x_pool: Float[Tensor, "R *d"], judge: Judge, floor: float
) -> MixtureWeights:
    """What `judge` says of the rows, as weights.

    No weight is below `floor`: a little doubt remains everywhere.
    """
    judged = ~torch.isin(row_keys(x_pool), row_keys(x_obs))
    labeled_like, unlike = x_pool.new_ones(len(x_pool)), torch.zeros_like(judged)
    if bool(judged.any()):
        labeled, pool = judge(x_obs, x_pool[judged])
        labeled_like[judged] = pool.exp().clamp(max=1.0)
        unlike[judged] = pool < labeled.quantile(COMMON)
    weights = (1 - labeled_like).clamp_min(floor)
    return MixtureWeights(weights, float(labeled_like.mean()), unlike, judged)


def cross_fitted(learn: Learner, folds: int, rng: torch.Generator) -> Judge:
    """Each part of the rows is judged by who learnt from all others; `rng` is on the CPU."""

    def judge(x_obs: Inputs, x_pool: Float[Tensor, "R *d"]) -> tuple[Tensor, Tensor]:
        groups_obs, groups_pool = _groups(x_obs, rng), _groups(x_pool, rng)
        n_parts = min(folds, 1 + int(groups_obs.max()), 1 + int(groups_pool.max()))
        labeled, pool = x_obs.new_empty(len(x_obs)), x_pool.new_empty(len(x_pool))
        for k in range(n_parts):
            ours, theirs = (groups % n_parts == k for groups in (groups_obs, groups_pool))
            log_ratio = learn(x_obs[_others(ours)], x_pool[_others(theirs)])
            labeled[ours], pool[theirs] = log_ratio(x_obs[ours]), log_ratio(x_pool[theirs])
        typical = labeled.median()
        return labeled - typical, pool - typical

    return judge


def _groups(rows: Inputs, rng: torch.Generator) -> Int[Tensor, "n"]:
    """A number for each row in random order; copies share theirs."""
    keys, which = row_keys(rows).unique(return_inverse=True)
    return torch.randperm(len(keys), generator=rng).to(rows.device)[which]


def _others(part: Bool[Tensor, "n"]) -> Bool[Tensor, "n"]:
    """All rows but those; where there are no others, those."""
    return part if bool(part.all()) else ~part
