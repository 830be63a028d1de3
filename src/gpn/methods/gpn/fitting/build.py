"""The parts of a GPN for one task, put together: an objective, and the batches that feed it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.chunks import chunk_size, join_chunks, map_chunks
from gpn.core.networks.encodings import fit_features
from gpn.core.networks.trunks import MLPTrunk, ModuleTrunk, Trunk
from gpn.core.pools.base import TensorPool
from gpn.core.priors.leave_one_out import loo_variance, posterior_variance
from gpn.core.priors.prior import ModulePrior, Prior
from gpn.core.priors.spectral import DrawnAxes, SpectralAxes, drawn_kernel
from gpn.core.types import Inputs
from gpn.methods.gpn.fitting.basis import ground_of, pool_weights, reference_rows, spectral_axes_of
from gpn.methods.gpn.fitting.batches import Batches, fresh_batches, stored_batches
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.model.anchor_terms import AnchorTerm, IndependentTerm, JointTerm
from gpn.methods.gpn.model.anchors import SpectralAnchors, StoredAnchors, noise_directions
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.codes import Embedding
from gpn.methods.gpn.model.conditioned import DistillationObjective, condition
from gpn.methods.gpn.model.generator import AffineGenerator, Generator
from gpn.methods.gpn.model.objectives import ClosedForm, ClosedFormClasses, MonteCarlo, Objective
from gpn.methods.gpn.posterior import build_generator

MAX_JOINT_LABELS = 2000

MAX_TABLE_NUMBERS = 2**28

PRIOR_WIDTH = 512

MAX_FEATURES = 2048

ENOUGH_FEATURES = 0.9999999


Kernel = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class TrainingProblem:
    """What the loop needs: an objective, and batches; a user's own modules may do anything."""

    objective: Objective
    batches: Batches
    own_modules: bool = False

    @property
    def graph_safe(self) -> bool:
        return self.objective.graph_safe and not self.own_modules


def build_problem(setting: FitContext) -> TrainingProblem:
    """The parts that the configuration names."""
    if setting.config.codes == "learnt":
        parts = _stored(setting)
    elif setting.config.anchor == "conditioned":
        parts = _conditioned(setting)
    else:
        parts = _spectral(setting)
    own = isinstance(setting.trunk, ModuleTrunk) or isinstance(setting.prior, ModulePrior)
    return replace(parts, own_modules=own)


def _stored(setting: FitContext) -> TrainingProblem:
    """The paper's scheme: k prior networks, learnt codes.

    Their values are looked up at stored pool rows, if the pool's table is small enough; else they
    are computed at each step's fresh rows.
    """
    config, task, seeds = setting.config, setting.task, setting.seeds
    prior = setting.prior.sample(task.input_shape, task.n_outputs, config.n_anchors, seeds)
    embedding = Embedding(config.n_anchors, config.code_dim, seeds)
    setting.story["codes"] = embedding.codes  # as they will be once they are learnt
    table = torch.zeros(1, len(task.x_obs), task.n_outputs)
    if config.target_noise and not task.is_classification:
        table = _noise_std(setting) * torch.randn(
            config.n_anchors, *table.shape[1:], generator=seeds
        )
    moved = prior.to(setting.device, task.x_obs.dtype)
    rows = _rows_of_a_table(setting)
    at_pool = None if rows is None else _prior_table(moved, rows, config.n_anchors)
    anchors = StoredAnchors(moved, embedding, config.code_noise, table, at_pool)
    objective = MonteCarlo(
        _generator(setting, setting.trunk, config.code_dim),
        anchors,
        _relation(setting, None),
        one_per_row=config.pairing == "one",
    )
    batches = fresh_batches(setting) if rows is None else stored_batches(setting, rows)
    return TrainingProblem(objective.to(task.x_obs), batches)


