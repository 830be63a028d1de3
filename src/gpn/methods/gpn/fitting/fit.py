"""Fitting a GPN: choose the parts for the task, put them together, train."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from gpn.core.networks.trunks import MLPTrunk
from gpn.core.pools.prefetch import closing_streams
from gpn.core.priors.evidence import feature_noise_std
from gpn.core.priors.prior import MLPPrior
from gpn.core.priors.spectral import spectral_axes
from gpn.core.task import Task
from gpn.core.types import Rng, as_generator
from gpn.core.warnings import warn_doubtful
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.fit_report import KINDS
from gpn.methods.gpn.fitting.build import TrainingProblem, build_problem
from gpn.methods.gpn.fitting.context import FitContext, TrialCache
from gpn.methods.gpn.fitting.frozen import on_features, on_rows
from gpn.methods.gpn.fitting.select import MIN_LABELS, Fit, select_beta
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.pool.stored import sampled
from gpn.methods.gpn.posterior import GPNPosterior, make_posterior
from gpn.training.checkpoint import CheckpointLike, CheckpointSession, kept
from gpn.training.config import TrainConfig
from gpn.training.cuda_graphs import TrainStep
from gpn.training.distributed import ProcessGroup, together
from gpn.training.divergence import TrainingDiverged
from gpn.training.fingerprint import fingerprint
from gpn.training.loop import Report, train
from gpn.training.progress import progress_bar
from gpn.training.torch_state import seeded_global_rng

LARGEST = 1e6


class GPN:
    """The method: `GPN(config).fit(task, rng=0)` gives a posterior."""

    def __init__(self, config: GPNConfig | None = None) -> None:
        self.config = GPNConfig() if config is None else config

    def fit(
        self,
        task: Task,
        rng: Rng = None,
        *,
        progress: bool | None = None,
        checkpoint: CheckpointLike = None,
    ) -> GPNPosterior:
        """Train one generator on the task; `progress` None shows a bar on a terminal.

        With `checkpoint`, a path or a `gpn.Checkpoint`, the fit is kept in that file while it
        runs; killed and called again, it goes on from there to the same weights.
        """
        check_size(task)
        config, seeds = self.config.resolved(task), as_generator(rng)
        train_config = config.train or TrainConfig()
        processes, dtype = train_config.processes(), train_config.pick_dtype(task.x_obs)
        device = train_config.pick_device() if processes is None else processes.device
        leads = processes is None or processes.leads
        kind = device if processes is None else torch.device(device.type)
        moved = task.to(device, dtype)
        with (
            together(processes, lambda: fingerprint(config, task, rng, kind)),
            kept(checkpoint, config, task, rng, kind, writes=leads) as file,
            progress_bar("GPN", show=progress if leads else False) as report,
        ):
            moved = sampled(config, moved, seeds)
            given = seeds, report, file, processes
            if config.is_frozen:
                head_config, seen, features = on_features(config, moved, seeds)
                try:
                    head = _fit(head_config, seen, *given)
                except TrainingDiverged as error:
                    error.posterior = on_rows(error.posterior, features, config, task)
                    raise
                posterior = on_rows(head, features, config, task)
            else:
                posterior = _fit(config, moved, *given)
        warn_doubtful(posterior.checks, KINDS)
        return posterior


def _fit(
    config: GPNConfig,
    task: Task,
    seeds: torch.Generator,
    report: Report,
    file: CheckpointSession | None,
    processes: ProcessGroup | None,
) -> GPNPosterior:
    """Find what the configuration leaves open, the same in all processes, then train."""
    shared, fit = TrialCache(), partial(fit_resolved, file=file, processes=processes)
    config, story = _learnt_settings(config, task, seeds, report, partial(fit, shared=shared))
    if processes is not None:
        beta, noise_std = processes.agreed((config.beta, config.noise_std))
        config = config.replace(beta=beta, noise_std=noise_std)
    return fit(config, task, seeds, report, story, shared=shared.for_other_labels())


def fit_resolved(
    config: GPNConfig,
    task: Task,
    seeds: torch.Generator,
    report: Report,
    story: dict[str, Any],
    file: CheckpointSession | None = None,
    shared: TrialCache | None = None,
    processes: ProcessGroup | None = None,
) -> GPNPosterior:
    """Train the variant that `config` fully names, on a task already on its device."""
    train_config, pool = config.train or TrainConfig(), task.required_pool("a GPN")
    parts_of = config.prior or MLPPrior(), config.trunk or MLPTrunk(), train_config
    shared = shared or TrialCache()
    setting = FitContext(
        config, *parts_of, task, pool, seeds, report, story, file, shared, processes
    )
    parts = build_problem(setting)
    rng = as_generator(seeds, setting.device)

    objective, terms = parts.objective, step_of(parts, rng, alone=processes is None)
    split = nullcontext() if processes is None else processes.rows_split(objective.generator)
    try:
        with seeded_global_rng(seeds) as torchs, closing_streams(parts.batches.streams), split:
            streams = [rng, *parts.batches.streams, *torchs]
            how = objective.undecayed, streams, file, processes
            story["history"] = train(objective, terms, train_config, report, *how)
    except TrainingDiverged as error:
        error.posterior = make_posterior(objective.generator, task.signature, config, story)
        raise
    setting.note_jitter(objective.added_jitter)
    return make_posterior(objective.generator, task.signature, config, story)


def step_of(parts: TrainingProblem, rng: torch.Generator, *, alone: bool = True) -> TrainStep:
    """One step: the next batch, and the objective's terms on it; what processes exchange in it
    cannot be replayed."""
    objective = parts.objective
    return TrainStep(
        lambda: parts.batches.next(rng).tensors,
        lambda *tensors: objective.terms(Batch(*tensors), rng),
        [rng],
        parts.graph_safe and alone,
    )


def check_size(task: Task) -> None:
    """Values are used as given: far beyond the prior's own size no network would follow them."""
    given = {"x": task.x_obs} if task.is_classification else {"x": task.x_obs, "y": task.y_obs}
    for name, values in given.items():
        largest = float(values.abs().max())
        if largest > LARGEST:
            raise ValueError(
                f"{name} must be of the prior's size, about 1, got values up to {largest:.3g}; "
                "scale it to mean 0 and deviation 1, as GPNRegressor and GPNClassifier do."
            )


def _learnt_settings(
    config: GPNConfig, task: Task, seeds: torch.Generator, report: Report, fit: Fit
) -> tuple[GPNConfig, dict[str, Any]]:
    """β and σ_ε where the configuration leaves them open."""
    story: dict[str, Any] = {}
    known_noise = task.is_classification or config.noise_std is not None
    if config.anchor != "independent":
        return config if known_noise else config.replace(noise_std=_evidence(config, task)), story
    if config.beta is not None and (known_noise or not config.target_noise):
        return config, story
    if config.target_noise and not known_noise and len(task.x_obs) < MIN_LABELS:
        config = config.replace(noise_std=_evidence(config, task))
    return select_beta(config, task, seeds, report, fit)


def _evidence(config: GPNConfig, task: Task) -> float:
    """σ_ε by marginal likelihood, from the prior's features at (at most 2,000) labels."""
    picked = torch.randperm(len(task.x_obs), generator=as_generator(0))[:2000]
    some = task.subset(picked)
    most = len(some.x_obs)
    prior = config.prior or MLPPrior()
    axes = spectral_axes(prior, some.x_obs, task.n_outputs, most, 1.0, as_generator(0))
    return feature_noise_std(axes(some.x_obs), some.y_obs)
