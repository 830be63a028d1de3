"""Mixture-aware pool weights: rows that look like labeled ones are anchored less.

A pool is often a mixture π p_labeled + (1 − π) p_other. A classifier of labeled against pool rows
estimates the density ratio r = p_labeled / p_pool, which is 1/π wherever only labeled-like rows
live; a pool row then is labeled-like with probability π r, and its weight is 1 − π r. Two
classifiers learn from one half of all rows each and judge the other half, so that rows learnt by
heart do no harm.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gpn.core.types import Inputs

LogRatio = Callable[[Inputs], Float[Tensor, "n"]]
Learner = Callable[[Inputs, Float[Tensor, "R *d"]], LogRatio]
COMMON = 0.05


@dataclass(frozen=True)
class MixtureWeights:
    """One weight per pool row, in [floor, 1], and the estimated share π of labeled-like rows.

    Where strangers overlap with labeled rows, both err on the side of labeled-like. `unlike` are
    pool rows with a smaller ratio than all but 5 % of labeled rows: of strangers nearly all, and
    one in twenty of the others.
    """

    weights: Float[Tensor, "R"]
    labeled_share: float
    unlike: Bool[Tensor, "R"]


def mixture_weights(
    x_obs: Inputs, x_pool: Float[Tensor, "R *d"], learn: Learner, floor: float, rng: torch.Generator
) -> MixtureWeights:
    """Cross-fit log p_labeled/p_pool with `learn` and turn it into weights; `rng` is on the CPU.

    No weight is below `floor`: a little doubt remains everywhere.
    """
    halves_obs, halves_pool = _halves(x_obs, rng), _halves(x_pool, rng)
    labeled_like = torch.empty(len(x_pool), device=x_pool.device, dtype=x_pool.dtype)
    unlike = torch.zeros(len(x_pool), device=x_pool.device, dtype=torch.bool)
    for ours, others in ((0, 1), (1, 0)):
        log_ratio = learn(x_obs[halves_obs[ours]], x_pool[halves_pool[ours]])
        labeled, judged = log_ratio(x_obs[halves_obs[others]]), halves_pool[others]
        theirs = log_ratio(x_pool[judged])
        labeled_like[judged] = (theirs - labeled.median()).exp().clamp(max=1.0)
        unlike[judged] = theirs < labeled.quantile(COMMON)
    weights = (1 - labeled_like).clamp_min(floor)
    return MixtureWeights(weights, float(labeled_like.mean()), unlike)


def _halves(rows: Inputs, rng: torch.Generator) -> tuple[Int[Tensor, "a"], Int[Tensor, "b"]]:
    """The numbers of two random halves; of a single row, that row twice."""
    order = torch.randperm(len(rows), generator=rng).to(rows.device)
    middle = len(order) // 2
    return (order[:middle], order[middle:]) if middle else (order, order)