def _rows_of_a_table(setting: FitContext) -> Inputs | None:
    """All rows of the pool, if anchors there can be computed once and for all.

    Not where augmentation changes rows, where the table would be too large, or where the training
    is so short that it would be more work than the steps'.
    """
    pool, task = setting.pool, setting.task
    lookup = isinstance(pool, TensorPool) and task.augment is None
    if not lookup or setting.config.anchor != "independent":
        return None
    assert isinstance(pool, TensorPool)
    numbers = setting.config.n_anchors * len(pool) * task.n_outputs
    seen = setting.train.steps * setting.train.pool_batch
    return pool.rows if numbers <= MAX_TABLE_NUMBERS and len(pool) <= seen else None


@torch.no_grad()
def _prior_table(prior: Prior, rows: Inputs, n_anchors: int) -> Float[Tensor, "k R o"]:
    size = chunk_size(n_anchors * PRIOR_WIDTH, rows.device, len(rows))
    return join_chunks(map_chunks(prior, rows, size), dim=1)


def _spectral(setting: FitContext) -> TrainingProblem:
    """Unlimited anchors along the prior's eigenfunctions; in closed form where g is affine."""
    config, task, ground = setting.config, setting.task, ground_of(setting)
    reference, axes = ground.reference, ground.axes
    most = config.noise_axes if config.target_noise else 0
    directions = noise_directions(len(task.x_obs), most, setting.seeds, task.x_obs)
    anchors = SpectralAnchors(
        axes, axes.n_axes, task.n_outputs, config.n_anchors, directions, _noise_std(setting)
    )
    weights = pool_weights(setting, reference) if config.anchor == "independent" else None
    relation = _relation(setting, reference, axes, weights)
    trunk = _tuned(setting.trunk, reference, axes.n_axes)
    generator = _generator(setting, trunk, anchors.code_dim, reference)
    if isinstance(generator, AffineGenerator):
        parts = generator, anchors, relation, _psi_obs(setting, relation, axes), ground.psi
        if task.is_classification:
            objective: Objective = ClosedFormClasses(
                *parts, n_labels=len(task.x_obs), target_noise=bool(config.target_noise)
            )
        else:
            objective = ClosedForm(*parts)
    else:
        one = config.pairing == "one"
        objective = MonteCarlo(generator, anchors, relation, one_per_row=one)
    return TrainingProblem(objective.to(task.x_obs), stored_batches(setting, reference, weights))


def _psi_obs(setting: FitContext, relation: AnchorTerm, axes: SpectralAxes) -> Float[Tensor, "N r"]:
    """The axes at the labels, which take a while: only where the relation compares there."""
    x_obs = setting.task.x_obs
    return x_obs.new_zeros(len(x_obs), axes.n_axes) if relation.pool_only else axes(x_obs)


def _conditioned(setting: FitContext) -> TrainingProblem:
    """Prior functions conditioned on all labels in feature space, as targets everywhere."""
    config, task = setting.config, setting.task
    reference = reference_rows(setting)
    features = spectral_axes_of(setting, reference, MAX_FEATURES, ENOUGH_FEATURES)
    psi = features(torch.cat([task.x_obs, reference]))
    psi_obs, psi_pool = psi.split([len(task.x_obs), len(reference)])
    given = condition(psi_obs, task.y_obs, psi_pool, _noise_std(setting), config.n_axes)
    setting.story["posterior_variance_kept"] = given.kept
    setting.note_jitter(given.added_jitter)
    mean, axes = given.targets(psi)
    _note_left_out(setting, given.variance(psi_obs))
    trunk = _tuned(setting.trunk, reference, axes.shape[1])
    generator = _generator(setting, trunk, task.n_outputs * axes.shape[1], reference)
    assert isinstance(generator, AffineGenerator)
    objective = DistillationObjective(generator, len(task.x_obs), mean, axes).to(task.x_obs)
    return TrainingProblem(objective, stored_batches(setting, reference))


def _tuned(trunk: Trunk, reference: Inputs, n_axes: int) -> Trunk:
    """Waves as fast as the prior's axes: r axes in d dimensions wave about r^{1/d} / 2 times."""
    if not isinstance(trunk, MLPTrunk) or trunk.fourier == 0 or trunk.fourier_range is not None:
        return trunk
    flat = reference.flatten(1)
    extent = float((flat.amax(0) - flat.amin(0)).mean().clamp_min(1e-12))
    fastest = torch.pi * n_axes ** (1 / flat.shape[1]) / extent
    return trunk.replace(fourier_range=(min(2.0 / extent, fastest / 4), fastest))


