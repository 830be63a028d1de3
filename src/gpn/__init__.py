"""Generative Posterior Networks: one network whose every code is one posterior function."""

from gpn import methods
from gpn.core.checkpoint import Checkpoint
from gpn.core.diagnostic import Diagnostic, GPNWarning
from gpn.core.disk import DiskPool
from gpn.core.divergence import TrainingDiverged
from gpn.core.networks import ConvTrunk, MLPTrunk, ModuleTrunk
from gpn.core.pool import DatasetPool, SamplerPool, TensorPool, box
from gpn.core.posterior import Function, Posterior
from gpn.core.prior import ConvPrior, MLPPrior, ModulePrior
from gpn.core.task import Task
from gpn.core.train import TrainConfig
from gpn.estimators import (
    GPNClassifier,
    GPNRegressor,
    PosteriorClassifier,
    PosteriorRegressor,
)
from gpn.methods.gpn import GPN, GPNConfig
from gpn.saving import load, save

__version__ = "0.1.0.dev0"

__all__ = [
    "GPN",
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
    "SamplerPool",
    "Task",
    "TensorPool",
    "TrainConfig",
    "TrainingDiverged",
    "box",
    "load",
    "methods",
    "save",
]
