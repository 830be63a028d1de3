"""The GPN as users get it: the estimator with its defaults, without a pool."""

import warnings
from dataclasses import dataclass
from typing import ClassVar

import gpn
from experiments.tables.data import Rows, Targets
from experiments.tables.methods.base import Machine, Predict
from experiments.tables.predictive import Prediction, prediction


@dataclass(frozen=True)
class OurGPN:
    """generator: None is the default of `GPNRegressor`, "affine" the trained network."""

    generator: str | None = None
    uses_gpu: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("sklearn",)

    def fit(self, x: Rows, y: Targets, *, seed: int, machine: Machine) -> Predict:
        config = None if self.generator is None else gpn.GPNConfig(generator=self.generator)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the pool, which this suite does not have
            model = gpn.GPNRegressor(config, random_state=seed).fit(x, y)

        def predict(x_new: Rows) -> Prediction:
            return prediction(model.predict_distribution(x_new))

        return predict
