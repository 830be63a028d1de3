"""Mixture-aware pool weights: rows that look like labeled ones are anchored less.

A pool is often a mixture π p_labeled + (1 − π) p_other. A classifier of labeled against pool rows
estimates the density ratio r = p_labeled / p_pool, which is 1/π wherever only labeled-like rows
live; a pool row then is labeled-like with probability π r, and its weight is 1 − π r. Classifiers
are cross-fitted: none scores a row that it, or a duplicate of it, was trained on. Pool rows that
duplicate labeled rows need no classifier: they are labeled-like.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gpn.core.types import Inputs
from gpn.methods.gpn.pool.density_ratio import DensityRatioFitter

ATYPICAL_SHARE = 0.05
MIN_WEIGHT = 0.01
CHUNK_NUMBERS = 2**24
MAX_KEY = 2**62


@dataclass(frozen=True)
class PoolComposition:
    """What a pool holds, by its classifier.

    labeled_share: the estimated share π of labeled-like rows. atypical_share: of the rows that
    were classified, those with a smaller ratio than all but 5 % of labeled rows: nearly all OOD
    rows, and one in twenty of the others. Where OOD rows overlap with labeled ones, both numbers
    err towards labeled-like. Rows that duplicate labeled rows are not classified.
    """

    labeled_share: float
    atypical_share: float
    n_labels: int
    n_classified: int
    n_duplicates: int


@dataclass(frozen=True)
class PoolWeights:
    """One weight per pool row, at most 1; the composition omits rows that are synthetic."""

    weights: Float[Tensor, "R"]
    composition: PoolComposition


def mixture_weights(
    x_obs: Inputs,
    x_pool: Float[Tensor, "R *d"],
    fitter: DensityRatioFitter,
    *,
    folds: int,
    rng: torch.Generator,
    n_real: int | None = None,
    typical: float = 0.5,
    least: float = MIN_WEIGHT,
) -> PoolWeights:
    """Weights 1 − π r of the pool rows, of which the first `n_real` are not synthetic.

    1/π is the ratio at that quantile of labeled rows: the median, or less where a classifier's
    noise must not give weight to the lower half of labeled-like rows.
    """
    is_new = ~torch.isin(row_keys(x_pool), row_keys(x_obs))
    labeled_like, atypical = x_pool.new_ones(len(x_pool)), torch.zeros_like(is_new)
    if bool(is_new.any()):
        labeled, pool = cross_fitted_log_ratios(fitter, x_obs, x_pool[is_new], folds, rng)
        at_typical = labeled.quantile(typical, interpolation="lower")
        labeled_like[is_new] = (pool - at_typical).exp().clamp(max=1.0)
        atypical[is_new] = pool < labeled.quantile(ATYPICAL_SHARE)
    n_classified = int(is_new[:n_real].sum())
    composition = PoolComposition(
        labeled_share=float(labeled_like[:n_real].mean()),
        atypical_share=float(atypical[:n_real].sum()) / max(1, n_classified),
        n_labels=len(x_obs),
        n_classified=n_classified,
        n_duplicates=len(is_new[:n_real]) - n_classified,
    )
    return PoolWeights((1 - labeled_like).clamp_min(least), composition)


def cross_fitted_log_ratios(
    fitter: DensityRatioFitter,
    x_obs: Inputs,
    x_pool: Float[Tensor, "R *d"],
    folds: int,
    rng: torch.Generator,
) -> tuple[Float[Tensor, "n"], Float[Tensor, "R"]]:
    """log r at every labeled and every pool row, minus that of the median labeled row.

    Each fold is scored by the fit to all others; `rng` is on the CPU.
    """
    groups_obs, groups_pool = _groups(x_obs, rng), _groups(x_pool, rng)
    n_folds = min(folds, 1 + int(groups_obs.max()), 1 + int(groups_pool.max()))
    labeled, pool = x_obs.new_empty(len(x_obs)), x_pool.new_empty(len(x_pool))
    for fold in range(n_folds):
        in_obs, in_pool = groups_obs % n_folds == fold, groups_pool % n_folds == fold
        ratio = fitter.fit(x_obs[_complement(in_obs)], x_pool[_complement(in_pool)])
        labeled[in_obs], pool[in_pool] = ratio(x_obs[in_obs]), ratio(x_pool[in_pool])
    typical = labeled.median()
    return labeled - typical, pool - typical


def _groups(rows: Inputs, rng: torch.Generator) -> Int[Tensor, "n"]:
    """A number for each row in random order; duplicates share theirs."""
    keys, which = row_keys(rows).unique(return_inverse=True)
    return torch.randperm(len(keys), generator=rng).to(rows.device)[which]


def _complement(fold: Bool[Tensor, "n"]) -> Bool[Tensor, "n"]:
    """All rows outside the fold; where there are none, the fold itself."""
    return fold if bool(fold.all()) else ~fold


def row_keys(rows: Float[Tensor, "n *d"]) -> Int[Tensor, "n"]:
    """One integer per row, the same for rows with the same values.

    Σ_j c_j bits_j modulo 2⁶⁴ with random odd c: integer sums are exact in any order. Two different
    rows share a key about once in 2⁶⁴ pairs; round numbers, whose bits end in zeros, once in 2⁴⁰.
    """
    flat = rows.flatten(1)
    chunk_rows = max(1, CHUNK_NUMBERS // max(1, flat.shape[1]))
    return torch.cat([_keys(chunk) for chunk in flat.split(chunk_rows)])


def _keys(rows: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
    bits = (rows + 0.0).contiguous().view(torch.int32).long()  # −0 + 0 is 0
    random = torch.Generator().manual_seed(0)
    factors = torch.randint(MAX_KEY, (bits.shape[1],), generator=random) * 2 + 1
    return (bits * factors.to(bits.device)).sum(1)
