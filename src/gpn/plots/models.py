"""One figure of a fitted estimator: what `model.plot(X, y)` draws."""

import io
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_consistent_length

from gpn.plots.calibration import intervals, reliability
from gpn.plots.detection import ood_histogram
from gpn.plots.palette import PALETTE

Array = NDArray[Any]
MAX_BARS = 200
PANEL_INCHES = 4.6
ROWS_PER_BIN = 15


class ModelFigure(Figure):
    """A figure that a notebook shows, with or without pyplot."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, dpi=110)
        return content.getvalue()


def model_figure(model: Any, X: Any, y: Any, *, level: float = 0.95) -> ModelFigure:
    """Predictions against the truth, and OOD scores.

    Numbers: each row's interval and mean against its true value, one panel per target. Classes: a
    reliability diagram. Beside them, the scores of these rows and of the labels of the fit, which
    were left out of the fit or scored as if they had been.
    """
    check_consistent_length(X, y)
    targets = np.asarray(y)
    columns = 1 if is_classifier(model) or targets.ndim == 1 else targets.shape[1]
    figure = ModelFigure(figsize=(PANEL_INCHES * (columns + 1), 4.2), layout="constrained")
    *panels, last = figure.subplots(1, columns + 1)
    if is_classifier(model):
        _class_panel(panels[0], model, X, targets)
    else:
        _target_panels(panels, model, X, targets.reshape(len(targets), -1), level)
    scores = {"these rows": model.ood_score(X), "labels of the fit": model.reference_scores_}
    ood_histogram(last, scores, threshold=model.threshold())
    last.set_title(f"{model.is_ood(X).mean():.0%} of these rows are flagged")
    last.legend(frameon=False)
    return figure


def _class_panel(axes: Axes, model: Any, X: Any, y: Array) -> None:
    known = np.isin(y, model.classes_)
    if not known.all():
        raise ValueError(
            f"y must hold classes of the fit, got {np.unique(y[~known])[:3].tolist()}; "
            f"the fit has {len(model.classes_)} classes."
        )
    codes = np.searchsorted(model.classes_, y)
    p = np.asarray(model.predict_proba(X), np.float64)
    accuracy = np.mean(p.argmax(1) == codes)
    bins = int(np.clip(len(codes) // ROWS_PER_BIN, 4, 15))
    reliability(axes, p, codes, bins=bins).set_title(f"accuracy {accuracy:.1%}")
    axes.legend(frameon=False, loc="upper left")


def _target_panels(panels: list[Axes], model: Any, X: Any, y: Array, level: float) -> None:
    found = model.predict_all(X, level=level)
    mean, low, high = (np.reshape(found[i], (len(y), -1)) for i in (0, 2, 3))
    shown = np.random.default_rng(0).permutation(len(y))[:MAX_BARS]
    flagged = np.asarray(model.is_ood(X))
    for i, axes in enumerate(panels):
        for is_flagged, color, name in ((False, "ours", "known"), (True, "paper", "flagged")):
            rows = shown[flagged[shown] == is_flagged]
            if len(rows):
                shade = PALETTE[color]
                intervals(axes, y[rows, i], low[rows, i], high[rows, i], color=shade, label=name)
                axes.plot(y[rows, i], mean[rows, i], "o", color=shade, markersize=3)
        inside = np.mean((low[:, i] <= y[:, i]) & (y[:, i] <= high[:, i]))
        axes.set_title(f"{inside:.1%} of {len(y):,} labels inside {100 * level:g} % intervals")
        axes.set_ylabel("prediction and interval")
        axes.legend(frameon=False, loc="upper left")
