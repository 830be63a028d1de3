"""Each plot draws on the Axes that it is given, and draws what it is given."""

from collections.abc import Callable

import pytest
import torch

matplotlib = pytest.importorskip("matplotlib")

from matplotlib.axes import Axes  # noqa: E402
from matplotlib.colors import is_color_like, to_rgb  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

import gpn  # noqa: E402
from gpn import plots  # noqa: E402

X = torch.linspace(-1, 1, 9)[:, None]
MEAN, STD = X[:, 0].sin(), 0.1 + X[:, 0].square()
DRAWS = torch.randn(4, 9, 2, generator=torch.Generator().manual_seed(0))
CODES = torch.tensor([[1.0, 0.0], [0.99, 0.01], [-2.0, 0.0], [0.0, 0.1]])
TASK = gpn.Task(X[::3], X[::3].cos())


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
}


@pytest.mark.parametrize("draw", EVERY.values(), ids=EVERY.keys())
def test_it_draws_on_the_given_axes_and_returns_them(
    axes: Axes, draw: Callable[[Axes], Axes]
) -> None:
    assert not axes.has_data()
    assert draw(axes) is axes
    assert axes.has_data()


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
    assert len(set(colors)) == len(names), "two methods in one colour cannot be told apart"
