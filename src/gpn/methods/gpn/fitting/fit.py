"""Fitting a GPN: choose what is open, build the training problem, train it."""

from torch import Tensor

from gpn.core.task import Task
from gpn.core.types import Rng
from gpn.core.warnings import warn_doubtful
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.fit_report import WARNINGS
from gpn.methods.gpn.fitting.build import build
from gpn.methods.gpn.fitting.closed_form import fit_closed_form
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.fitting.select import select
from gpn.methods.gpn.fitting.temperature import calibrate, hold_out
from gpn.methods.gpn.posterior import GPNPosterior
from gpn.training.checkpoint import CheckpointLike


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
        weights: Tensor | None = None,
    ) -> GPNPosterior:
        """Train one generator on the task; `progress` None shows a bar on a terminal.

        With `checkpoint`, a path or a `gpn.Checkpoint`, the fit is saved to that file while it
        runs; killed and called again, it resumes and reaches the same weights. `weights` of labels,
        ``(n,)`` and positive, are for numbers in closed form: a label of weight c has the noise
        variance σ²/c, as the mean of c labels.
        """
        start = FitContext.start(self.config, task, rng, progress=progress, checkpoint=checkpoint)
        with start as context:
            if context.config.generator == "closed-form":
                return fit_closed_form(context, weights)
            if weights is not None:
                raise ValueError(
                    "weights of labels must go with GPNConfig(generator='closed-form'), got "
                    f"generator={context.config.generator!r}; leave them out."
                )
            context, held_out = hold_out(select(context))
            problem = build(context)
            history = problem.train()
            problem = problem if held_out is None else calibrate(problem, held_out)
            posterior = problem.posterior(history)
        warn_doubtful(posterior.checks, WARNINGS)
        return posterior
