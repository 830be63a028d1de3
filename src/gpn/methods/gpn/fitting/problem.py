"""A GPN for one task, ready to train: objective and batches, then the loop, then the posterior."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from gpn.core.networks.trunks import ModuleTrunk
from gpn.core.pools.prefetch import closing_streams
from gpn.core.priors.prior import ModulePrior
from gpn.core.types import as_generator
from gpn.methods.gpn.fit_report import FitReport
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.model.batch import Batch, Batches
from gpn.methods.gpn.model.generator import Generator
from gpn.methods.gpn.model.objectives import Objective
from gpn.methods.gpn.posterior import GPNPosterior, make_posterior
from gpn.training.cuda_graphs import TrainStep
from gpn.training.distributed import ProcessGroup
from gpn.training.divergence import TrainingDiverged
from gpn.training.loop import train
from gpn.training.state import History
from gpn.training.torch_state import seeded_global_rng


@dataclass(frozen=True)
class TrainingProblem:
    """An objective and the batches that feed it; `report` is what building them found out."""

    context: FitContext
    objective: Objective
    batches: Batches
    report: FitReport

    @cached_property
    def graph_safe(self) -> bool:
        """Whether a step can be a CUDA graph: not with a user's module, which may do anything, nor
        where processes exchange rows."""
        config = self.context.config
        own_module = isinstance(config.trunk, ModuleTrunk) or isinstance(config.prior, ModulePrior)
        alone = self.context.group is None
        return self.objective.graph_safe and alone and not own_module

    def step(self, rng: torch.Generator) -> TrainStep:
        """The next batch, and the objective's terms on it."""
        return TrainStep(
            lambda: self.batches.next(rng).tensors,
            lambda *tensors: self.objective.terms(Batch(*tensors), rng),
            [rng],
            self.graph_safe,
        )

    def train(self) -> History:
        """Run the loop; where it diverges, the error carries the posterior of the best state."""
        context, objective = self.context, self.objective
        rng = as_generator(context.seeds, context.device)
        with (
            seeded_global_rng(context.seeds) as global_rngs,
            closing_streams(self.batches.streams),
            rows_gathered(objective.generator, context.group),
        ):
            try:
                return train(
                    objective,
                    self.step(rng),
                    context.config.train,
                    context.on_progress,
                    undecayed=objective.undecayed,
                    streams=[rng, *self.batches.streams, *global_rngs],
                    session=context.session,
                    group=context.group,
                )
            except TrainingDiverged as error:
                error.posterior = self.posterior()
                raise

    def posterior(self, history: History | None = None) -> GPNPosterior:
        """What was trained, with all that the fit found out; a function of the user's rows."""
        frozen, found = self.context.frozen, self.context.config
        if frozen is None:
            return self.posterior_of_inputs(history)
        generator = self.objective.generator
        generator.features = frozen.features
        config = frozen.config.replace(beta=found.beta, noise_std=found.noise_std)
        return make_posterior(generator, frozen.signature, config, self.fit_report(history))

    def posterior_of_inputs(self, history: History | None = None) -> GPNPosterior:
        """The same as a function of the context's inputs: features, where the trunk is frozen."""
        context, generator = self.context, self.objective.generator
        report = self.fit_report(history)
        return make_posterior(generator, context.task.signature, context.config, report)

    def fit_report(self, history: History | None) -> FitReport:
        """What building and training found out."""
        codes = self.objective.code_moments()
        added = max(self.report.added_jitter, self.objective.anchor_term.added_jitter)
        return replace(self.report, history=history, codes=codes, added_jitter=added)


@contextmanager
def rows_gathered(generator: Generator, group: ProcessGroup | None) -> Iterator[None]:
    """The processes share out the generator's rows while it trains."""
    if group is None:
        yield
        return
    generator.row_gather = group.gather_rows
    try:
        yield
    finally:
        del generator.row_gather
    for buffer in generator.buffers():  # running means of batch norm are those of a process's rows
        buffer.copy_(group.broadcast(buffer))
