"""How the options of `GPNRegressor` and `GPNClassifier` make a GPN."""

import dataclasses
import math
from typing import Any, Self, TypeVar

import torch
from torch import nn

from gpn.core.config import Config
from gpn.core.networks.trunks import ModuleTrunk, Trunk
from gpn.core.priors.evidence import LOG_NOISE_MEAN, fit_prior_by_evidence
from gpn.core.task import Task
from gpn.core.types import as_generator
from gpn.estimators.base import Estimator
from gpn.methods.gpn import GPN, GPNConfig
from gpn.methods.gpn.defaults import preferred_dtype, resolve

C = TypeVar("C", bound=Config)

MAX_EVIDENCE_LABELS = 500


class GPNOptions(Estimator):
    """The constructor's options, and the GPN that they make for a task."""

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
        """The constructor's options; with `deep`, also the configuration's, as config__beta."""
        params: dict[str, Any] = super().get_params(deep=False)
        valid = self.config is None or isinstance(self.config, GPNConfig)
        return params | nested_settings("config", self._config()) if deep and valid else params

    def set_params(self, **params: Any) -> Self:
        """Change options; config__beta=0.1 is config=config.replace(beta=0.1)."""
        inner = {name: params.pop(name) for name in list(params) if name.startswith("config__")}
        super().set_params(**params)
        if not inner:
            return self
        config = self._config()
        for name in sorted(inner, key=lambda name: name.count("__")):  # outer settings first
            config = with_setting(config, name.split("__")[1:], inner[name])
        if config != self._config():  # what get_params says, set again, changes nothing
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

    def _config_with_module(self) -> GPNConfig:
        config = self._config()
        if self.module is None:
            return config
        if isinstance(self.module, Trunk):
            return config.replace(trunk=self.module)
        return config.replace(trunk=ModuleTrunk(module=self.module))

    @property
    def _scales_inputs(self) -> bool:
        """A frozen module expects the units that it was trained with: its rows are not scaled."""
        return not self._config_with_module().is_frozen

    @property
    def _has_gate(self) -> bool:
        return True

    def _dtype(self, n_labels: int, input_shape: tuple[int, ...]) -> torch.dtype:
        return preferred_dtype(n_labels, input_shape)

    def _has_loo(self, task: Task) -> bool:
        """Whether the fit approximates the prior's exact posterior."""
        config = self._config_with_module()
        if task.is_classification or config.is_frozen or not config.is_affine_spectral:
            return False
        return resolve(config, task).anchor in ("joint", "conditioned")

    def _method(self, task: Task) -> GPN:
        config = self._config_with_module()
        if self._has_loo(task):
            config = with_evidence(config, task)
        config = resolve(config, task).public()
        assert config.train is not None
        if self.device != "auto":
            config = config.replace(train=config.train.replace(device=self.device))
        return GPN(config)


def with_evidence(config: GPNConfig, task: Task) -> GPNConfig:
    """The configuration with prior and noise by marginal likelihood, where it leaves them open.

    Labels of one value, 0 once scaled, are likeliest under the smallest prior without noise, and
    decide nothing: the noise is then its prior expectation.
    """
    if not bool((task.y_obs != task.y_obs[0]).any()):
        return config.replace(noise_std=config.noise_std or math.exp(LOG_NOISE_MEAN / 2))
    if config.prior is not None:
        return config
    rows = torch.randperm(len(task.x_obs), generator=as_generator(0))[:MAX_EVIDENCE_LABELS]
    prior, noise_std = fit_prior_by_evidence(task.x_obs[rows], task.y_obs[rows])
    return config.replace(prior=prior, noise_std=config.noise_std or noise_std)


def nested_settings(name: str, config: Config) -> dict[str, Any]:
    """Every setting of `config`, and of the configurations within it, by its full name."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value, full_name = getattr(config, field.name), f"{name}__{field.name}"
        found[full_name] = value
        if isinstance(value, Config):
            found |= nested_settings(full_name, value)
    return found


def with_setting(config: C, path: list[str], value: Any) -> C:
    """The configuration with one setting changed, which may be in a configuration within it."""
    first, *rest = path
    if not rest:
        try:
            return config.replace(**{first: value})
        except TypeError as error:  # scikit-learn's searches expect a ValueError
            raise ValueError(str(error)) from error
    inner = getattr(config, first, None)
    if not isinstance(inner, Config):
        raise ValueError(
            f"{first} must be a configuration before its {'__'.join(rest)} can be set, got "
            f"{inner!r:.60}; give {type(config).__name__} one, {first}=..., and set it there."
        )
    return config.replace(**{first: with_setting(inner, rest, value)})
