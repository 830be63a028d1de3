"""`model.drift` of fitted estimators: what moved, labels that come late, what cannot be known."""

import json

import numpy as np
import pandas as pd
import pytest

import gpn
from gpn.estimators.ood.drift.rows import NO_LABELS, NO_NOISE, NO_ROWS, NO_SETS

FEW = {"trunk": gpn.MLPTrunk(widths=(4,)), "train": gpn.TrainConfig(steps=5, device="cpu")}


def frame(n, seed, *, shift=0.0):
    rng = np.random.default_rng(seed)
    made = pd.DataFrame({"speed": rng.normal(size=n) + shift, "heat": np.exp(rng.normal(size=n))})
    return made.assign(colour=rng.choice(["red", "blue"], n))


def target(rows, seed):
    noise = np.random.default_rng(seed).normal(scale=0.2, size=len(rows))
    return (2 * rows["speed"] + (rows["colour"] == "red")).to_numpy() + noise


@pytest.fixture(scope="module")
def regressor():
    rows = frame(100, 0)
    return gpn.GPNRegressor(mean=None, random_state=0).fit(rows, target(rows, 0), frame(50, 1))


@pytest.fixture(scope="module")
def classifier():
    rows = frame(100, 0)[["speed", "heat"]]
    y = np.where(rows["speed"] > 0, "fast", "slow")
    return gpn.GPNClassifier(mean=None, random_state=0).fit(rows, y, rows)


def test_rows_like_those_of_the_fit_are_no_drift(regressor):
    rows = frame(300, 2)
    found = regressor.drift(rows, target(rows, 2))
    assert not found.has_drifted
    assert found.sentences()[0].startswith("no drift in 300 rows")
    assert {each.column for each in found.columns} == {"speed", "heat", "colour"}


def test_a_column_that_moves_is_named_in_the_units_of_the_data(regressor):
    rows = frame(300, 2)
    found = regressor.drift(rows.assign(heat=rows["heat"] + 5))
    assert found.moved == ("heat",)
    before, after = found.columns[0].change.removeprefix("median ").split(" → ")
    known = np.median(frame(100, 0)["heat"])
    np.testing.assert_allclose(
        [float(before), float(after)], [known, rows["heat"].median() + 5], rtol=1e-3
    )


def test_labels_that_no_longer_follow_are_an_alarm(regressor):
    rows = frame(200, 2)
    y = target(rows, 2)
    y[100:] = np.nan
    assert regressor.drift(rows, y).coverage[0].rows == 100
    assert not regressor.drift(rows, y).has_drifted
    found = regressor.drift(rows, y + 2)
    assert found.has_drifted
    assert "of the labels lie where 95% should" in found.alarms[0]


def test_labels_of_which_none_is_known_are_said(regressor):
    rows = frame(50, 2)
    assert regressor.drift(rows, np.full(50, np.nan)).unknown == (NO_LABELS,)
    with pytest.raises(ValueError, match="must have a label, or NaN, for each of the 50 rows"):
        regressor.drift(rows, np.zeros(49))


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, np.nan])
def test_false_alarms_are_a_probability(regressor, share):
    with pytest.raises(ValueError, match="false_alarms must lie strictly between 0 and 1"):
        regressor.drift(frame(50, 2), false_alarms=share)


def test_reference_rows_replace_those_of_the_fit(regressor):
    moved, later = frame(200, 2, shift=2.0), frame(200, 3, shift=2.0)
    assert "speed" in regressor.drift(later).moved
    assert not regressor.drift(later, X_reference=moved).has_drifted


def test_a_new_value_of_a_category_is_an_alarm_that_names_the_column(regressor):
    rows = frame(200, 2)
    rows.loc[::5, "colour"] = "green"
    with pytest.warns(gpn.GPNWarning, match="has not seen"):
        found = regressor.drift(rows)
    assert found.new_values.count == 40
    assert any("'colour'" in text and "has not seen" in text for text in found.alarms)


def test_classes_need_a_calibration(classifier):
    rows = frame(200, 2)[["speed", "heat"]]
    y = np.where(rows["speed"] > 0, "fast", "slow")
    assert classifier.drift(rows, y).unknown == (NO_SETS,)
    calibrated = classifier.calibrate(rows, y)
    others = frame(200, 3)[["speed", "heat"]]
    right = np.where(others["speed"] > 0, "fast", "slow").astype(object)
    right[:50] = None
    assert calibrated.drift(others, right).coverage[0].rows == 150
    swapped = np.where(others["speed"] > 0, "slow", "fast")
    assert "of the labels" in calibrated.drift(others, swapped).alarms[0]


def test_several_targets_are_checked_one_by_one():
    rows = frame(60, 0)[["speed", "heat"]].to_numpy()
    y = np.column_stack([rows[:, 0], -rows[:, 0]])
    model = gpn.GPNRegressor(mean=None, random_state=0).fit(rows, y, rows)
    found = model.drift(rows, y + np.array([0.0, 9.0]))
    assert len(found.coverage) == 2
    (alarm,) = found.alarms
    assert "target 1" in alarm


def test_a_model_without_stored_rows_says_what_it_cannot_compare():
    x = np.random.default_rng(0).normal(size=(30, 1, 4, 4))
    config = gpn.GPNConfig(**FEW, n_axes=4, prior=gpn.MLPPrior(widths=(8,)), beta=0.1)
    model = gpn.GPNRegressor(config, random_state=0).fit(x, x.mean((1, 2, 3)), x)
    found = model.drift(x)
    assert found.columns == ()
    assert NO_ROWS in found.unknown
    model.label_noise_, model.posterior_.noise_std = None, None
    assert NO_NOISE in model.drift(x, x.mean((1, 2, 3))).unknown


def test_a_saved_model_finds_the_same(regressor, tmp_path):
    regressor.save(tmp_path / "m.gpn")
    rows = frame(150, 2, shift=0.4)
    again = gpn.load(tmp_path / "m.gpn").drift(rows)
    assert again == regressor.drift(rows)
    json.dumps(again.to_dict())


def test_repeated_rows_count_as_often_as_they_come(tmp_path):
    """The detector takes copies once; columns are compared with all of them, to the last digit."""
    rng = np.random.default_rng(0)
    x, new = (rng.choice([0.1, 0.2, 0.3, 1 / 3], (n, 2)) for n in (100, 400))
    model = gpn.GPNRegressor(mean=None, random_state=0).fit(x, x.sum(1), x)
    model.save(tmp_path / "m.gpn")
    found = gpn.load(tmp_path / "m.gpn").drift(new)
    assert found == model.drift(new)
    shares = [[np.mean(each[:, 0] <= v) for v in (0.1, 0.2, 0.3)] for each in (x, new)]
    distances = {each.column: each.distance for each in found.columns}
    assert distances["0"] == pytest.approx(np.abs(np.subtract(*shares)).max(), abs=1e-9)
