"""The threshold of the detector: the share of known rows that exceeds it."""

import numpy as np
import pytest
from scipy.stats import beta

from gpn import GPNClassifier, GPNConfig, GPNRegressor, TrainConfig
from gpn.estimators.ood.detector import Detector
from gpn.estimators.ood.thresholds import (
    ExtrapolatedThresholdWarning,
    false_alarm_std,
    threshold_log_odds,
)

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n", [20, 50, 200])
@pytest.mark.parametrize("fpr", [0.05, 0.01, 0.001])
def test_a_tail_that_is_exponential_keeps_the_promise_at_any_share(n: int, fpr: float) -> None:
    """On average over data sets, also where the labels cannot show so small a share."""
    rng = np.random.default_rng(n)
    beyond = [np.exp(-threshold_log_odds(rng.exponential(size=n), fpr)) for _ in range(8000)]
    assert np.mean(beyond) == pytest.approx(fpr, rel=0.35)


@pytest.mark.slow
def test_at_20_labels_few_data_sets_have_twice_as_many_false_alarms() -> None:
    """The share of flagged rows is Beta(21 fpr, 21 (1 − fpr)): beyond 10 % in one of eight sets."""
    sets, rates = 200, []
    for seed in range(sets):
        rng = np.random.default_rng([20, seed])
        rows = rng.normal(size=(20 + 400, 4)) @ rng.normal(size=(4, 6))
        rows += 0.3 * rng.normal(size=rows.shape)
        detector = Detector.fit(rows[:20], None, seed)
        limit = threshold_log_odds(detector.reference, 0.05)
        rates.append((detector.log_odds(rows[20:]) > limit).mean())
    beyond = beta.sf(0.1, 21 * 0.05, 21 * 0.95)
    print(f"{np.mean(rates):.3f} on average, {np.mean(np.array(rates) > 0.1):.3f} beyond 10 %")
    assert np.mean(np.array(rates) > 0.1) < beyond + 3 * np.sqrt(beyond * (1 - beyond) / sets)


@pytest.mark.parametrize(("n", "sets"), [(20, 16), (50, 12), (200, 6)])
def test_false_alarms_are_as_many_as_asked_for(n: int, sets: int) -> None:
    """Over data sets of different kinds: 5 ± 2.5 % here, 5 ± 1 % with more of them."""
    rates = []
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(n + 500, 4)) @ rng.normal(size=(4, 6))
        rows += 0.3 * rng.normal(size=rows.shape)
        detector = Detector.fit(rows[:n], None, seed)
        limit = threshold_log_odds(detector.reference, 0.05)
        rates.append((detector.log_odds(rows[n:]) > limit).mean())
    assert abs(np.mean(rates) - 0.05) < 0.025
    assert np.std(rates) < 2 * false_alarm_std(n, 0.05)


def test_shares_that_labels_cannot_show_are_extrapolated_with_a_warning() -> None:
    x = RNG.normal(size=(40, 3))
    model = GPNRegressor(random_state=0, mean=None).fit(x, x[:, 0])
    with pytest.warns(ExtrapolatedThresholdWarning, match="1/41"):
        small = model.threshold(0.001)
    assert model.threshold(0.1) < model.threshold(0.05) < small < 1


def test_all_labels_set_the_threshold_and_all_are_learnt() -> None:
    x = RNG.normal(size=(60, 3))
    model = GPNRegressor(random_state=0, mean=None).fit(x, x[:, 0])
    assert len(model.reference_scores_) == 60
    assert len(model.posterior_.generator.landmarks) == 60


@pytest.mark.parametrize("kind", [GPNRegressor, GPNClassifier])
def test_few_labels_have_no_detector(kind: type) -> None:
    x = RNG.normal(size=(6, 2))
    model = kind(GPNConfig(train=TrainConfig(steps=3)), random_state=0)
    assert model.fit(x, [0, 1, 0, 1, 0, 1], 2 * x).detector_ is None
    assert np.isfinite(model.ood_score(x)).all()
