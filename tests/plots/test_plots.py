"""Each plot draws its values, on the Axes that it gets."""

import sys
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import Tensor

matplotlib = pytest.importorskip("matplotlib")

from matplotlib.axes import Axes  # noqa: E402
from matplotlib.colors import is_color_like, to_rgb  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

import gpn  # noqa: E402
from gpn import metrics, plots  # noqa: E402

X = torch.linspace(-1, 1, 9)[:, None]
MEAN, STD = X[:, 0].sin(), 0.1 + X[:, 0].square()
DRAWS = torch.randn(4, 9, 2, generator=torch.Generator().manual_seed(0))
CODES = torch.tensor([[1.0, 0.0], [0.99, 0.01], [-2.0, 0.0], [0.0, 0.1]])
TASK = gpn.Task(X[::3], X[::3].cos())
LOW, HIGH = torch.linspace(0, 1, 50), torch.linspace(2, 3, 30)
PROBABILITIES = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
CLASSES = torch.tensor([0, 1, 1, 1])


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def axes() -> Axes:
    """Without pyplot, so that no figure outlives its test."""
    return Figure().subplots()


EVERY: dict[str, Callable[[Axes], Axes]] = {
    "band": lambda axes: plots.band(axes, X, MEAN, STD, color="#0072B2", label="ours"),
    "outline": lambda axes: plots.outline(axes, X, MEAN, STD),
    "functions": lambda axes: plots.functions(axes, X, DRAWS),
    "observations": lambda axes: plots.observations(axes, TASK),
    "code_plane": lambda axes: plots.code_plane(axes, CODES),
    "code_functions": lambda axes: plots.code_functions(axes, X, DRAWS, CODES),
    "roc": lambda axes: plots.roc(axes, LOW, HIGH, label="ours"),
    "roc_curve": lambda axes: plots.roc_curve(axes, LOW, LOW),
    "ood_histogram": lambda axes: plots.ood_histogram(axes, {"labeled": LOW, "pool": HIGH}),
    "calibration": lambda axes: plots.calibration(axes, DRAWS, DRAWS[0]),
    "intervals": lambda axes: plots.intervals(axes, LOW, LOW - 1, LOW + 1),
    "reliability": lambda axes: plots.reliability(axes, PROBABILITIES, CLASSES),
    "risk_coverage": lambda axes: plots.risk_coverage(axes, LOW, LOW),
    "class_boxes": lambda axes: plots.class_boxes(axes, PROBABILITIES, ["no", "yes"]),
}


@pytest.mark.parametrize("draw", EVERY.values(), ids=EVERY.keys())
def test_it_draws_on_the_given_axes_and_returns_them(
    axes: Axes, draw: Callable[[Axes], Axes]
) -> None:
    assert not axes.has_data()
    assert draw(axes) is axes
    assert axes.has_data()


