"""Generative Posterior Networks: one network whose every code is one posterior function."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpn.core.networks.trunks import ConvTrunk, MLPTrunk, ModuleTrunk, ResNetTrunk
    from gpn.core.pools.base import SamplerPool, TensorPool, box
    from gpn.core.pools.disk import DiskPool
    from gpn.core.pools.rows import DatasetPool
    from gpn.core.posterior.base import Function, Posterior
    from gpn.core.priors.ard import ARDPrior
    from gpn.core.priors.prior import ConvPrior, MLPPrior, ModulePrior
    from gpn.core.task import Task
    from gpn.core.warnings import Diagnostic, GPNWarning
    from gpn.estimators.classifier import GPNClassifier, PosteriorClassifier
    from gpn.estimators.regressor import GPNRegressor, PosteriorRegressor
    from gpn.methods.gpn import GPN, GPNConfig
    from gpn.saving.format import load, save
    from gpn.tables.engines.scorer import Scorer
    from gpn.training.checkpoint import Checkpoint
    from gpn.training.config import TrainConfig
    from gpn.training.divergence import TrainingDiverged

__version__ = "0.2.0"

__all__ = [
    "GPN",
    "ARDPrior",
    "Checkpoint",
    "ConvPrior",
    "ConvTrunk",
    "DatasetPool",
    "Diagnostic",
    "DiskPool",
    "Function",
    "GPNClassifier",
    "GPNConfig",
    "GPNRegressor",
    "GPNWarning",
    "MLPPrior",
    "MLPTrunk",
    "ModulePrior",
    "ModuleTrunk",
    "Posterior",
    "PosteriorClassifier",
    "PosteriorRegressor",
    "ResNetTrunk",
    "SamplerPool",
    "Scorer",
    "Task",
    "TensorPool",
    "TrainConfig",
    "TrainingDiverged",
    "box",
    "load",
    "methods",
    "save",
]

# Names are imported when they are first used: `gpn --help` must not wait for torch.
MODULES = {
    "gpn.core.networks.trunks": ("ConvTrunk", "MLPTrunk", "ModuleTrunk", "ResNetTrunk"),
    "gpn.core.pools.base": ("SamplerPool", "TensorPool", "box"),
    "gpn.core.pools.disk": ("DiskPool",),
    "gpn.core.pools.rows": ("DatasetPool",),
    "gpn.core.posterior.base": ("Function", "Posterior"),
    "gpn.core.priors.ard": ("ARDPrior",),
    "gpn.core.priors.prior": ("ConvPrior", "MLPPrior", "ModulePrior"),
    "gpn.core.task": ("Task",),
    "gpn.core.warnings": ("Diagnostic", "GPNWarning"),
    "gpn.estimators.classifier": ("GPNClassifier", "PosteriorClassifier"),
    "gpn.estimators.regressor": ("GPNRegressor", "PosteriorRegressor"),
    "gpn.methods.gpn": ("GPN", "GPNConfig"),
    "gpn.saving.format": ("load", "save"),
    "gpn.tables.engines.scorer": ("Scorer",),
    "gpn.training.checkpoint": ("Checkpoint",),
    "gpn.training.config": ("TrainConfig",),
    "gpn.training.divergence": ("TrainingDiverged",),
}
PLACES = {name: module for module, names in MODULES.items() for name in names}
FOLDERS = ("core", "data", "estimators", "methods", "metrics", "saving", "tables", "training")


def __getattr__(name: str) -> Any:
    if name in PLACES:
        value = getattr(importlib.import_module(PLACES[name]), name)
        globals()[name] = value
        return value
    if name in FOLDERS:
        return importlib.import_module(f"gpn.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *FOLDERS})
