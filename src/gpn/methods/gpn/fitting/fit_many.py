"""Several fits as one tensor axis: seeds and settings of a small network trained together.

A small network leaves a GPU idle between two launches; many networks as one step share each
launch. Every member has its own rows, weights, axes and β; its loss is a term of the sum, so that
its gradient and Adam's step are those of a fit alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from gpn.core.networks.trunks import ModuleTrunk
from gpn.core.pools.prefetch import closing_streams
from gpn.core.task import Task
from gpn.core.types import as_generator
from gpn.core.warnings import warn_doubtful
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.defaults import resolve
from gpn.methods.gpn.fit_report import WARNINGS
from gpn.methods.gpn.fitting.build import build
from gpn.methods.gpn.fitting.context import FitContext, check_size
from gpn.methods.gpn.fitting.problem import TrainingProblem
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.objectives import Objective
from gpn.methods.gpn.pool.stored import with_pool_in_memory
from gpn.methods.gpn.posterior import GPNPosterior
from gpn.training.cuda_graphs import Rows, TrainStep
from gpn.training.loop import train
from gpn.training.progress import OnProgress, progress_bar
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
    counts = len(configs), len(tasks), len(seeds)
    if len(set(counts)) > 1 or counts[0] == 0:
        raise ValueError(
            "configs, tasks and seeds must be equally many and at least one, got "
            f"{counts[0]}, {counts[1]} and {counts[2]}."
        )
    with progress_bar(f"{len(tasks)} GPNs", show=progress) as on_progress:
        members = zip(configs, tasks, seeds, strict=True)
        contexts = [_context(*member) for member in members]
        _check_compatible(contexts)
        problems = [build(context) for context in contexts]
        history = _train(problems, on_progress)
    posteriors = [problem.posterior(history) for problem in problems]
    for posterior in posteriors:
        warn_doubtful(posterior.checks, WARNINGS)
    return posteriors


def _train(problems: Sequence[TrainingProblem], on_progress: OnProgress) -> History:
    """Train all, hand back what was learnt, and return the mean of their losses."""
    first = problems[0].context
    stacked = StackedObjectives([problem.objective for problem in problems])
    rngs = [as_generator(p.context.seeds, p.context.device) for p in problems]
    graph_safe = all(problem.graph_safe for problem in problems)
    step = TrainStep(lambda: _stacked_rows(problems, rngs), stacked.terms, graph_safe=graph_safe)
    streams = [stream for problem in problems for stream in problem.batches.streams]
    with seeded_global_rng(first.seeds), closing_streams(streams):
        history = train(stacked, step, first.config.train, on_progress)
    stacked.hand_back()
    for check in history.checks:
        means = {name: value / len(problems) for name, value in check.items() if name != "step"}
        check.update(means)
    return history


class StackedObjectives(nn.Module):
    """The parameters and tables of many objectives, stacked along a new first axis.

    Tables of different lengths are padded with zeros, which no row number reaches.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        super().__init__()
        _check_shapes(objectives)
        self.objectives = list(objectives)
        self.template = (_Terms(self.objectives[0]),)  # in a tuple it is no submodule
        parameters = [dict(objective.named_parameters()) for objective in self.objectives]
        self.names = list(parameters[0])
        self.stacked = nn.ParameterList(
            nn.Parameter(torch.stack([each[name].detach() for each in parameters]))
            for name in self.names
        )
        tables = [dict(objective.named_buffers()) for objective in self.objectives]
        self.tables = {name: _padded([each[name] for each in tables]) for name in tables[0]}

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


def _context(config: GPNConfig, task: Task, seed: int) -> FitContext:
    """The context of one member: as `GPN.fit` starts it, without checkpoint and processes."""
    check_size(task)
    resolved = resolve(config, task)
    if resolved.anchor != "independent" or not resolved.beta or resolved.target_noise:
        raise IncompatibleFits(
            "fits as one axis need independent anchors with β given and no target noise, got "
            f"anchor={resolved.anchor!r}, beta={config.beta} and "
            f"target_noise={resolved.target_noise}; try GPNConfig(anchor='independent', beta=0.3)."
        )
    if isinstance(resolved.trunk, ModuleTrunk):
        raise IncompatibleFits(
            "fits as one axis need our own trunks, got a module; fit them one by one."
        )
    if task.is_classification or not resolved.is_affine_spectral:
        raise IncompatibleFits(
            "fits as one axis are for targets with spectral codes and an affine generator, got "
            f"{'classes' if task.is_classification else 'targets'} with codes={resolved.codes!r} "
            f"and generator={resolved.generator!r}; fit them one by one."
        )
    seeds = as_generator(seed)
    moved = task.to(resolved.train.pick_device(), resolved.train.pick_dtype(task.x_obs))
    return FitContext(resolved, with_pool_in_memory(resolved, moved, seeds), seeds)


def _check_compatible(contexts: Sequence[FitContext]) -> None:
    """Raise unless the members share what one template computes for all of them."""
    facts = [
        {
            "train": context.config.train,
            "trunk": context.config.trunk,
            "pool_weights": context.config.pool_weights,
            "task": context.task.signature,
            "number of labels in a batch": min(
                context.config.train.label_batch, len(context.task.x_obs)
            ),
        }
        for context in contexts
    ]
    for name, first in facts[0].items():
        for other in facts[1:]:
            if other[name] != first:
                raise IncompatibleFits(
                    f"fits as one axis need the same {name}, got {first} and {other[name]}; "
                    "fit them one by one."
                )


def _check_shapes(objectives: Sequence[Objective]) -> None:
    """Raise unless all networks have one shape, which depends on the number of prior axes."""
    shapes = {tuple(tuple(p.shape) for p in objective.parameters()) for objective in objectives}
    if len(shapes) > 1:
        raise IncompatibleFits(
            f"fits as one axis need networks of one shape, got {len(shapes)} kinds of them: the "
            "prior has as many axes as it needs; give n_axes, or fit them one by one."
        )


def _padded(tables: Sequence[Tensor]) -> Tensor:
    """All tables as one tensor; short ones end with rows of zeros."""
    if tables[0].ndim == 0:
        return torch.stack(list(tables))
    return torch.nn.utils.rnn.pad_sequence(list(tables), batch_first=True)


def _stacked_rows(problems: Sequence[TrainingProblem], rngs: Sequence[torch.Generator]) -> Rows:
    """The next batch of every member."""
    batches = (p.batches.next(rng).tensors for p, rng in zip(problems, rngs, strict=True))
    return tuple(torch.stack(tensors) for tensors in zip(*batches, strict=True))
