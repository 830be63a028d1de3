"""Generative Posterior Networks: one network whose every code is one posterior function."""

from gpn.core.networks.trunks import ConvTrunk, MLPTrunk, ModuleTrunk
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
