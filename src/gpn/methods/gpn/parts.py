"""The parts of a GPN for one task, put together: an objective, and the batches that feed it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.anchors import SpectralAnchors, StoredAnchors, noise_directions
from gpn.core.batch import Batch
from gpn.core.conditioned import Distil, condition
from gpn.core.embedding import Embedding
from gpn.core.generator import AffineGenerator, Generator
from gpn.core.mixture import Learner, mixture_weights
from gpn.core.networks import MLPTrunk, Trunk, fit_features
from gpn.core.objective import ClosedForm, ClosedFormClasses, MonteCarlo, Objective
from gpn.core.relation import Independent, Joint, Relation
from gpn.core.spectral import (
    DrawnAxes,
    SpectralAxes,
    StretchedAxes,
    drawn_kernel,
    spectral_axes,
)
from gpn.core.types import Inputs, as_generator
from gpn.methods.gpn.batches import Batches, fresh_batches, kept_rows, stored_batches
from gpn.methods.gpn.density_ratio import network_ratio, tree_ratio
from gpn.methods.gpn.posterior import build_generator
from gpn.methods.gpn.setting import Setting

MOST_JOINT_LABELS = 2000
MOST_FEATURES = 2048
ENOUGH_KEPT = 0.99999
ENOUGH_KEPT_CLASSES = 0.998
ENOUGH_FEATURES = 0.9999999
LABELS_PER_LANDMARKS = 4
ROWS_TO_JUDGE = 1024
TREE_FLOOR = 0.05
NETWORK_FLOOR = 0.01


Kernel = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Parts:
    """What the loop needs: an objective, and batches."""

    objective: Objective
    batches: Batches


def assemble(setting: Setting) -> Parts:
    """The parts that the configuration names."""
    if setting.config.codes == "learnt":
        return _stored(setting)
    if setting.config.anchor == "conditioned":
        return _conditioned(setting)
    return _spectral(setting)


def _stored(setting: Setting) -> Parts:
    """The paper's scheme: k prior networks, learnt codes, fresh pool rows at each step."""
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
    anchors = StoredAnchors(moved, embedding, config.code_noise, table)
    objective = MonteCarlo(
        _generator(setting, setting.trunk, config.code_dim),
        anchors,
        _relation(setting, None),
        one_per_row=config.pairing == "one",
    )
    return Parts(objective.to(task.x_obs), fresh_batches(setting))


def _spectral(setting: Setting) -> Parts:
    """Unlimited anchors along the prior's eigenfunctions; in closed form where g is affine."""
    config, task = setting.config, setting.task
    reference = _reference(setting)
    enough = ENOUGH_KEPT_CLASSES if task.is_classification else ENOUGH_KEPT
    axes = _axes(setting, reference, config.n_axes, enough)
    if config.anchor == "independent":
        axes = StretchedAxes(axes)
    most = config.noise_axes if config.target_noise else 0
    directions = noise_directions(len(task.x_obs), most, setting.seeds, task.x_obs)
    anchors = SpectralAnchors(
        axes, axes.n_axes, task.n_outputs, config.n_anchors, directions, _noise_std(setting)
    )
    relation = _relation(setting, reference, axes)
    trunk = _tuned(setting.trunk, reference, axes.n_axes)
    generator = _generator(setting, trunk, anchors.code_dim, reference)
    if isinstance(generator, AffineGenerator):
        parts = generator, anchors, relation, axes(task.x_obs), axes(reference)
        if task.is_classification:
            objective: Objective = ClosedFormClasses(
                *parts, n_labels=len(task.x_obs), target_noise=bool(config.target_noise)
            )
        else:
            objective = ClosedForm(*parts)
    else:
        one = config.pairing == "one"
        objective = MonteCarlo(generator, anchors, relation, one_per_row=one)
    return Parts(objective.to(task.x_obs), stored_batches(setting, reference))


def _conditioned(setting: Setting) -> Parts:
    """Prior functions conditioned on all labels in feature space, as targets everywhere."""
    config, task = setting.config, setting.task
    reference = _reference(setting)
    features = _axes(setting, reference, MOST_FEATURES, ENOUGH_FEATURES)
    psi = features(torch.cat([task.x_obs, reference]))
    psi_obs, psi_pool = psi.split([len(task.x_obs), len(reference)])
    given = condition(psi_obs, task.y_obs, psi_pool, _noise_std(setting), config.n_axes)
    setting.story["posterior_variance_kept"] = given.kept
    setting.note_jitter(given.added_jitter)
    mean, axes = given.targets(psi)
    trunk = _tuned(setting.trunk, reference, axes.shape[1])
    generator = _generator(setting, trunk, task.n_outputs * axes.shape[1], reference)
    assert isinstance(generator, AffineGenerator)
    objective = Distil(generator, len(task.x_obs), mean, axes).to(task.x_obs)
    return Parts(objective, stored_batches(setting, reference))


def _tuned(trunk: Trunk, reference: Inputs, n_axes: int) -> Trunk:
    """Waves as fast as the prior's axes: r axes in d dimensions wave about r^{1/d} / 2 times."""
    if not isinstance(trunk, MLPTrunk) or trunk.fourier == 0 or trunk.fourier_range is not None:
        return trunk
    flat = reference.flatten(1)
    extent = float((flat.amax(0) - flat.amin(0)).mean().clamp_min(1e-12))
    fastest = torch.pi * n_axes ** (1 / flat.shape[1]) / extent
    return trunk.replace(fourier_range=(min(2.0 / extent, fastest / 4), fastest))


