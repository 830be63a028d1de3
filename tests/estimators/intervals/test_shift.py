"""Calibration for target rows of another distribution: weights, coverage, warning, refusal."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import gpn
from experiments import conformal_shift
from gpn.cli.commands import app
from gpn.estimators.intervals.calibration import Calibration
from gpn.estimators.intervals.conformal import conformal_quantile, weighted_quantile
from gpn.estimators.intervals.shift import FewEffectiveRowsWarning, ShiftWeights, shift_weights
from gpn.tables.model import fit_table


def test_equal_weights_are_plain_split_conformal() -> None:
    scores = torch.rand(57, 2, dtype=torch.float64).sort(0).values
    for level in (0.1, 0.5, 0.9, 0.95):
        found = weighted_quantile(scores, torch.ones(58, 2, dtype=torch.float64), level)
        assert torch.equal(found, conformal_quantile(scores, level))


def test_a_row_of_weight_zero_is_as_if_absent() -> None:
    scores = np.array([[3.0], [1.0], [2.0], [9.0]])
    found = Calibration.of(scores, ShiftWeights(np.array([1.0, 1.0, 1.0, 0.0]), 1.0))
    assert float(found.quantile(0.75)) == 3.0


def test_too_heavy_a_new_row_has_no_finite_interval() -> None:
    weights = torch.tensor([[1.0], [1.0], [2.0]])
    with pytest.raises(ValueError, match="more calibration rows like the target rows"):
        weighted_quantile(torch.tensor([[1.0], [2.0]]), weights, 0.6)


def test_weights_follow_the_density_ratio_of_gaussians() -> None:
    rng = np.random.default_rng(0)
    rows, target = rng.normal(size=(2000, 2)), rng.normal(size=(2000, 2))
    target[:, 0] += 1.0
    weights = np.log(shift_weights(rows, target).of_rows)
    slope, _ = np.polyfit(rows[:, 0], weights, 1)
    assert slope == pytest.approx(1.0, abs=0.15)  # log q/p = x₀ − 1/2


def test_rows_alike_get_equal_weights() -> None:
    rng = np.random.default_rng(0)
    found = shift_weights(rng.normal(size=(300, 4)), rng.normal(size=(300, 4)))
    assert found.effective > 290


def test_far_targets_are_refused_and_nearly_far_ones_warned_of() -> None:
    rng = np.random.default_rng(0)
    rows, target = rng.normal(size=(200, 2)), rng.normal(size=(200, 2))
    with pytest.raises(ValueError, match="must overlap with the target rows"):
        shift_weights(rows, target + 20)
    with pytest.warns(FewEffectiveRowsWarning, match="label some target rows"):
        shift_weights(rows, target + 1.2)


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_target_coverage_where_plain_calibration_fails(kind: str) -> None:
    """The mean over 6 shifts, whose deviation is about 0.025 each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gpn.GPNWarning)
        model = conformal_shift.fitted(kind, 0)
        found = [conformal_shift.one_shift(kind, model, seed) for seed in range(6)]
    plain, weighted = (np.mean([each[name] for each in found]) for name in ("plain", "weighted"))
    assert plain < 0.82
    assert weighted == pytest.approx(0.9, abs=0.03)


def test_a_file_keeps_the_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gpn.GPNWarning)
        model = conformal_shift.fitted("numbers", 0)
    x, target = rng.normal(size=(2, 300, 3))
    target[:, 0] += 0.7
    model.calibrate(x, conformal_shift.numbers(x, rng), target)
    model.save(tmp_path / "model.gpn")
    loaded = gpn.load(tmp_path / "model.gpn")
    np.testing.assert_array_equal(loaded.predict_interval(x), model.predict_interval(x))
    assert loaded.calibration_.effective_rows == model.calibration_.effective_rows < 299


def test_the_command_weighs_rows_for_a_file_of_target_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x[:, 1] + rng.normal(size=400)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gpn.GPNWarning)
        model = fit_table(frame[:60], "y", mean=None, random_state=0)
    path, rows, target = (tmp_path / name for name in ("m.gpn", "rows.csv", "target.csv"))
    model.save(path)
    frame[60:].to_csv(rows, index=False)
    (frame[["a", "b"]] + [0.7, 0.0]).to_csv(target, index=False)
    arguments = ["calibrate", path, rows, "--out", path, "--target-rows", target, "--json"]
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    assert found.exit_code == 0, found.output
    assert 50 < json.loads(found.stdout)["effective_rows"] < 330
