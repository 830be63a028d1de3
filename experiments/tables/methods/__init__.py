"""The methods of the suite: each is a frozen record of its settings with one verb, `fit`."""

from experiments.tables.methods.base import Machine, Method, Predict
from experiments.tables.methods.boosting import GradientBoosting
from experiments.tables.methods.deep_ensemble import DeepEnsemble
from experiments.tables.methods.forest import RandomForest
from experiments.tables.methods.gaussian_process import GaussianProcess
from experiments.tables.methods.optional import CatBoost, NGBoost
from experiments.tables.methods.ours import OurGPN

METHODS: dict[str, Method] = {
    "gpn": OurGPN(),
    "gpn-network": OurGPN(generator="affine"),
    "gradient-boosting": GradientBoosting(),
    "random-forest": RandomForest(),
    "gp-ard": GaussianProcess(),
    "deep-ensemble": DeepEnsemble(),
    "ngboost": NGBoost(),
    "catboost": CatBoost(),
}

__all__ = ["METHODS", "Machine", "Method", "Predict"]
