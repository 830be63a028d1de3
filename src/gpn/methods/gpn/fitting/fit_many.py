"""Several fits as one tensor axis: seeds and settings of a small network side by side.

A step of a small network leaves a GPU idle while the next is asked for; many as one step share
that. Every member has its own rows, weights, axes and β; its loss is a term of the sum, so that its
gradient and Adam's step are those of a fit of its own.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from gpn.core.networks.trunks import MLPTrunk, ModuleTrunk
from gpn.core.pools.prefetch import closing_streams
from gpn.core.priors.prior import MLPPrior
from gpn.core.task import Task
from gpn.core.types import as_generator
from gpn.core.warnings import warn_doubtful
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.fit_report import KINDS
from gpn.methods.gpn.fitting.build import TrainingProblem, build_problem
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.fitting.fit import check_size
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.objectives import Objective
from gpn.methods.gpn.pool.stored import sampled
from gpn.methods.gpn.posterior import GPNPosterior, make_posterior
from gpn.training.config import TrainConfig
from gpn.training.cuda_graphs import Rows, TrainStep
from gpn.training.loop import Report, train
from gpn.training.progress import progress_bar
from gpn.training.state import History, Terms
from gpn.training.torch_state import seeded_global_rng


class IncompatibleFits(ValueError):
    """Fits that cannot be one axis: fit them one by one."""


def fit_many(
    configs: Sequence[GPNConfig],
    tasks: Sequence[Task],
    seeds: Sequence[int],
    *,
    progress: bool | None = None,
) -> list[GPNPosterior]:
    """One posterior for each configuration on its task, as `GPN(config).fit(task, seed)` finds it.

    For targets and affine generators on our own trunks, with independent anchors and β given: the
    networks, the training and the kind of pool weights are the same for all. Dropout draws other
    numbers than in a fit of its own, and a fit's history is the mean over all. A member that
    diverges ends all of them, and so does Ctrl-C.
    """
    _check_counts(configs, tasks, seeds)
    with progress_bar(f"{len(tasks)} GPNs", show=progress) as report:
        settings = [
            _setting(config, task, seed, report)
            for config, task, seed in zip(configs, tasks, seeds, strict=True)
        ]
        _check_alike(settings)
        members = [build_problem(setting) for setting in settings]
        history = _trained(members, settings, report)
    for setting in settings:
        setting.story["history"] = history
    posteriors = [
        make_posterior(part.objective.generator, own.task.signature, own.config, own.story)
        for part, own in zip(members, settings, strict=True)
    ]
    for posterior in posteriors:
        warn_doubtful(posterior.checks, KINDS)
    return posteriors


def _trained(
    members: Sequence[TrainingProblem], settings: Sequence[FitContext], report: Report
) -> History:
    """Train all, hand back what was learnt, and tell the mean of their losses."""
    together, first = StackedObjectives([part.objective for part in members]), settings[0]
    rngs = [as_generator(setting.seeds, setting.device) for setting in settings]
    graph_safe = all(part.graph_safe for part in members)
    feed = TrainStep(lambda: _stacked_rows(members, rngs), together.terms, graph_safe=graph_safe)
    streams = [stream for part in members for stream in part.batches.streams]
    with seeded_global_rng(first.seeds), closing_streams(streams):
        history = train(together, feed, first.train, report).require_finished()
    together.hand_back()
    for check in history.checks:
        means = {name: value / len(members) for name, value in check.items() if name != "step"}
        check.update(means)
    return history


class StackedObjectives(nn.Module):
    """The parameters and tables of many objectives, one behind the other along a new first axis.

    Tables of different lengths are filled up with zeros, which no row number reaches.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        super().__init__()
        _check_shapes(objectives)
        self.objectives = list(objectives)
        self.template = (_Terms(self.objectives[0]),)  # a tuple: no module of this one
        own = [dict(objective.named_parameters()) for objective in self.objectives]
        self.names = list(own[0])
        self.stacked = nn.ParameterList(
            nn.Parameter(torch.stack([each[name].detach() for each in own])) for name in self.names
        )
        tables = [dict(objective.named_buffers()) for objective in self.objectives]
        self.tables = {name: _filled([each[name] for each in tables]) for name in tables[0]}

    def terms(self, *rows: Tensor) -> Terms:
        """Each term of the loss, summed over the members."""

        def one(parameters: dict[str, Tensor], tables: dict[str, Tensor], rows: Rows) -> Terms:
            named = {f"objective.{name}": value for name, value in (parameters | tables).items()}
            return functional_call(self.template[0], named, rows)

        parameters = dict(zip(self.names, self.stacked, strict=True))
        every = vmap(one, randomness="different")(parameters, self.tables, rows)
        return {name: values.sum() for name, values in every.items()}

    @torch.no_grad()
    def hand_back(self) -> None:
        """Every objective gets what was learnt for it."""
        for name, values in zip(self.names, self.stacked, strict=True):
            for objective, value in zip(self.objectives, values, strict=True):
                objective.get_parameter(name).copy_(value)


