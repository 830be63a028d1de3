"""From a fit's context to its training problem: one function for each kind of anchors."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.chunks import chunk_size, join_chunks, map_chunks
from gpn.core.networks.encodings import fit_features
from gpn.core.networks.trunks import MLPTrunk, ResNetTrunk, Trunk
from gpn.core.pools.base import TensorPool
from gpn.core.priors.ard import ARDPrior
from gpn.core.priors.leave_one_out import loo_variance, posterior_variance
from gpn.core.priors.prior import Prior
from gpn.core.priors.spectral import DrawnAxes, SpectralAxes, drawn_kernel
from gpn.core.types import Inputs
from gpn.methods.gpn.fit_report import FitReport, LabelVariance
from gpn.methods.gpn.fitting.basis import axes_of, pool_weights, prior_basis, stored_pool
from gpn.methods.gpn.fitting.closed_form import fit_closed_form
from gpn.methods.gpn.fitting.context import FitContext, calibration_rows
from gpn.methods.gpn.fitting.problem import TrainingProblem
from gpn.methods.gpn.model.anchor_terms import AnchorTerm, IndependentTerm, JointTerm, Kernel
from gpn.methods.gpn.model.anchors import (
    CodeLayout,
    SpectralAnchors,
    StoredAnchors,
    noise_directions,
)
from gpn.methods.gpn.model.batch import Batches, fresh_batches, stored_batches
from gpn.methods.gpn.model.codes import Embedding
from gpn.methods.gpn.model.conditioned import (
    DistillationObjective,
    KernelPosterior,
    condition,
)
from gpn.methods.gpn.model.generator import AffineGenerator, Generator
from gpn.methods.gpn.model.objectives import (
    ClosedForm,
    ClosedFormClasses,
    MonteCarlo,
    Objective,
)
from gpn.methods.gpn.posterior import build_generator, code_blocks

MAX_JOINT_LABELS = 2000
MAX_TABLE_NUMBERS = 2**28
PRIOR_WIDTH = 512
MAX_FEATURES = 2048
MAX_LANDMARKS = 1024
MIN_FEATURE_EXPLAINED = 0.9999999


def build(context: FitContext) -> TrainingProblem:
    """The training problem that the configuration names."""
    if context.config.codes == "learnt":
        return _stored(context)
    if context.config.anchor == "conditioned":
        return _conditioned(context)
    return _spectral(context)


def _stored(context: FitContext) -> TrainingProblem:
    """The paper's scheme: k prior networks, learnt codes.

    Their values are looked up at stored pool rows, if the table is small enough; else they are
    computed at each step's fresh rows.
    """
    config, task, seeds = context.config, context.task, context.seeds
    prior = config.prior.sample(task.input_shape, task.n_outputs, config.n_anchors, seeds)
    embedding = Embedding(config.n_anchors, config.code_dim, seeds)
    noise = torch.zeros(1, len(task.x_obs), task.n_outputs)
    if config.target_noise and not task.is_classification:
        shape = config.n_anchors, *noise.shape[1:]
        noise = config.noise_std * torch.randn(shape, generator=seeds)
    prior = prior.to(context.device, task.x_obs.dtype)
    rows = _tabulated_rows(context)
    at_pool = None if rows is None else _prior_table(prior, rows, config.n_anchors)
    anchors = StoredAnchors(prior, embedding, config.code_noise, noise, at_pool)
    generator = _generator(context, config.trunk, config.code_dim)
    term, report = _anchor_term(context)
    one = config.pairing == "one"
    objective = MonteCarlo(generator, anchors, term, one_per_row=one).to(task.x_obs)
    return TrainingProblem(context, objective, _batches(context, rows), report)


def _tabulated_rows(context: FitContext) -> Inputs | None:
    """All rows of the pool, if their anchors can be computed once for the whole fit.

    Not where augmentation changes rows, where the table would be too large, or where so few steps
    follow that the table would cost more.
    """
    pool, task, train = context.task.pool, context.task, context.config.train
    independent = context.config.anchor == "independent"
    if not isinstance(pool, TensorPool) or task.augment is not None or not independent:
        return None
    n_numbers = context.config.n_anchors * len(pool) * task.n_outputs
    fits = n_numbers <= MAX_TABLE_NUMBERS and len(pool) <= train.steps * train.pool_batch
    return pool.rows if fits else None


@torch.no_grad()
def _prior_table(prior: Prior, rows: Inputs, n_anchors: int) -> Float[Tensor, "k R o"]:
    size = chunk_size(n_anchors * PRIOR_WIDTH, rows.device, len(rows))
    return join_chunks(map_chunks(prior, rows, size), dim=1)


def _spectral(context: FitContext) -> TrainingProblem:
    """Unlimited anchors along the prior's eigenfunctions; in closed form where g is affine."""
    config, task, basis = context.config, context.task, prior_basis(context)
    most = config.noise_axes if config.target_noise else 0
    directions = noise_directions(len(task.x_obs), most, context.seeds, task.x_obs)
    blocks = code_blocks(config, task.signature)
    layout = CodeLayout(task.n_outputs, basis.axes.n_axes, directions.shape[1], blocks)
    anchors = SpectralAnchors(basis.axes, layout, config.n_anchors, directions, config.noise_std)
    weights = pool_weights(context, basis.pool)
    term, report = _anchor_term(
        context, basis.pool.rows, basis.axes, None if weights is None else weights.weights
    )
    trunk = _tuned(config.trunk, basis.pool.rows, basis.axes.n_axes)
    generator = _generator(context, trunk, layout.code_dim, basis.pool.rows)
    objective: Objective
    if not isinstance(generator, AffineGenerator):
        one = config.pairing == "one"
        objective = MonteCarlo(generator, anchors, term, one_per_row=one)
    else:
        x_obs = task.x_obs  # the axes there are looked up only where the term compares labels
        at_labels = not term.pool_only
        psi_obs = basis.axes(x_obs) if at_labels else x_obs.new_zeros(len(x_obs), layout.n_axes)
        tables = psi_obs, basis.psi
        if task.is_classification:
            objective = ClosedFormClasses(
                generator,
                anchors,
                term,
                *tables,
                target_noise=config.target_noise,
                label_smoothing=config.label_smoothing,
            )
        else:
            objective = ClosedForm(generator, anchors, term, *tables)
    objective.to(task.x_obs)
    report = replace(
        report,
        explained_variance=basis.explained_variance,
        synthetic_rows=len(basis.pool) - basis.pool.n_real,
        pool=None if weights is None else weights.composition,
    )
    batches = _batches(context, basis.pool.rows, None if weights is None else weights.weights)
    return TrainingProblem(context, objective, batches, report)


