"""scikit-learn estimators: they translate between arrays and posteriors, in the data's units.

model = GPNRegressor().fit(X, y, X_unlabeled=pool)
low, high = model.predict_interval(X_new)
unknown = model.is_ood(X_new)
"""

import warnings
from typing import Any

from gpn.estimators.classifier import GPNClassifier, PosteriorClassifier
from gpn.estimators.regressor import GPNRegressor, OneValueWarning, PosteriorRegressor
from gpn.estimators.scaling import SentinelWarning
from gpn.estimators.validation import SyntheticPoolWarning

__all__ = [
    "GPNClassifier",
    "GPNRegressor",
    "OneValueWarning",
    "PosteriorClassifier",
    "PosteriorRegressor",
    "SentinelWarning",
    "SyntheticPoolWarning",
]

RENAMED = {"MadeUpPoolWarning": SyntheticPoolWarning, "OutlierWarning": SentinelWarning}


def __getattr__(name: str) -> Any:
    if name not in RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = RENAMED[name]
    warnings.warn(
        f"gpn.estimators.{name} is now {new.__name__}; use that name.",
        DeprecationWarning,
        stacklevel=2,
    )
    return new
