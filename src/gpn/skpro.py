"""`GPNRegressor` as a probabilistic regressor of skpro. Needs `pip install gpn[skpro]`.

from gpn.skpro import ProbabilisticGPN

model = ProbabilisticGPN().fit(X, y)
model.predict_proba(X_new).cdf(y_new), model.predict_interval(X_new, coverage=[0.5, 0.95])
"""

from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from skpro.distributions.base import BaseDistribution
from skpro.regression.base import BaseProbaRegressor

from gpn.estimators.intervals.distribution import LabelDistribution
from gpn.estimators.regressor import GPNRegressor

__all__ = ["ProbabilisticGPN", "RowDistribution"]


class RowDistribution(BaseDistribution):
    """`LabelDistribution` with skpro's index and columns: a Student's t, or a normal elsewhere.

    known · (location + scale · t_freedom) + (1 − known) · N(location, other²) at each entry.

    >>> from gpn.skpro import RowDistribution
    >>> table = RowDistribution(location=[[0.0], [2.0]], scale=1.0, freedom=5.0)
    >>> table.ppf(0.5).to_numpy().ravel().tolist()
    [0.0, 2.0]
    """

    _tags = {  # noqa: RUF012  # skpro reads a plain dict
        "authors": ["gpn"],
        "capabilities:approx": ["energy", "pdfnorm"],
        "capabilities:exact": ["mean", "var", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "parametric",
        "broadcast_init": "on",
    }

    def __init__(
        self,
        location: Any,
        scale: Any,
        freedom: Any = 10.0,
        known: Any = 1.0,
        other: Any = 1.0,
        index: Any = None,
        columns: Any = None,
    ) -> None:
        self.location, self.scale, self.freedom = location, scale, freedom
        self.known, self.other = known, other
        super().__init__(index=index, columns=columns)

    @classmethod
    def of(cls, found: LabelDistribution, index: Any, columns: Any) -> "RowDistribution":
        """One row for each row of X, one column for each target."""
        shape = (len(index), len(columns))
        whole = found.location.shape  # without an axis of targets where there is one
        settings = {
            field.name: np.broadcast_to(value, whole).astype(np.float64).reshape(shape)
            for field in fields(found)
            if (value := getattr(found, field.name)) is not None
        }
        return cls(**settings, index=index, columns=columns)

    @property
    def _labels(self) -> LabelDistribution:
        values = (np.asarray(self._bc_params[field.name]) for field in fields(LabelDistribution))
        return LabelDistribution(*values)

    def _mean(self) -> Any:
        return self._labels.mean()

    def _var(self) -> Any:
        return self._labels.std() ** 2

    def _pdf(self, x: Any) -> Any:
        return self._labels.pdf(x)

    def _log_pdf(self, x: Any) -> Any:
        return self._labels.logpdf(x)

    def _cdf(self, x: Any) -> Any:
        return self._labels.cdf(x)

    def _ppf(self, p: Any) -> Any:
        return self._labels.ppf(p)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings that skpro's tests build the distribution with."""
        table = {"location": [[0.0, 1.0], [2.0, 3.0]], "scale": 2.0, "freedom": 5.0}
        mixed = {**table, "known": 0.7, "other": 4.0}
        one = {"location": 1.0, "scale": 0.5, "freedom": 8.0, "known": 0.9, "other": 2.0}
        return [table, mixed, one]


class ProbabilisticGPN(BaseProbaRegressor):
    """A `GPNRegressor` that returns skpro's distributions, intervals, quantiles and variances.

    estimator
        The `GPNRegressor`, or another regressor of gpn, that is cloned and fitted; None is
        `GPNRegressor(random_state=0)`. The fitted one is `estimator_`.

    >>> from sklearn.datasets import load_diabetes
    >>> from gpn.skpro import ProbabilisticGPN
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = ProbabilisticGPN().fit(X[:60], y[:60])
    >>> model.predict_interval(X[60:62], coverage=0.9).shape
    (2, 2)
    """

    _tags = {  # noqa: RUF012  # skpro reads a plain dict
        "authors": ["gpn"],
        "capability:multioutput": True,
        "capability:missing": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> "ProbabilisticGPN":
        model = GPNRegressor(random_state=0) if self.estimator is None else clone(self.estimator)
        values = y.to_numpy()
        self.estimator_ = model.fit(_named(X), values[:, 0] if values.shape[1] == 1 else values)
        self._columns = y.columns
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        mean = self.estimator_.predict(_named(X))
        return pd.DataFrame(mean.reshape(len(X), -1), index=X.index, columns=self._columns)

    def _predict_proba(self, X: pd.DataFrame) -> RowDistribution:
        found = self.estimator_.predict_distribution(_named(X))
        return RowDistribution.of(found, X.index, self._columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings that skpro's tests build the regressor with."""
        return [{"estimator": GPNRegressor(mean=None, random_state=seed)} for seed in (0, 1)]


def _named(X: pd.DataFrame) -> pd.DataFrame:
    """Columns by text, as scikit-learn wants them; skpro may number them."""
    return X.set_axis([str(name) for name in X.columns], axis=1)
