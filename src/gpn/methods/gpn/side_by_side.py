"""Several fits as one tensor axis: seeds and settings of a small network side by side.

A step of a small network leaves a GPU idle while it is asked for. Twenty of them as one step cost
hardly more than one. Every member has its own rows, weights, axes and β; its loss is a term of the
sum, so that its gradient and Adam's step are those of a fit of its own.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from gpn.core.batch import Batch
from gpn.core.networks import MLPTrunk
from gpn.core.objective import ClosedForm, ClosedFormClasses, Objective
from gpn.core.prior import MLPPrior
from gpn.core.replay import Feed, Rows
from gpn.core.task import Task
from gpn.core.train import Report, Terms, TrainConfig, train
from gpn.core.types import as_generator, seeded
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.parts import Parts, assemble
from gpn.methods.gpn.posterior import GPNPosterior, make_posterior
from gpn.methods.gpn.setting import Setting
from gpn.progress import progress_bar


class NotAlike(ValueError):
    """Fits that cannot be one axis: fit them one by one."""


def fit_side_by_side(
    configs: Sequence[GPNConfig],
    tasks: Sequence[Task],
    seeds: Sequence[int],
    *,
    progress: bool | None = None,
) -> list[GPNPosterior]:
    """One posterior for each configuration on its task, as `GPN(config).fit(task, seed)` finds it.

    For targets and affine generators with independent anchors and β given, of one shape and one
    training; dropout draws other numbers than in a fit of its own.
    """
    with progress_bar(f"{len(tasks)} GPNs", show=progress) as report:
        settings = [
            _setting(config, task, seed, report)
            for config, task, seed in zip(configs, tasks, seeds, strict=True)
        ]
        members = [assemble(setting) for setting in settings]
        together, first = SideBySide(members), settings[0]
        rngs = [as_generator(setting.seeds, setting.device) for setting in settings]
        feed = Feed(lambda: _stacked_rows(members, rngs), together.terms, replayable=False)
        with seeded(first.seeds):
            history = train(together, feed, first.train, report)
        together.hand_back()
    for setting in settings:
        setting.story["history"] = history
    return [
        make_posterior(part.objective.generator, own.task.signature, own.config, own.story)
        for part, own in zip(members, settings, strict=True)
    ]


class SideBySide(nn.Module):
    """The parameters and tables of many objectives, one behind the other along a new first axis.

    Tables of different lengths are filled up with zeros, which no row number reaches.
    """

    def __init__(self, members: Sequence[Parts]) -> None:
        super().__init__()
        self.objectives = [part.objective for part in members]
        _check_alike(members)
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


def _setting(config: GPNConfig, task: Task, seed: int, report: Report) -> Setting:
    resolved = config.resolved(task)
    if resolved.anchor != "independent" or resolved.beta is None or resolved.target_noise:
        raise NotAlike(
            "fits side by side need independent anchors with β given and no target noise, got "
            f"anchor={resolved.anchor!r}, beta={resolved.beta} and "
            f"target_noise={resolved.target_noise}; try GPNConfig(anchor='independent', beta=0.3)."
        )
    how = resolved.train or TrainConfig()
    moved = task.to(how.pick_device(), how.pick_dtype(task.x_obs))
    parts_of = resolved.prior or MLPPrior(), resolved.trunk or MLPTrunk(), how
    pool = moved.required_pool("a GPN")
    return Setting(resolved, *parts_of, moved, pool, as_generator(seed), report)


def _check_alike(members: Sequence[Parts]) -> None:
    """Only objectives that draw nothing but dropout, with parameters of the same shapes."""
    shapes = set()
    for part in members:
        objective = part.objective
        if not isinstance(objective, ClosedForm) or isinstance(objective, ClosedFormClasses):
            raise NotAlike(
                "fits side by side are for targets with spectral codes and an affine generator, "
                f"got {type(objective).__name__}; fit them one by one."
            )
        shapes.add(tuple(tuple(value.shape) for value in objective.parameters()))
    if len(shapes) > 1:
        raise NotAlike(
            f"fits side by side need networks of one shape, got {len(shapes)} kinds of them; "
            "give all the same trunk, n_axes and number of columns."
        )


def _filled(tables: Sequence[Tensor]) -> Tensor:
    """All tables as one, short ones with zeros behind their last row."""
    if tables[0].ndim == 0:
        return torch.stack(list(tables))
    longest = max(len(table) for table in tables)
    rest = [table.new_zeros(longest - len(table), *table.shape[1:]) for table in tables]
    pairs = zip(tables, rest, strict=True)
    return torch.stack([torch.cat([table, zeros]) for table, zeros in pairs])


def _stacked_rows(members: Sequence[Parts], rngs: Sequence[torch.Generator]) -> Rows:
    """The next batch of every member."""
    batches = (part.batches.next(rng).tensors for part, rng in zip(members, rngs, strict=True))
    return tuple(torch.stack(tensors) for tensors in zip(*batches, strict=True))
