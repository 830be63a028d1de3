"""The threshold of the detector: the share of known rows that exceeds it."""

import numpy as np
import pytest
from scipy.stats import beta

from gpn import GPNClassifier, GPNConfig, GPNRegressor, TrainConfig
from gpn.estimators.ood.detector import MEMBER_NOISE, PAIRS, PARTS, Detector, like_new_rows
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


@pytest.mark.parametrize("fpr", [0.2, 0.05, 0.01])
@pytest.mark.parametrize("kind", ["normal", "logistic", "exponential"])
def test_noise_that_new_rows_do_not_have_is_taken_from_labels_scores(kind: str, fpr: float) -> None:
    """The means of four members against those of ten: without it alarms are too few."""
    rng = np.random.default_rng(3)
    rows = getattr(rng, kind)(size=200_000)
    members = rows + 0.8 * rows.std() * rng.normal(size=(10, len(rows)))
    four, ten = members[:4].mean(0), members.mean(0)
    noise = 0.8**2 * rows.var() * (1 / 4 - 1 / 10)
    scale = np.sqrt(noise / MEMBER_NOISE / members[:4].var(0, ddof=1).mean())
    drawn = like_new_rows(four, scale * members[:4])
    before, after = (np.mean(ten > np.quantile(each, 1 - fpr)) for each in (four, drawn))
    assert before < 0.96 * fpr
    assert after == pytest.approx(fpr, rel=0.1)


def test_labels_keep_their_order_whatever_the_members_say() -> None:
    score = np.sort(np.concatenate([RNG.normal(size=50), [40.0]]))
    for spread in (0.0, 1.0, 1e6):
        assert (np.diff(like_new_rows(score, spread * RNG.normal(size=(4, 51)))) > 0).all()
    np.testing.assert_array_equal(like_new_rows(np.ones(9), RNG.normal(size=(4, 9))), np.ones(9))


def test_rows_scored_by_members_that_have_not_seen_a_part_are_exchangeable_with_it() -> None:
    """The share that exceeds the highest of its n labels is 1/(n + 1), on average over sets."""
    rates = []
    for seed in range(24):
        rows = np.random.default_rng([5, seed]).normal(size=(20 + 400, 3))
        found = Detector.fit(rows[:20], None, seed)
        for own in range(PARTS):
            scores = [
                m.log_odds for m, pair in zip(found.members, PAIRS, strict=True) if own in pair
            ]
            scaled = (rows[20:] - found.shift) / found.scale
            of_labels = np.mean(
                [score(found.labels[found.part == own]) for score in scores], axis=0
            )
            new = np.mean([score(scaled) for score in scores], axis=0)
            rates.append(np.mean(new > of_labels.max()))
    assert np.mean(rates) == pytest.approx(1 / 5, abs=0.045)


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
