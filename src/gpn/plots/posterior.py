"""Functions along one feature: bands, single draws, labels, and codes."""

import colorsys

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from gpn.core.checks import require_shapes
from gpn.core.task import Task
from gpn.core.types import Draws
from gpn.plots.palette import INK, PALETTE


def band(
    axes: Axes,
    x: Float[Tensor, "n 1"],
    mean: Float[Tensor, "n"],
    std: Float[Tensor, "n"],
    *,
    color: str,
    label: str,
) -> Axes:
    """A mean with its ±1.96 standard deviations, along one feature."""
    require_shapes(x=(x, "n d"), mean=(mean, "n"), std=(std, "n"))
    at, centre, half = (t.cpu().double().numpy() for t in (x[:, 0], mean, 1.96 * std))
    axes.fill_between(at, centre - half, centre + half, color=color, alpha=0.18, linewidth=0)
    axes.plot(at, centre, color=color, linewidth=1.8, label=label)
    return axes


def outline(
    axes: Axes, x: Float[Tensor, "n 1"], mean: Float[Tensor, "n"], std: Float[Tensor, "n"]
) -> Axes:
    """The exact posterior over a band: mean and ±1.96 standard deviations as dashed lines."""
    require_shapes(x=(x, "n d"), mean=(mean, "n"), std=(std, "n"))
    at = x[:, 0].cpu().numpy()
    for shift, width in ((0.0, 1.4), (-1.96, 0.9), (1.96, 0.9)):
        label = "exact posterior" if shift == 0 else None
        line = (mean + shift * std).cpu().numpy()
        axes.plot(at, line, color=PALETTE["truth"], linewidth=width, linestyle="--", label=label)
    return axes


def functions(
    axes: Axes,
    x: Float[Tensor, "n 1"],
    draws: Draws,
    *,
    colors: list[str] | str = PALETTE["ours"],
    alpha: float = 0.8,
) -> Axes:
    """One thin line per draw of the first output."""
    require_shapes(x=(x, "n d"), draws=(draws, "s n o"))
    lines = draws[..., 0].cpu().numpy()
    shades = [colors] * len(lines) if isinstance(colors, str) else colors
    if len(shades) != len(lines):
        raise ValueError(f"there must be {len(lines)} colors, one per draw, got {len(shades)}.")
    for line, shade in zip(lines, shades, strict=True):
        axes.plot(x[:, 0].cpu().numpy(), line, color=shade, linewidth=0.9, alpha=alpha)
    return axes


def observations(axes: Axes, task: Task) -> Axes:
    """The labels, as crosses over everything else."""
    if task.is_classification:
        raise ValueError("labels must be numbers to be drawn, got a task of classes.")
    at, values = task.x_obs[:, 0].cpu().numpy(), task.y_obs[:, 0].cpu().numpy()
    axes.plot(at, values, "x", color=INK, markersize=7, markeredgewidth=2, zorder=5)
    return axes


def code_plane(axes: Axes, codes: Float[Tensor, "s 2"]) -> Axes:
    """Two-dimensional codes, coloured by `code_colors`."""
    _require_plane(codes)
    points = codes.cpu().numpy()
    axes.scatter(points[:, 0], points[:, 1], c=code_colors(codes), s=34, edgecolor="white")
    axes.set_xlabel("$z_1$")
    axes.set_ylabel("$z_2$")
    axes.set_aspect("equal", adjustable="datalim")
    return axes


def code_functions(
    axes: Axes,
    x: Float[Tensor, "n 1"],
    draws: Draws,
    codes: Float[Tensor, "s 2"],
    *,
    alpha: float = 0.8,
) -> Axes:
    """The functions x → g(x, z_j), each in the colour of its code z_j in `code_plane`."""
    return functions(axes, x, draws, colors=code_colors(codes), alpha=alpha)


def _require_plane(codes: Float[Tensor, "s 2"]) -> None:
    """Raise unless codes have two dimensions."""
    require_shapes(codes=(codes, "s q"))
    if codes.shape[1] != 2:
        raise ValueError(f"codes must have 2 dimensions to be drawn, got {codes.shape[1]}.")


def code_colors(codes: Float[Tensor, "s 2"]) -> list[str]:
    """Angle as hue, radius as saturation: similar codes get similar colours."""
    _require_plane(codes)
    angle = torch.atan2(codes[:, 1], codes[:, 0]) / (2 * torch.pi) + 0.5
    strength = (codes.norm(dim=1) / 2.0).clamp(0.25, 1.0)
    rows = zip(angle.tolist(), strength.tolist(), strict=True)
    rgb = [colorsys.hls_to_rgb(hue, 0.72 - 0.3 * s, 0.35 + 0.55 * s) for hue, s in rows]
    return ["#" + "".join(f"{round(255 * value):02x}" for value in color) for color in rgb]
