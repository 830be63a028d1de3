"""Plots: each function draws on the Axes that it gets and returns them; `pip install gpn[plots]`.

    axes = Figure().subplots()
    plots.roc(axes, model.ood_score(X_test), model.ood_score(X_ood), label="GPN").legend()

No function touches pyplot, and `gpn.metrics` computes what they show. Several calls on one Axes
compare several methods.
"""

from gpn.plots.calibration import calibration, class_boxes, intervals, reliability, risk_coverage
from gpn.plots.detection import ood_histogram, roc, roc_curve
from gpn.plots.models import model_figure
from gpn.plots.palette import INK, METHOD_COLORS, PALETTE, method_color
from gpn.plots.posterior import (
    band,
    code_colors,
    code_functions,
    code_plane,
    functions,
    observations,
    outline,
)

__all__ = [
    "INK",
    "METHOD_COLORS",
    "PALETTE",
    "band",
    "calibration",
    "class_boxes",
    "code_colors",
    "code_functions",
    "code_plane",
    "functions",
    "intervals",
    "method_color",
    "model_figure",
    "observations",
    "ood_histogram",
    "outline",
    "reliability",
    "risk_coverage",
    "roc",
    "roc_curve",
]
