"""scikit-learn's gradient boosting with defaults; its uncertainty is from out-of-fold rows.

Mean: one model on all training rows. Uncertainty: five folds give every training row a prediction,
and an interval of two quantile models, that have not seen its label. Two choices are made on these
rows, so that the baseline is as good as it can be:

- intervals: prediction ± the conformal quantile of |residual| (split conformal), or the quantile
  models' interval widened by its conformal quantile (CQR, Romano et al. 2019): the one that is
  narrower on average, as both hold 95 % of these rows;
- the Gaussian of NLL and CRPS: with the residuals' standard deviation, or with one proportional to
  the width of the quantile models' interval: the one of higher likelihood.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold

from experiments.tables.data import Rows, Targets
from experiments.tables.methods.base import Machine, Predict, conformal_quantile
from experiments.tables.predictive import LEVEL, Prediction, gaussian

Ends = Float[np.ndarray, "n 3"]  # prediction, lower and upper quantile of each row
NARROWEST = 0.1  # quantile models may cross: a width counts as at least this share of the median


@dataclass(frozen=True)
class GradientBoosting:
    folds: int = 5
    max_iter: int = 100
    uses_gpu: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("sklearn",)

    def fit(self, x: Rows, y: Targets, *, seed: int, machine: Machine) -> Predict:
        unseen = np.empty((len(y), 3))
        for fit, rest in KFold(self.folds, shuffle=True, random_state=seed).split(x):
            unseen[rest] = _ends(self._models(x[fit], y[fit], seed), x[rest])
        models, uncertainty = self._models(x, y, seed), Uncertainty.learn(unseen, y)
        return lambda x_new: uncertainty.around(_ends(models, x_new))

    def _models(self, x: Rows, y: Targets, seed: int) -> list[Any]:
        options = {"max_iter": self.max_iter, "random_state": seed}
        quantiles = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
        models = [HistGradientBoostingRegressor(**options)]
        models += [
            HistGradientBoostingRegressor(loss="quantile", quantile=q, **options) for q in quantiles
        ]
        return [model.fit(x, y) for model in models]


def _ends(models: list[Any], x: Rows) -> Ends:
    return np.stack([model.predict(x) for model in models], axis=1)


@dataclass(frozen=True)
class Uncertainty:
    """What out-of-fold rows say about the predictions.

    std
        The Gaussian's standard deviation; in units of the interval's width if `by_width`.
    margin
        What is added on both sides: to the quantile models' interval if `widens`, to the prediction
        otherwise.
    """

    std: float
    by_width: bool
    margin: float
    widens: bool
    narrowest: float

    @classmethod
    def learn(cls, unseen: Ends, y: Targets) -> "Uncertainty":
        mean, low, high = unseen.T
        residual, narrowest = y - mean, NARROWEST * float(np.median(np.abs(high - low)))
        width = np.maximum(high - low, narrowest)
        flat, relative = _rms(residual), _rms(residual / width)
        by_width = np.log(relative * width).mean() < np.log(flat)
        margin = conformal_quantile(np.abs(residual), LEVEL)
        outside = conformal_quantile(np.maximum(low - y, y - high), LEVEL)
        widens = np.maximum(high - low + 2 * outside, 0).mean() < 2 * margin
        return cls(
            std=relative if by_width else flat,
            by_width=bool(by_width),
            margin=outside if widens else margin,
            widens=bool(widens),
            narrowest=narrowest,
        )

    def around(self, predicted: Ends) -> Prediction:
        mean, low, high = predicted.T
        width = np.maximum(high - low, self.narrowest)
        scale = self.std * width if self.by_width else np.full_like(mean, self.std)
        if not self.widens:
            low, high = mean, mean
        low, high = low - self.margin, np.maximum(high + self.margin, low - self.margin)
        return Prediction(gaussian(mean, scale), low, high)


def _rms(values: Targets) -> float:
    return float(np.sqrt(np.mean(values**2)))
