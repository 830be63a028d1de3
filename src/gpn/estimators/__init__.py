"""The scikit-learn face: estimators translate between arrays and posteriors, they compute nothing.

    model = GPNRegressor().fit(X, y, X_unlabeled=pool)
    low, high = model.predict_interval(X_new)
    unknown = model.is_ood(X_new)

Rows are scaled here, column by column; what comes back is in the units of the data.
"""

from gpn.estimators.classifier import GPNClassifier, PosteriorClassifier
from gpn.estimators.regressor import GPNRegressor, OneValueWarning, PosteriorRegressor
from gpn.estimators.sentinels import SentinelWarning
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