def _conditioned(context: FitContext) -> TrainingProblem:
    """Prior functions conditioned on all labels in feature space, as targets everywhere."""
    config, task = context.config, context.task
    if isinstance(config.prior, ARDPrior):
        return _followed(context)
    pool = stored_pool(context)
    features, explained = axes_of(context, pool, MAX_FEATURES, MIN_FEATURE_EXPLAINED)
    psi = features(torch.cat([task.x_obs, pool.rows]))
    psi_obs, psi_pool = psi.split([len(task.x_obs), len(pool)])
    posterior = condition(psi_obs, task.y_obs, psi_pool, config.noise_std, config.n_axes)
    mean, axes = posterior.targets(psi)
    trunk = _tuned(config.trunk, pool.rows, axes.shape[1])
    objective = _distillation(context, trunk, mean, axes, pool.rows)
    report = FitReport(
        explained_variance=explained,
        posterior_explained_variance=posterior.explained_variance,
        label_variance=_label_variance(context, posterior.variance(psi_obs)),
        added_jitter=posterior.added_jitter,
        beta_search=context.beta_search,
    )
    return TrainingProblem(context, objective, _batches(context, pool.rows), report)


def _followed(context: FitContext) -> TrainingProblem:
    """The posterior in closed form as the target everywhere: a network that is cheaper to ask.

    The posterior learns all labels; the network is not trained at those that calibrate it.
    """
    every, config = context.task, context.config
    exact = fit_closed_form(context)
    task = every.subset(
        (~calibration_rows(len(every.x_obs), config.calibration_share)).nonzero()[:, 0]
    )
    context = replace(context, task=task)
    pool = stored_pool(context)
    posterior = KernelPosterior(exact.generator, pool.rows[:MAX_LANDMARKS], config.n_axes)
    mean, axes = posterior.targets(torch.cat([task.x_obs, pool.rows]))
    prior = config.prior
    assert isinstance(prior, ARDPrior)
    trunk = config.trunk
    if isinstance(trunk, MLPTrunk) and trunk.column_scales is None:
        trunk = trunk.replace(column_scales=prior.column_scales)
    scaled = pool.rows / pool.rows.new_tensor(prior.column_scales)
    context = replace(context, config=config.replace(trunk=trunk))
    objective = _distillation(context, _tuned(trunk, scaled, axes.shape[1]), mean, axes, scaled)
    followed, variances = (part.to(every.x_obs) for part in exact.moments(every.x_obs))
    report = replace(
        exact.fit_report,
        posterior_explained_variance=posterior.explained_variance,
        label_variance=_label_variance(replace(context, task=every), variances[:, 0]),
        followed=followed,
        beta_search=context.beta_search,
    )
    return TrainingProblem(context, objective, _batches(context, pool.rows), report)