def _generator(
    setting: Setting, trunk: Trunk, code_dim: int, reference: Inputs | None = None
) -> Generator:
    signature = setting.task.signature
    generator = build_generator(setting.config, signature, code_dim, setting.seeds, trunk)
    fit_features(
        generator.features, lambda: _reference(setting) if reference is None else reference
    )
    return generator


def _relation(
    setting: Setting, reference: Inputs | None, axes: SpectralAxes | None = None
) -> Relation:
    config, task = setting.config, setting.task
    if config.anchor == "independent":
        assert config.beta is not None
        return Independent(config.beta, _weights(setting, reference))
    scale = 0.5 if task.is_classification else _noise_std(setting) ** 2
    _check_joint(setting)
    kernel = _kernel(setting, axes)
    jitter = setting.story["jitter"] = _jitter(setting, kernel)
    return Joint(_gram(setting, reference, kernel), scale / len(task.x_obs), jitter)


def _kernel(setting: Setting, axes: SpectralAxes | None) -> Kernel:
    """Σ_Ŷ between rows: in closed form where that is known, else from the prior's own draws."""
    task = setting.task
    if setting.prior.has_kernel:
        return setting.prior.kernel
    if isinstance(axes, DrawnAxes):
        return axes.kernel
    return drawn_kernel(setting.prior, task.x_obs, task.n_outputs, setting.seeds)


def _jitter(setting: Setting, kernel: Kernel) -> float:
    config, task = setting.config, setting.task
    if config.jitter is not None:
        return config.jitter
    variance = float(kernel(*[task.x_obs[:100].double()] * 2).diagonal().mean())
    if task.is_classification:
        return 1e-5 * variance
    return max(0.1 * _noise_std(setting) ** 2, 1e-9 * variance)


def _gram(
    setting: Setting, reference: Inputs | None, kernel: Kernel
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


def _weights(setting: Setting, reference: Inputs | None) -> Float[Tensor, "R"] | None:
    config = setting.config
    if config.pool_weights != "mixture" or reference is None:
        return None
    given = mixture_weights(setting.task.x_obs, reference, *_ratio(setting), setting.seeds)
    setting.story["pool_rows"], setting.story["pool_weights"] = reference, given.weights
    real = round((1 - (config.made_up or 0.0)) * len(reference))  # the made-up ones come last
    setting.story["labeled_share"] = given.labeled_share
    setting.story["unlike_labeled"] = float(given.unlike[:real].double().mean())
    setting.story["labels_judged"], setting.story["pool_judged"] = len(setting.task.x_obs), real
    return given.weights


def _ratio(setting: Setting) -> tuple[Learner, float]:
    """Who tells labeled rows from pool rows, and the lowest weight that is left to them.

    Trees for tables, where the two kinds overlap; a network, which is surer, for the rest.
    """
    if len(setting.task.input_shape) == 1:
        return tree_ratio(setting.seeds), TREE_FLOOR
    config = setting.train.replace(steps=max(200, setting.train.steps // 10), weight_decay=0.05)
    how = setting.seeds, setting.report, setting.file
    return network_ratio(setting.trunk, config, *how), NETWORK_FLOOR


def _axes(setting: Setting, reference: Inputs, most: int, enough: float) -> SpectralAxes:
    """As many spectral axes as hold the share `enough` of the prior's variance, at most `most`."""
    config, outputs = setting.config, setting.task.n_outputs
    landmarks = _landmarks(setting, reference)
    axes = spectral_axes(setting.prior, landmarks, outputs, most, enough, setting.seeds)
    setting.story["prior_variance_kept"] = _kept(axes, reference[config.reference_rows :])
    return axes


def _kept(axes: SpectralAxes, others: Inputs) -> float:
    """The share of the prior's variance that the axes hold, at pool rows that did not make them."""
    some = others[:ROWS_TO_JUDGE]
    if len(some) == 0:
        return axes.kept
    return float(axes(some).square().sum() / axes.variance(some).sum())


def _landmarks(setting: Setting, reference: Inputs) -> Float[Tensor, "L *d"]:
    """Pool rows, and labels beside them: a pool need not reach as far as the labels do."""
    x_obs, most = setting.task.x_obs, setting.config.reference_rows
    order = torch.randperm(len(x_obs), generator=setting.seeds)[: most // LABELS_PER_LANDMARKS]
    return torch.cat([reference[:most], x_obs[order.to(x_obs.device)]])


def _reference(setting: Setting) -> Inputs:
    rng = as_generator(setting.seeds, setting.device)
    return kept_rows(setting.config, setting.task, setting.pool, rng)


def _noise_std(setting: Setting) -> float:
    """σ_ε as the fit uses it; classes have none."""
    return setting.config.noise_std or 0.0


def _check_joint(setting: Setting) -> None:
    n_labels = len(setting.task.x_obs)
    if n_labels > MOST_JOINT_LABELS:
        raise ValueError(
            f"joint anchors factor a matrix of all labels at each step and take at most "
            f"{MOST_JOINT_LABELS} labels, got {n_labels}; use anchor='conditioned' (few "
            "dimensions) or anchor='independent'."
        )
