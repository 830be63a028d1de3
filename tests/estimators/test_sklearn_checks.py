"""scikit-learn's own checks of both estimators."""

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpn import GPNConfig, MLPTrunk, TrainConfig
from gpn.estimators import GPNClassifier, GPNRegressor

pytestmark = [
    pytest.mark.filterwarnings("ignore:a fit should see unlabeled rows"),
    pytest.mark.filterwarnings("ignore:the code axes should hold most"),
    pytest.mark.filterwarnings("ignore:y should hold two values at least"),
]

SHORT = GPNConfig(
    beta=0.01,
    n_axes=16,
    n_anchors=16,
    reference_rows=128,
    anchor="independent",
    trunk=MLPTrunk(widths=(32, 32)),
    train=TrainConfig(steps=40, pool_batch=32, learning_rate=2e-2),
)


@parametrize_with_checks([GPNRegressor(SHORT), GPNClassifier(SHORT)])
def test_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
