"""Every method on a line with known noise, and the parts that have a closed form."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

import gpn
from experiments.tables.data import read_table
from experiments.tables.methods import METHODS, Machine, Method
from experiments.tables.methods.base import MissingPackage, conformal_quantile, package
from experiments.tables.methods.boosting import Uncertainty
from experiments.tables.methods.deep_ensemble import Best, Networks, folds
from experiments.tables.methods.forest import out_of_bag, variance_terms
from experiments.tables.predictive import gaussian, measure
from gpn.estimators.intervals.distribution import LabelDistribution
from tests.experiments.tables.conftest import NOISE, VARIATIONAL

CPU = Machine(torch.device("cpu"), threads=1)
BASELINES = [name for name in METHODS if not name.startswith("gpn")]


def measured_on_a_line(method: Method, folder: Path) -> dict[str, float]:
    split = read_table("line", folder).split(0)
    predict = method.fit(split.x, split.y, seed=0, machine=CPU)
    return measure(predict(split.x_test), split.y_test)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_finds_a_line_and_its_noise(
    name: str, fast: None, write_table: Callable[..., Path]
) -> None:
    for each in METHODS[name].packages:
        pytest.importorskip(each)
    measured = measured_on_a_line(METHODS[name], write_table(n=500))
    assert NOISE * 0.8 < measured["rmse"] < NOISE * 2.2  # the line alone deviates by 0.65
    assert 0.85 <= measured["coverage_95"] <= 1
    assert measured["nll"] < 0.2  # a constant has 1.0, the truth −0.9


@pytest.mark.filterwarnings("ignore")
def test_variational_inference_agrees_with_the_exact_process(
    fast: None, write_table: Callable[..., Path]
) -> None:
    folder = write_table()
    exact = measured_on_a_line(METHODS["gp-ard"], folder)
    assert measured_on_a_line(VARIATIONAL, folder) == pytest.approx(exact, rel=0.2, abs=0.02)


class Line:
    """An estimator with the interface of `GPNRegressor`: a linear model with the true noise."""

    def __init__(self, config: object = None, random_state: int | None = None) -> None:
        self.made_with = (config, random_state)

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Line":
        self.model = LinearRegression().fit(x, y)
        return self

    def predict_distribution(self, x: np.ndarray) -> LabelDistribution:
        return gaussian(self.model.predict(x), np.full(len(x), NOISE))


def test_a_gpn_is_measured_by_its_predictive_distribution(
    write_table: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(gpn, "GPNRegressor", lambda *a, **k: made.append(Line(*a, **k)) or made[-1])
    for name in ("gpn", "gpn-network"):
        measured = measured_on_a_line(METHODS[name], write_table(n=500))
        assert measured["width_95"] == pytest.approx(3.92 * NOISE, rel=1e-3)
        assert measured["nll"] < -0.7
    assert made[0].made_with == (None, 0)
    assert made[1].made_with == (gpn.GPNConfig(generator="affine"), 0)


def test_a_missing_package_is_named_with_its_remedy() -> None:
    with pytest.raises(MissingPackage, match=r"package no_such_thing.*pip install 'gpn\[exper"):
        package("no_such_thing")


def test_the_conformal_quantile_of_too_few_scores_is_the_largest() -> None:
    assert conformal_quantile(np.arange(1.0, 100.0), 0.95) == 95
    assert conformal_quantile(np.array([2.0, 3.0, 1.0]), 0.95) == 3


class TestBoosting:
    """Rows with a prediction of 0 and the interval ±2 s(x), where s is the noise or is not."""

    rng = np.random.default_rng(0)
    scale = np.where(np.arange(4_000) % 2, 0.1, 1.0)
    y = scale * rng.standard_normal(4_000)

    def test_noise_that_varies_takes_the_quantile_models(self) -> None:
        ends = np.stack([0 * self.y, -1.8 * self.scale, 1.8 * self.scale], axis=1)
        learnt = Uncertainty.learn(ends, self.y)
        said = measure(learnt.around(ends), self.y)
        assert learnt.by_width
        assert learnt.widens
        assert said["coverage_95"] == pytest.approx(0.95, abs=1e-3)
        assert said["nll"] == pytest.approx(
            np.mean(0.5 * np.log(2 * np.pi * np.e * self.scale**2)), abs=0.05
        )

    def test_useless_quantile_models_are_not_taken(self) -> None:
        width = self.rng.permutation(self.scale)
        ends = np.stack([0 * self.y, -width, width], axis=1)
        learnt = Uncertainty.learn(ends, self.y)
        said = learnt.around(ends)
        assert not learnt.by_width
        assert not learnt.widens
        assert np.ptp(said.high - said.low) < 1e-12
        assert learnt.std == pytest.approx(self.y.std(), rel=1e-3)


class TestForest:
    def test_out_of_bag_means_are_those_of_scikit_learn(self) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(60, 2))
        y = x[:, 0] + 0.1 * rng.normal(size=60)
        forest = RandomForestRegressor(50, oob_score=True, random_state=0).fit(x, y)
        mean, variance = out_of_bag(forest, x)
        assert mean == pytest.approx(forest.oob_prediction_)
        assert (variance >= 0).all()

    @pytest.mark.parametrize(("base", "factor"), [(0.5, 2.0), (2.0, 0.0), (0.0, 0.3)])
    def test_variance_terms_are_found(self, base: float, factor: float) -> None:
        rng = np.random.default_rng(0)
        variance = rng.gamma(1.0, size=50_000)
        spread = base + factor * variance
        found = variance_terms(np.sqrt(spread) * rng.standard_normal(50_000), variance)
        assert found == pytest.approx((base, factor), abs=0.06)


class TestDeepEnsemble:
    rng = torch.Generator().manual_seed(0)

    def test_every_row_trains_four_members_and_stops_at_most_one(self) -> None:
        rows, rest = folds(53, 5, self.rng)
        assert (rows.shape, rest.shape) == ((5, 43), (5, 10))
        for mine, theirs in zip(rows, rest, strict=True):
            assert set(mine.tolist()) | set(theirs.tolist()) == set(range(53))
        assert len(set(rest.flatten().tolist())) == 50

    def test_moments_are_those_of_the_mixture(self) -> None:
        networks = Networks(5, (2, 8, 2), self.rng)
        x = torch.randn(7, 2, generator=self.rng)
        means, variances = (part.detach().numpy() for part in networks(x.expand(5, 7, 2)))
        mean, variance = networks.moments(x)
        assert mean == pytest.approx(means.mean(0), rel=1e-4)
        square = (variances + means**2).mean(0)
        assert variance == pytest.approx(square - mean**2, rel=1e-4)

    def test_each_member_keeps_its_own_best_weights(self) -> None:
        networks = Networks(2, (1, 2), self.rng)
        (weight,) = networks.weights
        best = Best(networks)
        assert best.update(torch.tensor([1.0, 1.0]))
        first = weight.detach().clone()
        weight.data += 1
        assert best.update(torch.tensor([0.5, 2.0]))
        weight.data += 1
        assert not best.update(torch.tensor([0.5, 1.5]))
        best.restore()
        assert torch.equal(weight[0], first[0] + 1)
        assert torch.equal(weight[1], first[1])
