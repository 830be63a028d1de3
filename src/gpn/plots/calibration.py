"""Calibration of intervals and probabilities, selective risk, and class probabilities."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Shaped
from matplotlib.axes import Axes

from gpn import metrics
from gpn.core.checks import require_shapes
from gpn.plots.axes import Array, as_tensor, draw_diagonal, label_with
from gpn.plots.palette import INK, PALETTE


def calibration(
    axes: Axes,
    draws: Float[Array, "s n o"],
    y: Float[Array, "n o"],
    *,
    color: str = PALETTE["ours"],
    label: str = "",
) -> Axes:
    """The share of targets inside the middle `level` of the draws, against the level.

        coverage(l) = P[q_{(1−l)/2} ≤ y ≤ q_{(1+l)/2}],   on the diagonal for calibrated intervals

    Above it intervals are too wide, below too narrow. Grey is l ± 1.96 √(l (1 − l) / n), the range
    of chance; the label has the mean of |coverage − l|. Draws must be of labels: add noise to draws
    of functions.
    """
    targets = as_tensor(y)
    levels, coverage = metrics.coverage_curve(as_tensor(draws), targets)
    _draw_chance(axes, len(targets))
    draw_diagonal(axes)
    named = label_with(label, f"off by {100 * float((coverage - levels).abs().mean()):.1f} %")
    axes.plot(levels.numpy(), coverage.numpy(), "o-", color=color, markersize=3, label=named)
    axes.set(xlabel="level of the interval", ylabel="share of targets inside")
    return axes


def _draw_chance(axes: Axes, n: int) -> None:
    """The range of coverage of n calibrated intervals, once per Axes."""
    if any(other.get_gid() == "chance" for other in axes.collections):
        return
    levels = torch.linspace(0, 1, 101, dtype=torch.float64)
    half = 1.96 * (levels * (1 - levels) / n).sqrt()
    area = axes.fill_between(
        levels.numpy(), (levels - half).numpy(), (levels + half).numpy(), color="0.9", linewidth=0
    )
    area.set(gid="chance", zorder=0, label="calibrated, within chance")


def intervals(
    axes: Axes,
    truth: Float[Array, "n"],
    low: Float[Array, "n"],
    high: Float[Array, "n"],
    *,
    color: str = PALETTE["ours"],
    label: str = "",
) -> Axes:
    """Each interval as a bar above its target; it covers the target if it crosses the diagonal."""
    at, lower, upper = as_tensor(truth), as_tensor(low), as_tensor(high)
    require_shapes(truth=(at, "n"), low=(lower, "n"), high=(upper, "n"))
    axes.vlines(
        at.numpy(), lower.numpy(), upper.numpy(), color=color, linewidth=1.5, alpha=0.6, label=label
    )
    if not any(line.get_gid() == "diagonal" for line in axes.lines):
        middle = float(at.double().mean())
        axes.axline((middle, middle), slope=1, color=INK, linewidth=1, gid="diagonal", zorder=3)
    axes.set(xlabel="true value", ylabel="interval")
    return axes


def reliability(
    axes: Axes,
    probabilities: Float[Array, "n c"],
    classes: Int[Array, "n"],
    *,
    bins: int = 15,
    color: str = PALETTE["ours"],
    label: str = "",
) -> Axes:
    """Accuracy against confidence, bin by bin, with the calibration error in the label.

        ECE = Σ_b (n_b / n) |accuracy_b − confidence_b|      (Guo et al. 2017)

    Bars are ±1.96 √(c (1 − c) / n_b), the range of chance for n_b rows of calibrated confidence c.
    """
    predicted, true = as_tensor(probabilities), as_tensor(classes)
    confidence, accuracy, share = metrics.reliability(predicted, true, bins)
    error = float(metrics.calibration_error(predicted, true, bins))
    half = 1.96 * (confidence * (1 - confidence) / (share * len(true))).clamp_min(0.0).sqrt()
    draw_diagonal(axes)
    axes.errorbar(
        confidence.numpy(),
        accuracy.numpy(),
        half.numpy(),
        fmt="o-",
        color=color,
        markersize=4,
        elinewidth=0.8,
        label=label_with(label, f"ECE {error:.3f}"),
    )
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    return axes


def risk_coverage(
    axes: Axes,
    errors: Shaped[Array, "n"],
    scores: Float[Array, "n"],
    *,
    color: str = PALETTE["ours"],
    label: str | None = None,
) -> Axes:
    """The mean error of the rows with the lowest scores, against their share of all rows.

        risk(k/n) = (1/k) Σ_{i ≤ k} error_(i),   rows in the order of their scores

    It rises if the score predicts errors. Errors of classes may be 0 and 1, or False and True. The
    first 2 % of rows are too few for a mean and not drawn.
    """
    share, risk = metrics.risk_coverage(as_tensor(errors).double(), as_tensor(scores))
    drawn = slice(len(share) // 50, None)
    at, height = share[drawn].numpy(), risk[drawn].numpy()
    (line,) = axes.plot(at, height, color=color, linewidth=1.8, label=label)
    line.sticky_edges.y.append(0.0)  # the axis begins at 0, and still grows with the next curve
    axes.update_datalim([(0.0, 0.0)])
    axes.autoscale_view()
    axes.set(xlabel="share of rows, most certain first", ylabel="mean error")
    return axes


def class_boxes(
    axes: Axes,
    probabilities: Float[Array, "s c"],
    names: Sequence[str],
    *,
    color: str = PALETTE["ours"],
) -> Axes:
    """One box per class: the probability p_c = softmax(g(x, z))_c at one row, over draws of z.

    Boxes span the quartiles of the draws, whiskers 1.5 times as much; dots are the rest.
    """
    draws = as_tensor(probabilities)
    require_shapes(probabilities=(draws, "s c"))
    if len(names) != draws.shape[1]:
        raise ValueError(f"there must be {draws.shape[1]} names, one per class, got {len(names)}.")
    axes.boxplot(
        draws.numpy(),
        widths=0.6,
        patch_artist=True,
        boxprops={"facecolor": color, "edgecolor": color, "alpha": 0.6},
        medianprops={"color": INK},
        whiskerprops={"color": color},
        capprops={"color": color},
        flierprops={"marker": ".", "markersize": 2, "markeredgecolor": color},
    )
    crowded = sum(len(name) + 2 for name in names) > 40
    axes.set_xticks(range(1, len(names) + 1), names, rotation=90 if crowded else 0)
    axes.set(ylabel="class probability", ylim=(-0.03, 1.03))
    return axes
