"""What a fit computes before training: stored pool rows, the prior's axes there, pool weights."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.networks.trunks import ResNetTrunk
from gpn.core.priors.spectral import SpectralAxes, StretchedAxes, spectral_axes
from gpn.core.types import Inputs, as_generator
from gpn.methods.gpn.config import ResolvedConfig
from gpn.methods.gpn.defaults import MUON
from gpn.methods.gpn.fitting.context import FitContext, PriorBasis
from gpn.methods.gpn.pool.density_ratio import DensityRatioFitter, NetworkRatio, TreeRatio
from gpn.methods.gpn.pool.mixture import MIN_WEIGHT, PoolWeights, mixture_weights
from gpn.methods.gpn.pool.stored import StoredPool, store_pool
from gpn.methods.gpn.pool.synthetic import synthetic_outliers
from gpn.training.config import TrainConfig

MIN_EXPLAINED, MIN_EXPLAINED_CLASSES = 0.99999, 0.998
MIN_OOD_SHARE = 0.3
LANDMARKS_PER_LABEL_LANDMARK = 4
EXPLAINED_ROWS = 1024
TREE_FOLDS, NETWORK_FOLDS, PHOTO_FOLDS = 10, 2, 3
TYPICAL = 0.5
# Of photographs a few OOD rows are to stand out among many that are not: a low quantile and a low
# least weight keep weight from labeled-like ones. Where a classifier is weak a low quantile costs
# OOD rows theirs: SVHN among 2,000 images of CIFAR-10 goes from 0.94 to 0.28 with plain layers.
PHOTO_TYPICAL, PHOTO_LEAST = 0.01, 0.001
MIN_CLASSIFIER_STEPS = 200
# Among 25,000 images of CIFAR-10 and 126 of SVHN these get a weight of 0.96, with plain layers
# and rows as they are 0.2; labeled-like images 0.003 in place of 0.012.
PHOTO_RATIO_TRUNK = ResNetTrunk(channels=(64, 128, 256), widths=())
PHOTO_RATIO_STEPS, PHOTO_RATIO_BATCH = 300, 512


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
    fitter, is_photo = _ratio_fitter(context), _is_photo(context)
    networks = PHOTO_FOLDS if is_photo else NETWORK_FOLDS
    found = mixture_weights(
        context.task.x_obs,
        pool.rows,
        fitter,
        folds=TREE_FOLDS if isinstance(fitter, TreeRatio) else networks,
        rng=context.seeds,
        n_real=pool.n_real,
        typical=PHOTO_TYPICAL if is_photo else TYPICAL,
        least=PHOTO_LEAST if is_photo else MIN_WEIGHT,
    )
    if context.group is None:
        return found
    return replace(found, weights=context.group.broadcast(found.weights))


def _ratio_fitter(context: FitContext) -> DensityRatioFitter:
    """Trees for tables, a network for the rest."""
    task, train = context.task, context.config.train
    run = context.seeds, context.on_progress, context.session
    if len(task.input_shape) == 1:
        return TreeRatio(context.seeds)
    if _is_photo(context):
        trunk, train = _photo_ratio(context.config)
        return NetworkRatio(trunk, train, *run, task.augmented)
    steps = min(train.steps, max(MIN_CLASSIFIER_STEPS, train.steps // 10))
    train = train.replace(steps=steps, weight_decay=0.05)
    return NetworkRatio(context.config.trunk, train, *run)


def _photo_ratio(config: ResolvedConfig) -> tuple[ResNetTrunk, TrainConfig]:
    """The network that tells photographs apart, no wider than the generator's, and its training."""
    assert isinstance(config.trunk, ResNetTrunk)
    widest, train = max(config.trunk.channels), config.train
    channels = tuple(min(size, widest) for size in PHOTO_RATIO_TRUNK.channels)
    steps, batch = min(train.steps, PHOTO_RATIO_STEPS), min(train.label_batch, PHOTO_RATIO_BATCH)
    return (
        PHOTO_RATIO_TRUNK.replace(channels=channels),
        train.replace(steps=steps, label_batch=batch, **MUON),
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
