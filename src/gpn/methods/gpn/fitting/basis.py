"""What a fit computes before training: stored pool rows, the prior's axes there, pool weights."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.networks.trunks import ConvTrunk, ResNetTrunk
from gpn.core.priors.spectral import SpectralAxes, StretchedAxes, spectral_axes
from gpn.core.types import Inputs, as_generator
from gpn.methods.gpn.fitting.context import FitContext, PriorBasis
from gpn.methods.gpn.pool.density_ratio import DensityRatioFitter, NetworkRatio, TreeRatio
from gpn.methods.gpn.pool.mixture import PoolWeights, mixture_weights
from gpn.methods.gpn.pool.stored import StoredPool, store_pool
from gpn.methods.gpn.pool.synthetic import synthetic_outliers

MIN_EXPLAINED, MIN_EXPLAINED_CLASSES = 0.99999, 0.998
MIN_OOD_SHARE = 0.3
LANDMARKS_PER_LABEL_LANDMARK = 4
EXPLAINED_ROWS = 1024
TREE_FOLDS, NETWORK_FOLDS = 10, 2
TYPICAL = 0.5
# Among many photographs a low quantile keeps weight from labeled-like ones. Where a classifier is
# weak it costs OOD rows theirs: SVHN among 2,000 images of CIFAR-10 goes from 0.94 to 0.28.
PHOTO_TYPICAL = 0.03
MIN_CLASSIFIER_STEPS = 200
RATIO_TRUNK = ConvTrunk(channels=(32, 64, 128), widths=(256,), halve_by="max")


def prior_basis(context: FitContext) -> PriorBasis:
    """The basis of this fit: computed once, for all its training runs."""
    if context.cache.basis is None:
        config = context.config
        pool = _with_enough_outliers(context, stored_pool(context))
        least = MIN_EXPLAINED_CLASSES if context.task.is_classification else MIN_EXPLAINED
        axes, explained = axes_of(context, pool, config.n_axes, least)
        if config.anchor == "independent":
            axes = StretchedAxes(axes)
        context.cache.basis = PriorBasis(pool, axes, axes(pool.rows), explained)
    return context.cache.basis


def stored_pool(context: FitContext) -> StoredPool:
    """The pool rows that this fit stores."""
    return store_pool(context.config, context.task, as_generator(context.seeds, context.device))


def _with_enough_outliers(context: FitContext, pool: StoredPool) -> StoredPool:
    """The pool, filled up with m synthetic outliers where too few rows are unlike the labeled ones.

    With a share s of OOD rows among R rows, (s R + m) / (R + m) = MIN_OOD_SHARE.
    """
    if not context.config.fill_ood:
        return pool
    weights = pool_weights(context, pool)
    if weights is None or (lacking := MIN_OOD_SHARE - float(weights.weights.mean())) <= 0:
        return pool
    count = round(lacking / (1 - MIN_OOD_SHARE) * len(pool))
    context.cache.weights = None  # the longer pool has other weights
    rng = as_generator(context.seeds, context.device)
    outliers = synthetic_outliers(context.task.x_obs, count, rng)
    return StoredPool(torch.cat([pool.rows, outliers]), pool.n_real)


def pool_weights(context: FitContext, pool: StoredPool) -> PoolWeights | None:
    """One weight per stored row, where the configuration asks for them; the same for all trials."""
    if context.config.pool_weights != "mixture":
        return None
    if context.cache.weights is None:
        context.cache.weights = _mixture_weights(context, pool)
    return context.cache.weights


def _mixture_weights(context: FitContext, pool: StoredPool) -> PoolWeights:
    is_table = len(context.task.input_shape) == 1
    found = mixture_weights(
        context.task.x_obs,
        pool.rows,
        _ratio_fitter(context),
        folds=TREE_FOLDS if is_table else NETWORK_FOLDS,
        rng=context.seeds,
        n_real=pool.n_real,
        typical=PHOTO_TYPICAL if _is_photo(context) else TYPICAL,
    )
    if context.group is None:
        return found
    return replace(found, weights=context.group.broadcast(found.weights))


def _ratio_fitter(context: FitContext) -> DensityRatioFitter:
    """Trees for tables, a network for the rest."""
    if len(context.task.input_shape) == 1:
        return TreeRatio(context.seeds)
    train, trunk = context.config.train, context.config.trunk
    if _is_photo(context):  # labeled against pool rows is the easier task
        trunk, train = (
            RATIO_TRUNK,
            train.replace(optimiser="adam", momentum=None, learning_rate=2e-3),
        )
    steps = min(train.steps, max(MIN_CLASSIFIER_STEPS, train.steps // 10))
    return NetworkRatio(
        trunk,
        train.replace(steps=steps, weight_decay=0.05),
        context.seeds,
        context.on_progress,
        context.session,
    )


def _is_photo(context: FitContext) -> bool:
    return isinstance(context.config.trunk, ResNetTrunk)


def axes_of(
    context: FitContext, pool: StoredPool, most: int, explained: float
) -> tuple[SpectralAxes, float]:
    """As many spectral axes as explain that share of the prior's variance, at most `most`.

    The share that they do explain is measured at pool rows that are neither landmarks nor
    synthetic, where there are some.
    """
    config, outputs = context.config, context.task.n_outputs
    landmarks = _landmarks(context, pool.rows)
    axes = spectral_axes(config.prior, landmarks, outputs, most, explained, context.seeds)
    others = pool.rows[config.reference_rows : pool.n_real][:EXPLAINED_ROWS]
    if len(others) == 0:
        return axes, axes.explained_variance
    return axes, float(axes(others).square().sum() / axes.variance(others).sum())


def _landmarks(context: FitContext, pool_rows: Inputs) -> Float[Tensor, "L *d"]:
    """Pool rows, and some labeled rows: a pool need not reach as far as the labels do."""
    x_obs, most = context.task.x_obs, context.config.reference_rows
    n_labeled = most // LANDMARKS_PER_LABEL_LANDMARK
    order = torch.randperm(len(x_obs), generator=context.seeds)[:n_labeled]
    return torch.cat([pool_rows[:most], x_obs[order.to(x_obs.device)]])
