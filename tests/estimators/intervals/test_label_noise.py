"""The scatter of labels, its trees and its distribution, against closed forms."""

import numpy as np
import pytest
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor

from gpn import PosteriorRegressor
from gpn.estimators.closed_form.trees import Trees
from gpn.estimators.intervals.distribution import LabelDistribution
from gpn.estimators.intervals.label_noise import LabelNoise, Residuals, learn_label_noise

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Each test draws the same numbers in any order of the tests."""
    global RNG
    RNG = np.random.default_rng(1)


def test_gaussian_labels_of_known_noise_are_left_alone() -> None:
    variance = RNG.uniform(0.1, 1.0, 3000)
    residuals = np.sqrt(variance + 0.25) * RNG.normal(size=3000)
    noise = learn_label_noise(Residuals(RNG.normal(size=(3000, 2)), residuals, variance), 0.25)
    assert noise.factor == pytest.approx(1.0, abs=0.04)
    assert noise.freedom >= 30
    assert noise.varying is None


def test_unknown_noise_is_found() -> None:
    variance = np.full(2000, 0.5)
    residuals = np.sqrt(0.5 + 0.3) * RNG.normal(size=2000)
    noise = learn_label_noise(Residuals(RNG.normal(size=(2000, 1)), residuals, variance), None)
    scale = noise.scale(np.zeros((1, 1)), np.array([0.5]))
    assert scale == pytest.approx(np.sqrt(0.8), rel=0.05)


def test_long_tails_are_found() -> None:
    residuals = 0.7 * RNG.standard_t(3, size=4000)
    noise = learn_label_noise(Residuals(RNG.normal(size=(4000, 1)), residuals, np.zeros(4000)), 1.0)
    assert 2.5 <= noise.freedom <= 4
    assert noise.factor == pytest.approx(0.7, rel=0.1)


def test_noise_that_varies_is_found_and_what_is_unknown_is_never_shrunk() -> None:
    x = RNG.uniform(-1, 1, (3000, 2))
    std = np.where(x[:, 0] > 0, 1.0, 0.1)
    noise = learn_label_noise(Residuals(x, std * RNG.normal(size=3000), np.full(3000, 1e-3)), 0.5)
    assert noise.varying is not None
    rows = np.array([[0.5, 0.0], [-0.5, 0.0]])
    loud, quiet = noise.scale(rows, np.full(2, 1e-3))
    assert loud > 5 * quiet
    assert noise.scale(rows, np.full(2, 100.0)) == pytest.approx(10.0, rel=0.05)


def test_residuals_of_long_tails_whose_size_varies_are_followed() -> None:
    """Squares of such residuals are hopeless to predict; their logarithms are not."""
    x = RNG.uniform(-1, 1, (4000, 1))
    residuals = 10.0 ** x[:, 0] * RNG.standard_t(3, 4000)
    noise = learn_label_noise(Residuals(x, residuals, np.zeros(4000)), 1.0)
    small, large = noise.scale(np.array([[-0.7], [0.7]]), np.zeros(2))
    assert 8 < large / small < 30  # 25, less what trees smooth


def test_other_residuals_teach_where_labels_scatter_but_not_how_much() -> None:
    x = RNG.uniform(-1, 1, (3300, 1))
    residuals = np.where(x[:, 0] > 0, 1.0, 0.1) * RNG.normal(size=3300)
    few = Residuals(x[:300], residuals[:300], np.zeros(300))
    others = Residuals(x[300:], 2 * residuals[300:], np.zeros(3000))
    noise = learn_label_noise(few, 1.0, others=others)
    found = noise.scale(np.array([[-0.5], [0.5]]), np.zeros(2))
    assert found == pytest.approx([0.1, 1.0], rel=0.25)


def test_fitted_parameters_widen_the_scatter() -> None:
    data = Residuals(RNG.normal(size=(100, 1)), RNG.normal(size=100), np.zeros(100))
    plain, wider = (learn_label_noise(data, 1.0, n_parameters=p) for p in (0, 20))
    assert wider.factor == pytest.approx(plain.factor * np.sqrt(1.2))


def test_trees_predict_as_scikit_learn_does() -> None:
    x = RNG.normal(size=(400, 3))
    y = x[:, 0] ** 2 + x[:, 1]
    models = [HistGradientBoostingRegressor(max_iter=20).fit(x, y + i) for i in range(3)]
    expected = np.mean([model.predict(x) for model in models], axis=0)
    trees = Trees.of(models)
    np.testing.assert_allclose(trees.predict(x), expected, rtol=1e-12)
    again = Trees.from_arrays(trees.arrays(), 3)
    np.testing.assert_array_equal(again.predict(x), trees.predict(x))
    broken = trees.arrays()
    broken["links"] = broken["links"] + 100
    with pytest.raises(ValueError, match="trees must have links to their own nodes"):
        Trees.from_arrays(broken, 3)


@pytest.mark.parametrize("freedom", [3.0, 10.0, np.inf])
def test_the_distribution_against_draws_and_scipy(freedom: float) -> None:
    y, rows = np.array([-1.0, 0.3, 4.0]), np.array([0.0, 0.5, 1.0])
    found = LabelDistribution(rows, np.array([1.0, 2.0, 0.5]), np.full(3, freedom))
    exact = stats.t(freedom, loc=rows, scale=found.scale)
    np.testing.assert_allclose(found.logpdf(y), exact.logpdf(y))
    np.testing.assert_allclose(found.cdf(found.ppf(0.3)), 0.3)
    draws = found.rvs(200_000, random_state=0)
    assert draws.shape == (3, 200_000)
    pairs = np.abs(draws[:, ::2] - draws[:, 1::2]).mean(1)
    by_draws = np.abs(draws - y[:, None]).mean(1) - pairs / 2
    assert found.crps(y) == pytest.approx(by_draws, rel=0.02)
    low, high = found.interval(0.8)
    np.testing.assert_allclose(found.cdf(high) - found.cdf(low), 0.8)


def test_infinite_freedom_is_the_normal_distribution() -> None:
    found = LabelDistribution(np.zeros(1), np.ones(1), np.array([np.inf]))
    z = np.array([0.7])
    expected = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    assert found.crps(z) == pytest.approx(expected, abs=1e-5)
    assert LabelNoise(0.25).scale(np.zeros((1, 1)), np.zeros(1)) == pytest.approx(0.5)


def test_intervals_of_any_method_hold_labels() -> None:
    """An ensemble knows no noise: its intervals of labels learn it from held-out rows."""
    x = RNG.uniform(-2, 2, (300, 1))
    y = np.sin(2 * x[:, 0]) + 0.5 * RNG.normal(size=300)
    small = {"n_members": 3}
    model = PosteriorRegressor("ensemble", settings=small, random_state=0).fit(x, y, X_unlabeled=x)
    new = RNG.uniform(-2, 2, (500, 1))
    labels = np.sin(2 * new[:, 0]) + 0.5 * RNG.normal(size=500)
    low, high = model.predict_interval(new)
    assert 0.85 < ((low < labels) & (labels < high)).mean() < 1.0


def test_doubtful_rows_do_not_make_known_ones_wider() -> None:
    """Of 2,000 labels a tenth is unknown, three times as far off, and doubted by the gate."""
    doubt = (np.arange(2000) % 10 == 0) * 0.9
    residuals = RNG.normal(size=2000) * np.where(doubt > 0, 3.0, 1.0)
    x, variance = RNG.normal(size=(2000, 1)), np.zeros(2000)
    gated = learn_label_noise(Residuals(x, residuals, variance, doubt, 9.0), 1.0)
    plain = learn_label_noise(Residuals(x, residuals, variance), 1.0)
    width = [noise.factor * stats.t.ppf(0.975, noise.freedom) for noise in (gated, plain)]
    assert width[0] == pytest.approx(1.96, rel=0.1)
    assert width[1] > 1.2 * width[0]