def _distillation(
    context: FitContext,
    trunk: Trunk,
    mean: Float[Tensor, "R o"],
    axes: Float[Tensor, "R q"],
    pool_rows: Inputs,
) -> DistillationObjective:
    """A network that follows functions, known at labels and pool rows."""
    task = context.task
    generator = _generator(context, trunk, task.n_outputs * axes.shape[1], pool_rows)
    assert isinstance(generator, AffineGenerator)
    objective = DistillationObjective(generator, len(task.x_obs), mean, axes)
    return objective.to(task.x_obs)


def _batches(
    context: FitContext, stored: Inputs | None, weights: Float[Tensor, "R"] | None = None
) -> Batches:
    """Batches of stored pool rows, or of fresh ones; joint anchors need all labels every time."""
    task, seeds, train = context.task, context.seeds, context.config.train
    joint = context.config.anchor == "joint"
    n_labels, n_pool = len(task.x_obs) if joint else train.label_batch, train.pool_batch
    if stored is None:
        return fresh_batches(task, seeds, n_labels=n_labels, n_pool=n_pool)
    return stored_batches(
        task, seeds, n_labels=n_labels, n_pool=n_pool, stored=stored, weights=weights
    )


def _tuned(trunk: Trunk, rows: Inputs, n_axes: int) -> Trunk:
    """Frequencies up to those of the prior's axes: r axes in d dimensions have r^{1/d} / 2 waves
    along each."""
    if not isinstance(trunk, MLPTrunk) or trunk.fourier == 0 or trunk.fourier_range is not None:
        return trunk
    flat = rows.flatten(1)
    extent = float((flat.amax(0) - flat.amin(0)).mean().clamp_min(1e-12))
    fastest = torch.pi * n_axes ** (1 / flat.shape[1]) / extent
    return trunk.replace(fourier_range=(min(2.0 / extent, fastest / 4), fastest))


def _generator(
    context: FitContext, trunk: Trunk, code_dim: int, pool_rows: Inputs | None = None
) -> Generator:
    """The generator, its encodings fitted to pool rows, or a residual network's to labeled ones."""
    signature, config = context.task.signature, context.config
    generator = build_generator(config, signature, code_dim, context.seeds, trunk)
    if isinstance(trunk, ResNetTrunk):
        pool_rows = context.task.x_obs
    fit_features(
        generator.features,
        lambda: stored_pool(context).rows if pool_rows is None else pool_rows,
    )
    return generator


def _anchor_term(
    context: FitContext,
    pool_rows: Inputs | None = None,
    axes: SpectralAxes | None = None,
    weights: Float[Tensor, "R"] | None = None,
) -> tuple[AnchorTerm, FitReport]:
    """The anchor term with its β, and what it took to find it."""
    config, task, report = context.config, context.task, FitReport(beta_search=context.beta_search)
    if config.anchor == "independent":
        mean_weight = 1.0 if weights is None else float(weights.mean())
        ramp_steps = round(config.beta_ramp * config.train.steps)
        return IndependentTerm(config.beta * mean_weight, ramp_steps), report
    n_labels = len(task.x_obs)
    if n_labels > MAX_JOINT_LABELS:
        raise ValueError(
            f"joint anchors factor a matrix of all labels at each step and take at most "
            f"{MAX_JOINT_LABELS} labels, got {n_labels}; use anchor='conditioned' (few "
            "dimensions) or anchor='independent'."
        )
    kernel = _kernel(context, axes)
    if not task.is_classification:
        gram = kernel(task.x_obs.double(), task.x_obs.double())
        variance = _label_variance(context, posterior_variance(gram, config.noise_std))
        report = replace(report, label_variance=variance)
    jitter = config.jitter or _jitter(context, kernel)
    beta = (0.5 if task.is_classification else config.noise_std**2) / n_labels
    rows = None if pool_rows is None else torch.cat([task.x_obs, pool_rows])
    return JointTerm(kernel, rows, beta, jitter), replace(report, jitter=jitter)


def _kernel(context: FitContext, axes: SpectralAxes | None) -> Kernel:
    """Σ_Ŷ between rows: in closed form where that is known, else from the prior's draws."""
    prior, task = context.config.prior, context.task
    if prior.has_kernel:
        return prior.kernel
    if isinstance(axes, DrawnAxes):
        return axes.kernel
    return drawn_kernel(prior, task.x_obs, task.n_outputs, context.seeds)


def _jitter(context: FitContext, kernel: Kernel) -> float:
    task = context.task
    variance = float(kernel(*[task.x_obs[:100].double()] * 2).diagonal().mean())
    if task.is_classification:
        return 1e-5 * variance
    return max(0.1 * context.config.noise_std**2, 1e-9 * variance)


def _label_variance(context: FitContext, variance: Float[Tensor, "N"]) -> LabelVariance:
    """The variance at each label given all labels, and without it."""
    without = loo_variance(variance, context.task.x_obs, context.config.noise_std)
    return LabelVariance(variance, without)