@pytest.mark.parametrize("draw", EVERY.values(), ids=EVERY.keys())
def test_it_leaves_pyplot_and_its_settings_alone(
    axes: Axes, draw: Callable[[Axes], Axes], monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib.use("agg")  # else reading all settings makes matplotlib look for a screen
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it is an error now
    before = matplotlib.rcParams.copy()
    draw(axes).figure.canvas.draw()
    assert matplotlib.rcParams.copy() == before


@pytest.mark.parametrize("draw", EVERY.values(), ids=EVERY.keys())
def test_two_methods_share_axes_and_their_reference(
    axes: Axes, draw: Callable[[Axes], Axes]
) -> None:
    draw(draw(axes))
    marked = [part.get_gid() for part in axes.get_children() if part.get_gid()]
    assert len(marked) == len(set(marked))


def test_every_plot_is_checked_here() -> None:
    drawn = {name for name in plots.__all__ if name.islower()}
    others = {"method_color", "code_colors", "model_figure"}  # the last in test_models.py
    assert drawn - others == set(EVERY)


def test_a_band_is_a_mean_and_196_standard_deviations(axes: Axes) -> None:
    plots.band(axes, X, MEAN, STD, color="#0072B2", label="ours")
    (line,), (area,) = axes.lines, axes.collections
    assert line.get_label() == "ours"
    torch.testing.assert_close(torch.tensor(line.get_ydata()), MEAN.double())
    low, high = area.get_paths()[0].vertices[:, 1].min(), area.get_paths()[0].vertices[:, 1].max()
    assert low == pytest.approx(float((MEAN - 1.96 * STD).min()), rel=1e-5)
    assert high == pytest.approx(float((MEAN + 1.96 * STD).max()), rel=1e-5)


def test_an_outline_is_three_dashed_lines(axes: Axes) -> None:
    plots.outline(axes, X, MEAN, STD)
    lines = sorted(float(line.get_ydata()[0]) for line in axes.lines)
    wanted = [float(MEAN[0] + shift * STD[0]) for shift in (-1.96, 0.0, 1.96)]
    assert lines == pytest.approx(wanted, rel=1e-5)
    assert {line.get_linestyle() for line in axes.lines} == {"--"}


def test_functions_are_one_line_each(axes: Axes) -> None:
    colors = ["#000000", "#111111", "#222222", "#333333"]
    plots.functions(axes, X, DRAWS, colors=colors)
    assert [line.get_color() for line in axes.lines] == colors
    for line, draw in zip(axes.lines, DRAWS, strict=True):
        torch.testing.assert_close(torch.tensor(line.get_ydata()), draw[:, 0])


def test_observations_are_the_labels(axes: Axes) -> None:
    plots.observations(axes, TASK)
    (points,) = axes.lines
    assert points.get_xdata().tolist() == TASK.x_obs[:, 0].tolist()
    assert points.get_ydata().tolist() == TASK.y_obs[:, 0].tolist()


def test_near_codes_get_near_colours() -> None:
    east, near, west, _ = (torch.tensor(to_rgb(color)) for color in plots.code_colors(CODES))
    assert (east - near).norm() < 0.05
    assert (east - west).norm() > 0.3


def test_every_colour_is_one_and_methods_differ() -> None:
    assert all(is_color_like(color) for color in plots.PALETTE.values())
    names = gpn.methods.names()
    colors = [plots.method_color(name) for name in names]
    assert all(is_color_like(color) for color in colors)
    assert len(set(colors)) == len(names), "every method has its own colour"


def test_functions_have_the_colours_of_their_codes(axes: Axes) -> None:
    plots.code_functions(axes, X, DRAWS, CODES)
    assert [line.get_color() for line in axes.lines] == plots.code_colors(CODES)


def curve(axes: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    """What was drawn under a label that begins so."""
    (line,) = [line for line in axes.lines if str(line.get_label()).startswith(label)]
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


def test_separated_scores_have_a_square_roc(axes: Axes) -> None:
    """(0, 0) → (0, 1) → (1, 1), and its area in the label; alike scores lie on the diagonal."""
    plots.roc(axes, LOW, HIGH, label="ours")
    false, found = curve(axes, "ours, AUC 1.000")
    assert (false * (1 - found) == 0).all()
    assert (false[0], found[0], false[-1], found[-1]) == (0, 0, 1, 1)
    plots.roc(axes, LOW, LOW)
    np.testing.assert_allclose(*curve(axes, "AUC 0.500"), atol=1e-12)


def test_the_area_under_a_roc_is_the_auc(axes: Axes) -> None:
    inside, outside = gaussian(300), gaussian(200, seed=1) + 0.7
    plots.roc(axes, inside.numpy(), outside.numpy(), label="arrays")
    false, found = curve(axes, "arrays")
    area = torch.trapezoid(torch.tensor(found), torch.tensor(false))
    assert float(area) == pytest.approx(metrics.ood_auc(inside, outside))


@pytest.mark.parametrize("width", [1.0, 0.5, 2.0])
def test_calibration_of_gaussian_draws(axes: Axes, width: float) -> None:
    """Draws N(0, w²) of targets N(0, 1) cover 2 Φ(w Φ⁻¹((1 + l) / 2)) − 1: l where w = 1."""
    plots.calibration(axes, width * gaussian(500, 4000, 1), gaussian(4000, 1, seed=1), label="ours")
    normal = NormalDist()
    levels, coverage = curve(axes, "ours, off by")
    exact = [2 * normal.cdf(width * normal.inv_cdf((1 + level) / 2)) - 1 for level in levels]
    np.testing.assert_allclose(coverage, exact, atol=5 * 0.5 / 4000**0.5)


def test_an_interval_stands_above_its_true_value(axes: Axes) -> None:
    plots.intervals(axes, LOW[:2], LOW[:2] - 1, LOW[:2] + 2, label="known")
    bars = [bar.vertices.tolist() for bar in axes.collections[0].get_paths()]
    for at, bar in zip(LOW[:2].tolist(), bars, strict=True):
        assert np.ravel(bar) == pytest.approx([at, at - 1, at, at + 2])
    (diagonal,) = axes.lines
    assert diagonal.get_slope() == 1


def test_the_range_of_chance_is_that_of_calibrated_intervals(axes: Axes) -> None:
    plots.calibration(axes, gaussian(50, 100, 1), gaussian(100, 1, seed=1))
    (area,) = axes.collections
    at, ends = area.get_paths()[0].vertices.T
    assert ends[np.isclose(at, 0.5)].max() == pytest.approx(0.5 + 1.96 * 0.05)


def test_reliability_by_hand(axes: Axes) -> None:
    """Two rows at 0.9, one right; two at 0.6, both right: (2 · 0.4 + 2 · 0.4) / 4."""
    plots.reliability(axes, PROBABILITIES, CLASSES, label="ours")
    points = axes.containers[0]
    assert points.get_label() == "ours, ECE 0.400"
    np.testing.assert_allclose(points.lines[0].get_xdata(), [0.6, 0.9], rtol=1e-6)
    assert points.lines[0].get_ydata().tolist() == [1.0, 0.5]


def test_classes_by_their_own_probabilities_are_reliable(axes: Axes) -> None:
    probabilities = (2 * gaussian(5000, 4)).softmax(-1)
    classes = torch.multinomial(probabilities, 1, generator=torch.Generator().manual_seed(0))[:, 0]
    plots.reliability(axes, probabilities, classes)
    line, _, (bars,) = axes.containers[0].lines
    half = np.array([np.ptp(bar[:, 1]) / 2 for bar in bars.get_segments()])
    miss = np.abs(line.get_ydata() - line.get_xdata()) / half
    assert miss.max() < 4 / 1.96
    assert (miss < 1).mean() > 0.7


def test_risk_ends_at_the_mean_error_and_rises_with_a_good_score(axes: Axes) -> None:
    """Errors 1/n, 2/n .. 1, in order: the mean of the first k is (k + 1) / (2 n)."""
    errors = torch.arange(1, 101) / 100
    for name, scores in (("good", errors), ("bad", -errors), ("none", torch.zeros(100))):
        plots.risk_coverage(axes, errors, scores, label=name)
        share, risk = curve(axes, name)
        assert (share[-1], risk[-1]) == (1, pytest.approx(0.505))
    share, risk = curve(axes, "good")
    np.testing.assert_allclose(risk, share / 2 + 0.005, rtol=1e-5)
    np.testing.assert_allclose(curve(axes, "bad")[1], 1.005 - share / 2, rtol=1e-5)
    np.testing.assert_allclose(curve(axes, "none")[1], 0.505, rtol=1e-5)
    plots.risk_coverage(axes, errors > 0.5, errors, label="wrong or right")
    assert curve(axes, "wrong")[1][-1] == 0.5
    low, high = axes.get_ylim()
    assert low == 0
    assert high > 0.99, "what comes second still fits"


@pytest.mark.parametrize(
    ("scores", "scale"),
    [
        ({"labeled": LOW + 1, "pool": HIGH, "test": 2 * HIGH}, "linear"),
        ({"labeled": (-4 + gaussian(200)).exp(), "pool": (4 + gaussian(99)).exp()}, "log"),
        ({"labeled": torch.cat([torch.zeros(9), HIGH / 1000]), "pool": HIGH}, "log"),
        ({"labeled": -HIGH, "pool": 1000 * HIGH}, "linear"),
        ({"alike": torch.ones(5), "too": torch.ones(3)}, "linear"),
        ({str(i): HIGH for i in range(12)}, "linear"),
    ],
    ids=["narrow", "wide", "zeros", "negative", "one value", "many sets"],
)
def test_every_row_is_in_one_of_the_shared_bins(
    axes: Axes, scores: dict[str, Tensor], scale: str
) -> None:
    plots.ood_histogram(axes, scores, bins=20)
    assert axes.get_xscale() == scale
    drawn = [patch.get_data() for patch in axes.patches if patch.get_label() in scores]
    assert len(drawn) == len(scores)
    for shares, edges, _ in drawn:
        assert shares.sum() == pytest.approx(1.0)
        np.testing.assert_array_equal(edges, drawn[0].edges)


def test_a_threshold_stands_at_its_score(axes: Axes) -> None:
    plots.ood_histogram(axes, {"known": LOW, "OOD": HIGH}, threshold=1.5)
    (line,) = axes.lines
    assert set(line.get_xdata()) == {1.5}
    assert line.get_label() == "flagged beyond"


def test_boxes_are_the_quartiles_of_the_draws(axes: Axes) -> None:
    probabilities = gaussian(101, 3).softmax(-1)
    plots.class_boxes(axes, probabilities, ["ape", "bee", "cat"])
    low, high = probabilities.double().quantile(torch.tensor([0.25, 0.75]).double(), dim=0)
    heights = np.array([box.get_path().vertices[:, 1] for box in axes.patches])
    np.testing.assert_allclose(heights.min(1), low, rtol=1e-5)
    np.testing.assert_allclose(heights.max(1), high, rtol=1e-5)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["ape", "bee", "cat"]
