"""What a report measures, against closed forms."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from gpn import metrics
from gpn.report import measure
from gpn.tables.model import TableModel


def test_exact_gaussians_have_nominal_coverage() -> None:
    rng = np.random.default_rng(0)
    std = rng.uniform(0.5, 2, 20_000)
    mean = rng.normal(size=20_000)
    y = mean + std * rng.normal(size=20_000)
    found = measure.coverage(norm.cdf(y, mean, std))
    assert found["shares"] == pytest.approx(found["levels"], abs=0.012)
    inside = (found["low"] <= found["shares"]) & (found["shares"] <= found["high"])
    assert inside.mean() > 0.8, "within sampling error"


def test_twice_the_spread_covers_by_the_closed_form() -> None:
    y = np.random.default_rng(1).normal(size=50_000)
    found = measure.coverage(norm.cdf(y, scale=2.0))
    exact = 2 * norm.cdf(2 * norm.ppf((1 + found["levels"]) / 2)) - 1
    assert found["shares"] == pytest.approx(exact, abs=0.01)


def test_draws_give_the_pit_of_their_distribution() -> None:
    rng = np.random.default_rng(2)
    y = np.array([-1.0, 0.0, 0.7])
    draws = rng.normal(0, 0.8, (3, 40_000))
    exact = norm.cdf(y)
    assert measure.draws_pit(y, draws, 0.6) == pytest.approx(exact, abs=0.01)
    exact = norm.cdf(y, scale=0.8)
    assert measure.draws_pit(y, draws, 0.0) == pytest.approx(exact, abs=0.01)


def test_a_model_covers_as_its_own_intervals_do(
    regression_model: TableModel, test_rows: pd.DataFrame
) -> None:
    x, y = regression_model.encoder.transform(test_rows), test_rows["yield <i>"].to_numpy()
    estimator: Any = regression_model.estimator
    found = measure.coverage(measure.pit(estimator, x, y))
    low, high = estimator.predict_interval(x, 0.95)
    share = ((low <= y) & (y <= high)).mean()
    assert found["shares"][np.argmin(np.abs(found["levels"] - 0.95))] == pytest.approx(share)


def test_the_best_order_has_the_least_risk() -> None:
    rng = np.random.default_rng(3)
    std = rng.uniform(0.1, 2, 5000)
    losses = (std * rng.normal(size=5000)) ** 2
    orders = {"spread": std, "nothing": rng.normal(size=5000)}
    lines = measure.risk(losses, orders, root=True)["lines"]
    assert (lines["best possible"] <= lines["spread"] + 1e-12).all()
    assert (lines["spread"][:-1] < lines["nothing"][:-1]).all()
    assert {round(float(line[-1]), 9) for line in lines.values()} == {
        round(float(np.sqrt(losses.mean())), 9)
    }


def test_a_calibrated_error_equals_the_predicted_std() -> None:
    rng = np.random.default_rng(4)
    std = rng.uniform(0.1, 2, 20_000)
    found = measure.error_by_std(std, std * rng.normal(size=20_000))
    assert found["rmse"] == pytest.approx(found["predicted"], rel=0.1)
    assert found["rows"].sum() == 20_000


@pytest.mark.parametrize("log", [False, True])
def test_a_histogram_counts_every_row(log: bool) -> None:
    values = np.random.default_rng(5).exponential(size=1000)
    found = measure.histogram({"a": values, "b": np.append(values, 1e9)}, log=log)
    assert [share.sum() for share in found["shares"].values()] == pytest.approx([1, 1])
    assert (np.diff(found["edges"]) > 0).all()


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [[0.0], [3.0, 3.0], []])
def test_a_histogram_of_hardly_anything(values: list[float], log: bool) -> None:
    found = measure.histogram({"a": np.array(values)}, log=log)
    assert np.isfinite(found["edges"]).all()
    assert (np.diff(found["edges"]) > 0).all()


def test_false_positives_are_as_many_as_allowed() -> None:
    reference = np.random.default_rng(6).normal(size=1000)
    thresholds = np.quantile(reference, 1 - measure.FALSE_POSITIVE_RATES)
    groups = {"labeled": lambda t: reference > t, "far": lambda t: reference + 10 > t}
    found = measure.flags(thresholds, groups)
    assert found["shares"]["labeled"] == pytest.approx(found["rates"], abs=0.002)
    assert (found["shares"]["far"] == 1).all()


def test_true_probabilities_lie_on_the_diagonal_in_the_bins_of_the_ece() -> None:
    rng = np.random.default_rng(7)
    first = rng.uniform(size=40_000)
    p = np.stack([first, 1 - first], axis=1)
    classes = (rng.uniform(size=40_000) > first).astype(int)
    found = measure.reliability(p, classes)
    assert found["accuracy"] == pytest.approx(found["confidence"], abs=0.02)
    assert found["rows"].sum() == 40_000
    ece = found["rows"] @ np.abs(found["accuracy"] - found["confidence"]) / 40_000
    exact = metrics.calibration_error(torch.from_numpy(p), torch.from_numpy(classes))
    assert ece == pytest.approx(float(exact))


def test_boxes_hold_the_functions(
    classification_model: TableModel, test_rows: pd.DataFrame
) -> None:
    x = classification_model.encoder.transform(test_rows.iloc[:5])
    quantiles = measure.class_boxes(classification_model.estimator, x)
    assert quantiles.shape == (5, 3, 5)
    assert (np.diff(quantiles, axis=-1) >= 0).all()
    draws = classification_model.estimator.sample_proba(x, measure.BOX_DRAWS)
    assert quantiles[..., 2] == pytest.approx(np.median(draws, axis=-1))
