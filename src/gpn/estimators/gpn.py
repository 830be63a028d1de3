"""A GPN as an estimator: its options, and the configuration that they make."""

import math
from typing import Any, Self

import torch
from torch import Tensor, nn

from gpn.core.networks.trunks import ModuleTrunk, Trunk
from gpn.core.priors.evidence import LOG_NOISE_MEAN, fit_prior_by_evidence
from gpn.core.task import Task
from gpn.core.types import as_generator
from gpn.estimators.base import Array, Estimator
from gpn.estimators.nested import replaced, settings_of
from gpn.estimators.scaling import Scale
from gpn.methods.gpn import GPN, GPNConfig, GPNPosterior
from gpn.methods.gpn.defaults import resolve

MAX_TO_JUDGE = 500


class _GPN(Estimator):
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

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001
        """The constructor's options; if `deep` those of the configuration, too, as config__beta."""
        params: dict[str, Any] = super().get_params(deep=False)
        known = self.config is None or isinstance(self.config, GPNConfig)
        return params | settings_of("config", self._config()) if deep and known else params

    def set_params(self, **params: Any) -> Self:
        """Change options; config__beta=0.1 is config=config.replace(beta=0.1)."""
        inner = {name: params.pop(name) for name in list(params) if name.startswith("config__")}
        super().set_params(**params)
        if not inner:
            return self
        config = self._config()
        for name in sorted(inner, key=lambda name: name.count("__")):  # the whole before its parts
            config = replaced(config, name.split("__")[1:], inner[name])
        self.config = config
        return self

    def _config(self) -> GPNConfig:
        if self.config is None:
            return GPNConfig()
        if isinstance(self.config, GPNConfig):
            return self.config
        hint = "; try GPNConfig(**config)" if isinstance(self.config, dict) else ""
        raise TypeError(
            f"config must be a gpn.GPNConfig, or None for a choice by the data, got "
            f"{type(self.config).__name__}{hint}."
        )

    def _given(self) -> GPNConfig:
        """The configuration with the module in it."""
        config = self._config()
        if self.module is None:
            return config
        if isinstance(self.module, Trunk):
            return config.replace(trunk=self.module)
        return config.replace(trunk=ModuleTrunk(module=self.module))

    def _scale(self, X: Array, pool: Array | None) -> Scale:
        """A frozen module expects the units that it was trained with: its rows are not scaled."""
        return Scale.none() if self._given().is_frozen else super()._scale(X, pool)

    def _knows_left_out(self, task: Task) -> bool:
        """Where the fit follows the prior's exact posterior, rather than telling rows apart."""
        config = self._given()
        close = (config.codes, config.generator) == ("spectral", "affine")
        if task.is_classification or config.is_frozen or not close:
            return False
        return resolve(config, task).anchor in ("joint", "conditioned")

    def _method(self, task: Task) -> GPN:
        config = self._given()
        if self._knows_left_out(task):
            config = _likely(config, task)
        config = resolve(config, task).public()
        assert config.train is not None
        if self.device != "auto":
            config = config.replace(train=config.train.replace(device=self.device))
        return GPN(config)

    def _found(self, method: Any) -> GPNConfig:
        """The fit's own, so that β and the noise are not searched for again."""
        assert isinstance(self.posterior_, GPNPosterior)
        return self.posterior_.config


def _likely(config: GPNConfig, task: Task) -> GPNConfig:
    """The configuration with the likeliest prior and noise, where it leaves them open.

    One value, which is 0 once scaled, is likeliest under the smallest prior and without noise, so
    that it decides nothing: the noise is then what it is expected to be before labels are seen.
    """
    if not bool((task.y_obs != task.y_obs[0]).any()):
        return config.replace(noise_std=config.noise_std or math.exp(LOG_NOISE_MEAN / 2))
    if config.prior is not None:
        return config
    prior, noise_std = fit_prior_by_evidence(*_some(task))
    return config.replace(prior=prior, noise_std=config.noise_std or noise_std)


def _some(task: Task) -> tuple[Tensor, Tensor]:
    """At most 500 labels, enough to judge a prior by."""
    picked = torch.randperm(len(task.x_obs), generator=as_generator(0))[:MAX_TO_JUDGE]
    return task.x_obs[picked], task.y_obs[picked]