def _generator(
    setting: FitContext, trunk: Trunk, code_dim: int, reference: Inputs | None = None
) -> Generator:
    signature = setting.task.signature
    generator = build_generator(setting.config, signature, code_dim, setting.seeds, trunk)
    fit_features(
        generator.features, lambda: reference_rows(setting) if reference is None else reference
    )
    return generator


def _relation(
    setting: FitContext,
    reference: Inputs | None,
    axes: SpectralAxes | None = None,
    weights: Float[Tensor, "R"] | None = None,
) -> AnchorTerm:
    config, task = setting.config, setting.task
    if config.anchor == "independent":
        assert config.beta is not None
        return IndependentTerm(config.beta * (1.0 if weights is None else float(weights.mean())))
    scale = 0.5 if task.is_classification else _noise_std(setting) ** 2
    _check_joint(setting)
    kernel = _kernel(setting, axes)
    if not task.is_classification:
        gram = kernel(task.x_obs.double(), task.x_obs.double())
        _note_left_out(setting, posterior_variance(gram, _noise_std(setting)))
    jitter = setting.story["jitter"] = _jitter(setting, kernel)
    return JointTerm(_gram(setting, reference, kernel), scale / len(task.x_obs), jitter)


def _kernel(setting: FitContext, axes: SpectralAxes | None) -> Kernel:
    """Σ_Ŷ between rows: in closed form where that is known, else from the prior's own draws."""
    task = setting.task
    if setting.prior.has_kernel:
        return setting.prior.kernel
    if isinstance(axes, DrawnAxes):
        return axes.kernel
    return drawn_kernel(setting.prior, task.x_obs, task.n_outputs, setting.seeds)


def _jitter(setting: FitContext, kernel: Kernel) -> float:
    config, task = setting.config, setting.task
    if config.jitter is not None:
        return config.jitter
    variance = float(kernel(*[task.x_obs[:100].double()] * 2).diagonal().mean())
    if task.is_classification:
        return 1e-5 * variance
    return max(0.1 * _noise_std(setting) ** 2, 1e-9 * variance)


def _gram(
    setting: FitContext, reference: Inputs | None, kernel: Kernel
) -> Callable[[Batch], Float[Tensor, "n n"]]:
    """Σ_Ŷ of a batch: looked up where pool rows are stored, else computed."""
    task = setting.task
    if reference is None:
        return lambda batch: kernel(batch.x.double(), batch.x.double())
    everywhere = torch.cat([task.x_obs, reference]).double()
    table, n_labels = kernel(everywhere, everywhere), len(task.x_obs)

    def lookup(batch: Batch) -> Float[Tensor, "n n"]:
        assert batch.pool_rows is not None
        rows = torch.cat([batch.rows, n_labels + batch.pool_rows])
        return table[rows[:, None], rows[None, :]]

    return lookup


def _noise_std(setting: FitContext) -> float:
    """σ_ε as the fit uses it; classes have none."""
    return setting.config.noise_std or 0.0


def _note_left_out(setting: FitContext, variance: Float[Tensor, "N"]) -> None:
    """How unknown each label's row would be without it, from the variances given all of them."""
    left_out = loo_variance(variance, setting.task.x_obs, _noise_std(setting))
    setting.story["label_variance"], setting.story["left_out_variance"] = variance, left_out


def _check_joint(setting: FitContext) -> None:
    n_labels = len(setting.task.x_obs)
    if n_labels > MAX_JOINT_LABELS:
        raise ValueError(
            f"joint anchors factor a matrix of all labels at each step and take at most "
            f"{MAX_JOINT_LABELS} labels, got {n_labels}; use anchor='conditioned' (few "
            "dimensions) or anchor='independent'."
        )
