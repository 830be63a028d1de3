"""The checks of drift hold their level where nothing has changed, and see what has."""

import numpy as np
import pytest
from scipy.stats import norm

from gpn.estimators.ood.drift.checks import (
    Column,
    Inputs,
    Labels,
    Observed,
    Reference,
    Share,
    find_drift,
    holm,
)
from gpn.estimators.ood.thresholds import threshold_log_odds

NUMBERS = [Column("speed", slice(0, 1)), Column("heat", slice(1, 2))]
COLOUR = Column("colour", slice(2, 5), ("red", "green", "blue"))
COLUMNS = [*NUMBERS, COLOUR]
FALSE_ALARMS = 0.1
DATA_SETS = 250


def inputs(n, rng, *, shift=0.0, shares=(0.6, 0.3, 0.1)):
    numbers = rng.normal((shift, 0.0), size=(n, 2))
    rows = np.column_stack([numbers.round(1), np.eye(3)[rng.choice(3, n, p=shares)]])
    return Inputs(rows, rows)


def drift(
    rng,
    *,
    m=200,
    n=150,
    fpr=0.05,
    scores_shift=0.0,
    noise=1.0,
    level=FALSE_ALARMS,
    **more,
):
    """A whole record of m rows against n labels, by scores and labels that are normal."""
    limit = threshold_log_odds(rng.normal(size=n), fpr)
    flags = rng.normal(size=m) + scores_shift > limit
    calibration = np.sort(np.abs(rng.normal(size=n)))
    inside = calibration[min(int(np.ceil((n + 1) * 0.9)), n) - 1]
    covered = noise * np.abs(rng.normal(size=(m, 1))) <= inside
    new = Observed(flags, np.zeros(m, dtype=bool), inputs(m, rng, **more))
    reference = Reference(n, inputs(n, rng))
    labels = Labels(covered, 0.9, n, [""])
    return find_drift(new, reference, COLUMNS, labels, fpr=fpr, false_alarms=level)


@pytest.mark.parametrize("m", [40, 400])
def test_without_drift_alarms_are_as_many_as_asked_for(m):
    alarms = [drift(np.random.default_rng(seed), m=m).has_drifted for seed in range(DATA_SETS)]
    error = np.sqrt(FALSE_ALARMS * (1 - FALSE_ALARMS) / DATA_SETS)
    assert 0.02 < np.mean(alarms) < FALSE_ALARMS + 3 * error


def test_a_share_against_a_threshold_of_few_labels_is_no_binomial():
    """20 labels set a threshold that 12 % of rows may well exceed: a binomial test would alarm."""
    rates = []
    for seed in range(DATA_SETS):
        rng = np.random.default_rng(seed)
        limit = threshold_log_odds(rng.normal(size=40), 0.1)
        flags = rng.normal(size=2000) > limit
        found = find_drift(
            Observed(flags, None, None),
            Reference(40, None),
            [],
            None,
            fpr=0.1,
            false_alarms=0.05,
        )
        rates.append((found.has_drifted, flags.mean() > 0.12))
    alarms, beyond = np.mean(rates, axis=0)
    assert beyond > 0.2
    assert alarms < 0.08


def test_the_column_that_moved_is_named_and_no_other():
    named = [drift(np.random.default_rng(seed), shift=0.8, level=0.01).moved for seed in range(100)]
    assert np.mean([names == ("speed",) for names in named]) > 0.9


def test_a_category_that_moved_is_named_with_its_value():
    found = drift(np.random.default_rng(0), shares=(0.2, 0.7, 0.1), level=0.001)
    assert found.moved == ("colour",)
    change = found.columns[0].change
    assert change.startswith("green: ")
    assert change.endswith("of rows")


def test_a_column_that_widens_is_described_by_its_ends():
    rng = np.random.default_rng(0)
    x, y = (np.column_stack([f * rng.normal(size=(400, 1))]) for f in (1.0, 5.0))
    found = find_drift(
        Observed(np.zeros(400, dtype=bool), None, Inputs(y, y)),
        Reference(400, Inputs(x, x)),
        [Column("speed", slice(0, 1))],
        None,
        fpr=0.05,
        false_alarms=0.01,
    )
    assert found.moved == ("speed",)
    assert found.columns[0].change.startswith("90 % from -1.")


def test_more_flags_and_fewer_covered_labels_raise_alarms():
    flagged = drift(np.random.default_rng(0), scores_shift=1.0)
    assert [text for text in flagged.alarms if "are flagged" in text]
    uncovered = drift(np.random.default_rng(0), noise=2.0, level=0.001)
    assert [text for text in uncovered.alarms if "of the labels" in text]
    assert not uncovered.moved


def test_a_tiny_shift_of_very_many_rows_is_no_drift():
    found = drift(np.random.default_rng(0), m=100_000, n=100_000, shift=0.03)
    assert found.columns[0].column == "speed"
    assert 0.005 < found.columns[0].distance < 0.05
    assert not found.moved


def test_intervals_of_shares_hold_the_true_share():
    rng, truth = np.random.default_rng(0), 0.07
    samples = rng.random((500, 120)) < truth
    shares = [Share.of(flags, truth, 1.0) for flags in samples]
    held = np.mean([each.low <= truth <= each.high for each in shares])
    assert held >= 0.95


def test_holm_on_an_example_and_against_its_definition():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    p = norm.sf(np.random.default_rng(0).normal(size=(4000, 8)))
    assert np.mean([holm(row).min() <= 0.1 for row in p]) < 0.1 + 3 * np.sqrt(0.09 / 4000)


def test_reference_rows_of_their_own_set_what_is_expected():
    rng = np.random.default_rng(0)
    new, old = rng.random(300) < 0.3, rng.random(300) < 0.3
    reference = Reference(300, None, flags=old)
    found = find_drift(Observed(new, None, None), reference, [], None, fpr=0.05, false_alarms=0.01)
    assert found.flagged.expected == old.mean()
    assert not found.has_drifted


def test_values_that_are_new_are_an_alarm_where_no_row_of_the_fit_had_its_own():
    rng = np.random.default_rng(0)
    flags = np.zeros(200, dtype=bool)
    new_values = rng.random(200) < 0.1
    new = Observed(flags, new_values, inputs(200, rng), ["colour"])
    found = find_drift(
        new, Reference(150, inputs(150, rng)), COLUMNS, None, fpr=0.05, false_alarms=0.01
    )
    (alarm,) = found.alarms
    assert "has not seen" in alarm
    assert "'colour'" in alarm


def test_a_table_of_names_does_not_alarm_at_new_names():
    """Where each row of the fit has a value of its own, new rows have new ones, too."""
    n = 100
    rows = np.eye(n)
    columns = [Column("name", slice(0, n), tuple(map(str, range(n))))]
    new = Observed(np.zeros(50, dtype=bool), np.ones(50, dtype=bool), Inputs(0 * rows, 0 * rows))
    reference = Reference(n, Inputs(rows, rows))
    found = find_drift(new, reference, columns, None, fpr=0.05, false_alarms=0.01)
    assert not found.has_drifted
