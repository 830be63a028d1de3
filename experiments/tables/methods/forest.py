"""scikit-learn's random forest with 300 trees; its uncertainty is from out-of-bag rows.

Variance: a + b · (variance of the trees' predictions), with a and b of highest likelihood on the
out-of-bag residuals. Intervals: the residuals' quantiles in units of that standard deviation.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from sklearn.ensemble import RandomForestRegressor

from experiments.tables.data import Rows, Targets
from experiments.tables.methods.base import Machine, Predict
from experiments.tables.predictive import LEVEL, Prediction, gaussian


@dataclass(frozen=True)
class RandomForest:
    trees: int = 300
    uses_gpu: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("sklearn",)

    def fit(self, x: Rows, y: Targets, *, seed: int, machine: Machine) -> Predict:
        forest = RandomForestRegressor(self.trees, n_jobs=machine.threads, random_state=seed)
        forest.fit(x, y)
        mean, variance = out_of_bag(forest, x)
        known = np.isfinite(mean)
        residual = (y - mean)[known]
        base, factor = variance_terms(residual, variance[known])
        scores = residual / np.sqrt(base + factor * variance[known])
        low, high = np.quantile(scores, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])

        def predict(x_new: Rows) -> Prediction:
            said = np.stack([tree.predict(x_new) for tree in forest.estimators_])
            centre, scale = said.mean(0), np.sqrt(base + factor * said.var(0))
            return Prediction(gaussian(centre, scale), centre + low * scale, centre + high * scale)

        return predict


def out_of_bag(
    forest: RandomForestRegressor, x: Rows
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Mean and variance over the trees that have not seen a row; NaN where every tree has."""
    sums = np.zeros((3, len(x)))
    for tree, seen in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        unseen = np.setdiff1d(np.arange(len(x)), seen)
        said = tree.predict(x[unseen])
        sums[:, unseen] += np.ones_like(said), said, said**2
    with np.errstate(invalid="ignore"):
        mean, square = sums[1:] / sums[0]
    return mean, np.maximum(square - mean**2, 0)


def variance_terms(
    residual: Float[np.ndarray, "n"], variance: Float[np.ndarray, "n"]
) -> tuple[float, float]:
    """a and b of highest likelihood of residuals ~ N(0, a + b v)."""
    total = float(np.mean(residual**2))
    unit = np.array([total, total / max(float(variance.mean()), 1e-12 * total)])

    def loss(logs: Float[np.ndarray, "2"]) -> float:
        base, factor = unit * np.exp(logs)
        spread = base + factor * variance
        return float(np.mean(np.log(spread) + residual**2 / spread))

    found = minimize(loss, np.log([0.5, 0.5]), method="Nelder-Mead", bounds=[(-12, 4)] * 2)
    base, factor = unit * np.exp(found.x)
    return float(base), float(factor)
