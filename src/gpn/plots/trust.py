"""Whether a model means what it says: calibration, the risk of rows kept, class probabilities."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int, Shaped

from gpn import metrics
from gpn.core.checks import require_shapes
from gpn.plots.palette import INK, PALETTE
from gpn.plots.parts import Array, as_tensor, diagonal, joined

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def calibration(
    axes: "Axes",
    draws: Float[Array, "s n o"],
    y: Float[Array, "n o"],
    *,
    color: str = PALETTE["ours"],
    label: str = "",
) -> "Axes":
    """The share of targets inside the middle `level` of the draws, against the level.

        coverage(l) = P[q_{(1−l)/2} ≤ y ≤ q_{(1+l)/2}],   on the diagonal where intervals are honest

    Above it they are too wide, below too narrow; grey is l ± 1.96 √(l (1 − l) / n), what chance
    allows; the label has the mean of |coverage − l|. Draws are of labels: those of functions want
    the labels' noise on top.
    """
    drawn, targets = as_tensor(draws), as_tensor(y)
    levels, coverage = metrics.coverage_curve(drawn, targets)
    _chance(axes, len(targets))
    diagonal(axes)
    named = joined(label, f"off by {100 * float((coverage - levels).abs().mean()):.1f} %")
    axes.plot(levels.numpy(), coverage.numpy(), "o-", color=color, markersize=3, label=named)
    axes.set(xlabel="level of the interval", ylabel="share of targets inside")
    return axes


def _chance(axes: "Axes", n: int) -> None:
    """What n honest intervals may miss by, once per Axes."""
    if any(other.get_gid() == "chance" for other in axes.collections):
        return
    levels = torch.linspace(0, 1, 101, dtype=torch.float64)
    half = 1.96 * (levels * (1 - levels) / n).sqrt()
    area = axes.fill_between(
        levels.numpy(), (levels - half).numpy(), (levels + half).numpy(), color="0.9", linewidth=0
    )
    area.set(gid="chance", zorder=0, label="honest, within chance")


def intervals(
    axes: "Axes",
    truth: Float[Array, "n"],
    low: Float[Array, "n"],
    high: Float[Array, "n"],
    *,
    color: str = PALETTE["ours"],
    label: str = "",
) -> "Axes":
    """Each target's interval as a bar above its true value; honest ones cross the diagonal."""
    given = as_tensor(truth), as_tensor(low), as_tensor(high)
    require_shapes(truth=(given[0], "n"), low=(given[1], "n"), high=(given[2], "n"))
    at, ends = given[0].numpy(), (given[1].numpy(), given[2].numpy())
    axes.vlines(at, *ends, color=color, linewidth=1.5, alpha=0.6, label=label)
    if not any(line.get_gid() == "diagonal" for line in axes.lines):
        middle = float(at.mean())
        axes.axline((middle, middle), slope=1, color=INK, linewidth=1, gid="diagonal", zorder=3)
    axes.set(xlabel="true value", ylabel="interval")
    return axes


def reliability(
    axes: "Axes",
    probabilities: Float[Array, "n c"],
    classes: Int[Array, "n"],
    *,
    bins: int = 15,
    color: str = PALETTE["ours"],
    label: str = "",
) -> "Axes":
    """Accuracy against confidence, bin by bin, with the calibration error in the label.

        ECE = Σ_b (n_b / n) |accuracy_b − confidence_b|      (Guo et al. 2017)

    Bars are ±1.96 √(c (1 − c) / n_b), what chance does to n_b rows of honest confidence c.
    """
    told, true = as_tensor(probabilities), as_tensor(classes)
    confidence, accuracy, share = metrics.reliability(told, true, bins)
    error = float(metrics.calibration_error(told, true, bins))
    half = 1.96 * (confidence * (1 - confidence) / (share * len(true))).clamp_min(0.0).sqrt()
    diagonal(axes)
    axes.errorbar(
        confidence.numpy(),
        accuracy.numpy(),
        half.numpy(),
        fmt="o-",
        color=color,
        markersize=4,
        elinewidth=0.8,
        label=joined(label, f"ECE {error:.3f}"),
    )
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    return axes


def risk_coverage(
    axes: "Axes",
    errors: Shaped[Array, "n"],
    scores: Float[Array, "n"],
    *,
    color: str = PALETTE["ours"],
    label: str | None = None,
) -> "Axes":
    """The mean error of the share of rows kept, the most certain first; at 1 it is everyone's.

        risk(k/n) = (1/k) Σ_{i ≤ k} error_(i),   rows in the order of their scores

    A score that knows where errors are makes it rise. Errors of classes may be 0 and 1, or False
    and True. The first fiftieth of rows, too few for a mean, is not drawn.
    """
    share, risk = metrics.risk_coverage(as_tensor(errors).double(), as_tensor(scores))
    drawn = slice(len(share) // 50, None)
    at, height = share[drawn].numpy(), risk[drawn].numpy()
    (line,) = axes.plot(at, height, color=color, linewidth=1.8, label=label)
    line.sticky_edges.y.append(0.0)  # the axes begin at 0, and still grow with the next curve
    axes.update_datalim([(0.0, 0.0)])
    axes.autoscale_view()
    axes.set(xlabel="share of rows kept, most certain first", ylabel="mean error")
    return axes


def class_boxes(
    axes: "Axes",
    probabilities: Float[Array, "s c"],
    names: Sequence[str],
    *,
    color: str = PALETTE["ours"],
) -> "Axes":
    """One box per class: the probability p_c = softmax(g(x, z))_c at one row, over draws of z.

    Boxes hold the middle half of the draws, whiskers reach 1.5 times as far, dots are the rest.
    """
    drawn = as_tensor(probabilities)
    require_shapes(probabilities=(drawn, "s c"))
    if len(names) != drawn.shape[1]:
        raise ValueError(f"there must be {drawn.shape[1]} names, one per class, got {len(names)}.")
    axes.boxplot(
        drawn.numpy(),
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