class _Terms(nn.Module):
    """An objective as a function of a batch's tensors."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective
        self.unused = as_generator(0)

    def forward(self, *tensors: Tensor) -> Terms:
        return self.objective.terms(Batch(*tensors), self.unused)


def _setting(config: GPNConfig, task: Task, seed: int, report: Report) -> FitContext:
    """As `GPN.fit` begins."""
    check_size(task)
    resolved, seeds = config.resolved(task), as_generator(seed)
    if resolved.anchor != "independent" or resolved.beta is None or resolved.target_noise:
        raise IncompatibleFits(
            "fits side by side need independent anchors with β given and no target noise, got "
            f"anchor={resolved.anchor!r}, beta={resolved.beta} and "
            f"target_noise={resolved.target_noise}; try GPNConfig(anchor='independent', beta=0.3)."
        )
    if isinstance(resolved.trunk, ModuleTrunk):
        raise IncompatibleFits(
            "fits side by side need our own trunks, got a module; fit them one by one."
        )
    if task.is_classification or resolved.codes != "spectral" or resolved.generator != "affine":
        raise IncompatibleFits(
            "fits side by side are for targets with spectral codes and an affine generator, got "
            f"{'classes' if task.is_classification else 'targets'} with codes={resolved.codes!r} "
            f"and generator={resolved.generator!r}; fit them one by one."
        )
    how = resolved.train or TrainConfig()
    moved = task.to(how.pick_device(), how.pick_dtype(task.x_obs))
    moved = sampled(resolved, moved, seeds)
    parts_of = resolved.prior or MLPPrior(), resolved.trunk or MLPTrunk(), how
    return FitContext(resolved, *parts_of, moved, moved.required_pool("a GPN"), seeds, report)


def _check_counts(*parts: Sequence[object]) -> None:
    counts = [len(part) for part in parts]
    if len(set(counts)) > 1 or counts[0] == 0:
        raise ValueError(
            "configs, tasks and seeds must be equally many and at least one, got "
            f"{counts[0]}, {counts[1]} and {counts[2]}."
        )


def _check_alike(settings: Sequence[FitContext]) -> None:
    """What one template does for all must be the same for all."""
    known = [
        {
            "train": setting.train,
            "trunk": setting.trunk,
            "pool_weights": setting.config.pool_weights,
            "task": setting.task.signature,
            "number of labels in a batch": min(setting.train.label_batch, len(setting.task.x_obs)),
        }
        for setting in settings
    ]
    for name, first in known[0].items():
        for other in known[1:]:
            if other[name] != first:
                raise IncompatibleFits(
                    f"fits side by side need the same {name}, got {first} and {other[name]}; "
                    "fit them one by one."
                )


def _check_shapes(objectives: Sequence[Objective]) -> None:
    """The shapes of parameters are known once the prior's axes are."""
    shapes = {tuple(tuple(p.shape) for p in objective.parameters()) for objective in objectives}
    if len(shapes) > 1:
        raise IncompatibleFits(
            f"fits side by side need networks of one shape, got {len(shapes)} kinds of them: the "
            "prior has as many axes as it needs; give n_axes, or fit them one by one."
        )


def _filled(tables: Sequence[Tensor]) -> Tensor:
    """All tables as one, short ones with zeros behind their last row."""
    if tables[0].ndim == 0:
        return torch.stack(list(tables))
    longest = max(len(table) for table in tables)
    rest = [table.new_zeros(longest - len(table), *table.shape[1:]) for table in tables]
    pairs = zip(tables, rest, strict=True)
    return torch.stack([torch.cat([table, zeros]) for table, zeros in pairs])


def _stacked_rows(members: Sequence[TrainingProblem], rngs: Sequence[torch.Generator]) -> Rows:
    """The next batch of every member."""
    batches = (part.batches.next(rng).tensors for part, rng in zip(members, rngs, strict=True))
    return tuple(torch.stack(tensors) for tensors in zip(*batches, strict=True))
