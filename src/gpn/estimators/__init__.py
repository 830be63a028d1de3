"""The scikit-learn face: estimators translate between arrays and posteriors, they compute nothing.

    model = GPNRegressor().fit(X, y, X_unlabeled=pool)
    low, high = model.predict_interval(X_new)
    strange = model.is_ood(X_new)

Rows are scaled here, column by column; what comes back is in the units of the data.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpn.core.likely_prior import likely_prior
from gpn.core.networks import ModuleTrunk, Trunk
from gpn.core.task import Task
from gpn.core.types import as_generator
from gpn.estimators.base import Array, MadeUpPoolWarning, to_numpy
from gpn.estimators.classification import Classifier
from gpn.estimators.regression import Regressor
from gpn.methods import registry
from gpn.methods.gpn import GPN, GPNConfig, GPNPosterior
from gpn.methods.gpn.frozen import is_frozen
from gpn.scaling import Scale

__all__ = [
    "GPNClassifier",
    "GPNRegressor",
    "MadeUpPoolWarning",
    "PosteriorClassifier",
    "PosteriorRegressor",
]


MOST_TO_JUDGE = 500


class _GPN:
    """Builds a GPN from the constructor's options."""

    def __init__(
        self,
        config: GPNConfig | None = None,
        *,
        module: nn.Module | Trunk | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.config = config
        self.module = module
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _given(self) -> GPNConfig:
        """The configuration with the module in it."""
        config = GPNConfig() if self.config is None else self.config
        if self.module is None:
            return config
        if isinstance(self.module, Trunk):
            return config.replace(trunk=self.module)
        return config.replace(trunk=ModuleTrunk(module=self.module))

    def _scale(self, X: Any) -> Scale:
        """A frozen module expects the units that it was trained with: its rows are not scaled."""
        return Scale.none() if is_frozen(self._given()) else Scale.of(X)

    def _knows_left_out(self, task: Task) -> bool:
        """Where the fit follows the prior's exact posterior, rather than telling rows apart."""
        config = self._given()
        close = (config.codes, config.generator) == ("spectral", "affine")
        if task.is_classification or is_frozen(config) or not close:
            return False
        return config.resolved(task).anchor in ("joint", "conditioned")

    def _method(self, task: Task) -> GPN:
        config = self._given()
        if config.prior is None and self._knows_left_out(task):
            prior, noise_std = likely_prior(*_some(task))
            config = config.replace(prior=prior, noise_std=config.noise_std or noise_std)
        config = config.resolved(task)
        assert config.train is not None
        if self.device != "auto":
            config = config.replace(train=config.train.replace(device=self.device))
        return GPN(config)


def _some(task: Task) -> tuple[Tensor, Tensor]:
    """At most 500 labels, enough to judge a prior by."""
    picked = torch.randperm(len(task.x_obs), generator=as_generator(0))[:MOST_TO_JUDGE]
    return task.x_obs[picked], task.y_obs[picked]


class GPNRegressor(_GPN, Regressor):
    """A Generative Posterior Network for numbers.

    config: everything that can be set of a GPN; None chooses from the data, a prior's smoothness
    and the noise of labels by marginal likelihood where the fit follows a posterior. module: your
    own trunk, a torch module from rows to features, or one of gpn's trunks; if its parameters want
    no gradient it is used as it is, on rows as they are given, and only what follows it is trained.
    device: "auto" takes a GPU if there is one. verbose: a progress bar.
    """

    def _left_out_scores(self, x: Tensor) -> Array:
        """(v₋ + max(0, Var[g] − v))^{1/2} at the labels `x`, with v and v₋ of the exact posterior:
        where the network has more variance than that, so it has at new rows."""
        assert isinstance(self.posterior_, GPNPosterior)
        story = self.posterior_.report
        exact, left_out = (
            self.n_targets_ * to_numpy(story[name].double())  # of every target
            for name in ("label_variance", "left_out_variance")
        )
        return np.sqrt(left_out + (self._scores(x) ** 2 - exact).clip(0))


class GPNClassifier(_GPN, Classifier):
    """A Generative Posterior Network for classes; the options are those of `GPNRegressor`."""


class _Named:
    """Builds any method by its name."""

    def __init__(
        self,
        method: str = "gpn",
        *,
        settings: dict[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.settings = settings
        self.random_state = random_state
        self.verbose = verbose

    def _method(self, task: Task) -> Any:
        return registry.get(self.method, **(self.settings or {}))


class PosteriorRegressor(_Named, Regressor):
    """Any method of `gpn.methods` for numbers: `method` names it, `settings` changes its config."""


class PosteriorClassifier(_Named, Classifier):
    """Any method of `gpn.methods` for classes."""
