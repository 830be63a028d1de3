"""How well scores detect out-of-distribution rows."""

import itertools
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from gpn import metrics
from gpn.core.checks import require_count, require_shapes
from gpn.plots.axes import Array, as_tensor, draw_diagonal, label_with
from gpn.plots.palette import CYCLE, INK, PALETTE

MAX_LINEAR_RATIO = 50.0


def roc(
    axes: Axes,
    scores_id: Float[Array, "n"],
    scores_ood: Float[Array, "m"],
    *,
    color: str = PALETTE["ours"],
    label: str = "",
) -> Axes:
    """OOD rows found against false alarms as the threshold t falls, with the AUC in the label.

    (P[score_id ≥ t], P[score_ood ≥ t]); AUC = P[score_ood > score_id], ties counted half.
    """
    scores = as_tensor(scores_id), as_tensor(scores_ood)
    named = label_with(label, f"AUC {metrics.ood_auc(*scores):.3f}")
    return roc_curve(axes, *metrics.ood_roc(*scores), color=color, label=named)


def roc_curve(
    axes: Axes,
    false_alarms: Float[Array, "k"],
    found: Float[Array, "k"],
    *,
    color: str = PALETTE["ours"],
    label: str | None = None,
    linewidth: float = 1.8,
) -> Axes:
    """A curve of `metrics.ood_roc`, over the diagonal of random scores."""
    draw_diagonal(axes)
    at, height = as_tensor(false_alarms), as_tensor(found)
    require_shapes(false_alarms=(at, "k"), found=(height, "k"))
    axes.plot(at.numpy(), height.numpy(), color=color, linewidth=linewidth, label=label)
    axes.set(xlabel="false alarms", ylabel="OOD rows found")
    return axes


def ood_histogram(
    axes: Axes,
    scores: Mapping[str, Float[Array, "_"]],
    *,
    bins: int = 40,
    threshold: float | None = None,
) -> Axes:
    """The share of rows per bin of score, one outline per set of rows, the same bins for all.

    Bins and axis are logarithmic where scores are positive and most of them span a factor of fifty
    or more; scores of 0 then count in the first bin. A dashed line marks the `threshold`.
    """
    sets = {name: as_tensor(values).double() for name, values in scores.items()}
    if not sets:
        raise ValueError("scores must name at least one set of rows, got none.")
    require_count("bins", bins)
    for name, values in sets.items():
        require_shapes(**{f"the scores of {name!r}": (values, "n")})
    everything = torch.cat(list(sets.values()))
    if not bool(everything.isfinite().all()):
        raise ValueError("scores must be finite to be drawn, got NaN or infinity.")
    logarithmic = _is_wide(everything)
    binned = everything[everything > 0].log10() if logarithmic else everything
    ends = np.histogram_bin_edges(binned.numpy(), bins)
    edges = 10**ends if logarithmic else ends
    for color, (name, values) in zip(itertools.cycle(CYCLE), sets.items(), strict=False):
        counts, _ = np.histogram(values.clamp_min(edges[0]).numpy(), edges)
        shares = counts / len(values)
        axes.stairs(shares, edges, fill=True, color=color, alpha=0.22)
        axes.stairs(shares, edges, color=color, linewidth=1.6, label=name)
    if threshold is not None:
        axes.axvline(threshold, color=INK, linestyle="--", linewidth=1.2, label="flagged beyond")
    scale = "log" if logarithmic else "linear"
    axes.set(xlabel="OOD score", ylabel="share of rows", xscale=scale)
    return axes


def _is_wide(values: Float[Tensor, "n"]) -> bool:
    """Whether the middle 98 % of positive scores spans more than a linear axis can show."""
    if bool((values < 0).any()) or not bool((values > 0).any()):
        return False
    low, high = np.quantile(values[values > 0].numpy(), [0.01, 0.99])
    return bool(high > MAX_LINEAR_RATIO * low)
