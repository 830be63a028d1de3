"""A row counts as often as its weight says."""

import numpy as np
import pytest
from sklearn.base import clone

from gpn import GPNRegressor, TrainConfig
from gpn.estimators.validation import repeats
from tests.estimators.test_estimators import POOL, SHORT, X, Y


def test_a_weight_is_a_number_of_rows() -> None:
    quick = GPNRegressor(SHORT.replace(train=TrainConfig(steps=30)), random_state=0)
    twice = np.where(np.arange(120) < 60, 2, 0)
    weighted = clone(quick).fit(X, Y, POOL, sample_weight=twice).predict(POOL)
    doubled = np.concatenate([X[:60]] * 2), np.concatenate([Y[:60]] * 2)
    np.testing.assert_allclose(weighted, clone(quick).fit(*doubled, POOL).predict(POOL), rtol=1e-9)
    with pytest.raises(ValueError, match="at least one non-zero number"):
        clone(quick).fit(X, Y, POOL, sample_weight=np.zeros(120))


def test_fractional_weights_are_rounded_in_proportion() -> None:
    weights = np.linspace(0.1, 2.1, 1000)
    counts = np.bincount(repeats(weights, np.zeros((1000, 1)), np.random.RandomState(0)))
    assert abs(counts.sum() - 1000) <= 1
    share = weights[:500].sum() / weights.sum()
    assert counts[:500].sum() / counts.sum() == pytest.approx(share, abs=0.01)
