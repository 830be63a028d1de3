"""What a fit stands on before anything is trained: pool rows, the prior's axes, weights.

None of it hangs on β, so that all trials of a search share it; axes and their table hang on the
labels' rows hardly at all, and the fit that follows the search takes them over.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpn.core.priors.spectral import SpectralAxes, StretchedAxes, spectral_axes
from gpn.core.types import Inputs, as_generator
from gpn.methods.gpn.fitting.context import FitContext, PriorBasis
from gpn.methods.gpn.pool.density_ratio import network_ratio, tree_ratio
from gpn.methods.gpn.pool.mixture import Judge, cross_fitted, mixture_weights
from gpn.methods.gpn.pool.stored import StoredPool, store_pool
from gpn.methods.gpn.pool.synthetic import made_up

ENOUGH_KEPT = 0.99999

ENOUGH_KEPT_CLASSES = 0.998

ENOUGH_STRANGERS = 0.3

LABELS_PER_LANDMARKS = 4

ROWS_TO_JUDGE = 1024

TREE_FOLDS, NETWORK_FOLDS = 10, 2

MIN_JUDGE_STEPS = 200

FLOOR = 0.01


def ground_of(setting: FitContext) -> PriorBasis:
    """Pool rows with the spectral axes there: found once, for this fit and those that share."""
    if setting.shared.ground is None:
        setting.shared.ground = _ground(setting)
    ground = setting.shared.ground
    setting.story["prior_variance_kept"] = ground.kept
    setting.story["made_up_rows"] = len(ground.reference) - ground.n_real
    return ground


def _ground(setting: FitContext) -> PriorBasis:
    given = _kept_rows(setting)
    n_real, reference = given.n_real, _with_strangers(setting, given.rows)
    enough = ENOUGH_KEPT_CLASSES if setting.task.is_classification else ENOUGH_KEPT
    axes = spectral_axes_of(setting, reference, setting.config.n_axes, enough, n_real)
    kept = setting.story["prior_variance_kept"]
    if setting.config.anchor == "independent":
        axes = StretchedAxes(axes)
    return PriorBasis(reference, axes, axes(reference), kept, n_real)


def _with_strangers(setting: FitContext, reference: Inputs) -> Tensor:
    """The rows, and where too few of them are unlike the labeled ones, m made-up ones beside them.

    With a share s of strangers among R rows, (s R + m) / (R + m) = ENOUGH_STRANGERS.
    """
    if setting.config.made_up is not None:
        return reference
    weights = pool_weights(setting, reference)
    if weights is None or (lacking := ENOUGH_STRANGERS - float(weights.mean())) <= 0:
        return reference
    count = round(lacking / (1 - ENOUGH_STRANGERS) * len(reference))
    setting.shared.weights = None  # those of the longer pool are to be found
    rng = as_generator(setting.seeds, setting.device)
    return torch.cat([reference, made_up(setting.task.x_obs, count, rng)])


def pool_weights(setting: FitContext, reference: Inputs) -> Float[Tensor, "R"] | None:
    """One weight per pool row, where the configuration asks for them; the same for all trials."""
    if setting.config.pool_weights != "mixture":
        return None
    given = setting.shared.weights
    if given is None:
        given = mixture_weights(setting.task.x_obs, reference, _judge(setting), FLOOR)
        if setting.processes is not None:  # rows are drawn by them, the same ones everywhere
            given = replace(given, weights=setting.processes.leaders(given.weights))
        setting.shared.weights = given
    setting.story["pool_rows"], setting.story["pool_weights"] = reference, given.weights
    setting.story["labeled_share"] = given.labeled_share
    ground = setting.shared.ground
    real = len(reference) if ground is None else ground.n_real  # the made-up ones come last
    _note_strangers(setting, given.unlike[:real], given.judged[:real])
    return given.weights


def _note_strangers(
    setting: FitContext, unlike: Bool[Tensor, "R"], judged: Bool[Tensor, "R"]
) -> None:
    """What the pool's diagnostic is made of: who was judged, how, and how many labels are there
    once more."""
    story, n_judged = setting.story, int(judged.sum())
    story["unlike_labeled"] = float(unlike.sum()) / max(1, n_judged)
    story["labels_judged"], story["pool_judged"] = len(setting.task.x_obs), n_judged
    story["pool_repeats"] = len(judged) - n_judged


def _judge(setting: FitContext) -> Judge:
    """Who tells labeled rows from pool rows: trees for tables, a network for the rest."""
    if len(setting.task.input_shape) == 1:
        return cross_fitted(tree_ratio(setting.seeds), TREE_FOLDS, setting.seeds)
    steps = min(setting.train.steps, max(MIN_JUDGE_STEPS, setting.train.steps // 10))
    config = setting.train.replace(steps=steps, weight_decay=0.05)
    how = setting.seeds, setting.report, setting.file
    ratio = network_ratio(setting.trunk, config, *how)
    return cross_fitted(ratio, NETWORK_FOLDS, setting.seeds)


def spectral_axes_of(
    setting: FitContext, reference: Inputs, most: int, enough: float, n_real: int | None = None
) -> SpectralAxes:
    """As many spectral axes as hold the share `enough` of the prior's variance, at most `most`.

    How much they hold is judged at the first `n_real` rows, those that nobody made up.
    """
    config, outputs = setting.config, setting.task.n_outputs
    landmarks = _landmarks(setting, reference)
    axes = spectral_axes(setting.prior, landmarks, outputs, most, enough, setting.seeds)
    setting.story["prior_variance_kept"] = _kept(axes, reference[config.reference_rows : n_real])
    return axes


def _kept(axes: SpectralAxes, others: Inputs) -> float:
    """The share of the prior's variance that the axes hold, at pool rows that did not make them."""
    some = others[:ROWS_TO_JUDGE]
    if len(some) == 0:
        return axes.explained_variance
    return float(axes(some).square().sum() / axes.variance(some).sum())


def _landmarks(setting: FitContext, reference: Inputs) -> Float[Tensor, "L *d"]:
    """Pool rows, and labels beside them: a pool need not reach as far as the labels do."""
    x_obs, most = setting.task.x_obs, setting.config.reference_rows
    order = torch.randperm(len(x_obs), generator=setting.seeds)[: most // LABELS_PER_LANDMARKS]
    return torch.cat([reference[:most], x_obs[order.to(x_obs.device)]])


def reference_rows(setting: FitContext) -> Inputs:
    """The pool rows that this fit keeps."""
    return _kept_rows(setting).rows


def _kept_rows(setting: FitContext) -> StoredPool:
    rng = as_generator(setting.seeds, setting.device)
    return store_pool(setting.config, setting.task, setting.pool, rng)
