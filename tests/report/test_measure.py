"""What a report measures, against closed forms."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from gpn.report import classes, measure
from gpn.tables.model import TableModel


def test_exact_gaussians_are_covered_as_promised() -> None:
    rng = np.random.default_rng(0)
    std = rng.uniform(0.5, 2, 20_000)
    mean = rng.normal(size=20_000)
    y = mean + std * rng.normal(size=20_000)
    found = measure.coverage(measure.gaussian_positions(y, mean, std))
    assert found["shares"] == pytest.approx(found["levels"], abs=0.012)
    inside = (found["low"] <= found["shares"]) & (found["shares"] <= found["high"])
    assert inside.mean() > 0.8, "chance alone"


def test_twice_the_spread_covers_by_the_closed_form() -> None:
    y = np.random.default_rng(1).normal(size=50_000)
    found = measure.coverage(measure.gaussian_positions(y, np.zeros_like(y), np.full_like(y, 2.0)))
    exact = 2 * norm.cdf(2 * norm.ppf((1 + found["levels"]) / 2)) - 1
    assert found["shares"] == pytest.approx(exact, abs=0.01)


def test_draws_give_the_positions_of_their_law() -> None:
    rng = np.random.default_rng(2)
    y = np.array([-1.0, 0.0, 0.7])
    draws = rng.normal(0, 0.8, (3, 40_000))
    exact = measure.gaussian_positions(y, np.zeros(3), np.ones(3))
    assert measure.draw_positions(y, draws, 0.6) == pytest.approx(exact, abs=0.01)
    exact = measure.gaussian_positions(y, np.zeros(3), np.full(3, 0.8))
    assert measure.draw_positions(y, draws, 0.0) == pytest.approx(exact, abs=0.01)


def test_a_model_covers_as_its_own_intervals_do(
    numbers_model: TableModel, test_rows: pd.DataFrame
) -> None:
    x, y = numbers_model.encoder.transform(test_rows), test_rows["yield <i>"].to_numpy()
    estimator: Any = numbers_model.estimator
    found = measure.coverage(measure.positions(estimator, x, y))
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


def test_the_error_is_as_large_as_was_said() -> None:
    rng = np.random.default_rng(4)
    std = rng.uniform(0.1, 2, 20_000)
    found = measure.spread_against_error(std, std * rng.normal(size=20_000))
    assert found["found"] == pytest.approx(found["predicted"], rel=0.1)
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


def test_false_alarms_are_as_many_as_were_allowed() -> None:
    reference = np.random.default_rng(6).normal(size=1000)
    found = measure.flags(reference, {"labeled": reference, "far": reference + 10})
    assert found["shares"]["labeled"] == pytest.approx(found["rates"], abs=0.002)
    assert (found["shares"]["far"] == 1).all()


def test_probabilities_that_are_true_lie_on_the_diagonal() -> None:
    rng = np.random.default_rng(7)
    first = rng.uniform(size=40_000)
    p = np.stack([first, 1 - first], axis=1)
    found = classes.reliability(p, (rng.uniform(size=40_000) > first).astype(int))
    assert found["found"] == pytest.approx(found["said"], abs=0.02)
    assert found["rows"].sum() == 40_000


def test_entropy_runs_from_certain_to_no_idea() -> None:
    p = np.array([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    assert classes.entropy(p) == pytest.approx([0.0, np.log(3)])


def test_boxes_hold_the_functions(classes_model: TableModel, test_rows: pd.DataFrame) -> None:
    x = classes_model.encoder.transform(test_rows.iloc[:5])
    quantiles = classes.boxes(classes_model.estimator, x)
    assert quantiles.shape == (5, 3, 5)
    assert (np.diff(quantiles, axis=-1) >= 0).all()
    draws = classes_model.estimator.sample_proba(x, classes.BOX_DRAWS)
    assert quantiles[..., 2] == pytest.approx(np.median(draws, axis=-1))
