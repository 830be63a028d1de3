"""Calibration on labeled rows that the fit has not seen: intervals and sets that keep their word.

Split conformal prediction (`conformal.py`): where new rows come from where the calibration
rows came from, `level` of their labels lie in their intervals or sets, however wrong the model is.
On average over such rows, that is; not at each one, and not at strangers.
"""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from gpn.core.checks import require_level
from gpn.estimators.base import Array, Estimator, as_array, to_numpy
from gpn.estimators.chunks import in_chunks
from gpn.estimators.conformal import class_scores, conformal_quantile, interval_scores
from gpn.estimators.scaling import Scale
from gpn.training.checkpoint import CheckpointLike

SMALLEST_STD = 1e-6  # of a target's own, so that a model that is sure of itself can be corrected


class Calibrated(Estimator):
    """What both kinds share: `calibration_scores_` ``(n, o)`` is None until `calibrate`."""

    calibration_scores_: Array | None

    def fit(
        self,
        X: Any,
        y: Any,
        X_unlabeled: Any = None,
        sample_weight: Any = None,
        checkpoint: CheckpointLike = None,
    ) -> Self:
        """Learn from labeled rows, and from unlabeled ones like those that will be asked about.

        Unlabeled rows may be too many for memory: a memory-mapped array, a torch Dataset or a
        `gpn.DiskPool`. A row counts as often as its weight says. `checkpoint`, a path, keeps the
        fit in that file while it runs: killed and called again, it goes on from there.
        What `calibrate` learnt is forgotten.
        """
        self._learn(X, y, X_unlabeled, sample_weight, checkpoint)
        self.calibration_scores_ = None
        return self

    def _learn(
        self, X: Any, y: Any, X_unlabeled: Any, sample_weight: Any, checkpoint: CheckpointLike
    ) -> None:
        """Check rows and labels of this kind, and fit."""
        raise NotImplementedError

    def calibrate(self, X: Any, y: Any) -> Self:
        """Learn from labeled rows that `fit` has not seen how far labels are from predictions.

        19 rows are enough for 95 % (⌈level / (1 − level)⌉), a few hundred for a steady width.
        """
        self._check_axes(X)
        numeric: dict[str, Any] = {"y_numeric": True, "multi_output": True}
        kind = {} if self.posterior_.signature.is_classification else numeric
        X, y = validate_data(
            self, as_array(X), as_array(y), reset=False, dtype=np.float64, allow_nd=True, **kind
        )
        scores = self._label_scores(self._rows(X), y)
        self.calibration_scores_ = np.sort(to_numpy(scores.double()), axis=0)
        return self

    def _label_scores(self, x: torch.Tensor, y: Array) -> torch.Tensor:
        """How badly each label fits: ``(n, o)``."""
        raise NotImplementedError

    def _reach(self, level: float) -> torch.Tensor:
        """The score that new labels stay within with probability `level`, for each output."""
        assert self.calibration_scores_ is not None
        return conformal_quantile(torch.from_numpy(self.calibration_scores_), level)


class CalibratedIntervals(Calibrated):
    """Intervals mean ± q √(Var[g] + σ_ε²), q from |y − mean| / √… of the calibration rows."""

    y_scale_: Scale

    def _label_law(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and standard deviation of a label, in scaled units."""
        noise = self.posterior_.noise_std or 0.0
        mean, variance = self.posterior_.moments(x)
        total = (variance.double() + noise**2).sqrt()
        return mean.double(), total.clamp_min(SMALLEST_STD)

    def _label_scores(self, x: torch.Tensor, y: Array) -> torch.Tensor:
        mean, std = self._label_law(x)
        targets = np.asarray(y, np.float64).reshape(len(y), -1)
        if targets.shape[1] != mean.shape[1]:
            raise ValueError(
                f"y must have {mean.shape[1]} targets as in the fit, got {targets.shape[1]}."
            )
        scaled = torch.from_numpy(self.y_scale_.apply(targets)).to(mean)
        return interval_scores(scaled, mean, std)

    def _calibrated_ends(self, x: torch.Tensor, level: float) -> tuple[torch.Tensor, torch.Tensor]:
        mean, std = self._label_law(x)
        half = self._reach(level).to(std) * std
        return mean - half, mean + half


class CalibratedSets(Calibrated):
    """Sets of classes that are probable enough: 1 − p_c ≤ q, q from 1 − p of the right ones."""

    classes_: Array

    def _probabilities(self, x: torch.Tensor) -> Array:
        p = to_numpy(self.posterior_.probabilities(x).double())
        return p / p.sum(1, keepdims=True)

    def _label_scores(self, x: torch.Tensor, y: Array) -> torch.Tensor:
        classes = torch.from_numpy(class_numbers(self.classes_, y))
        return class_scores(torch.from_numpy(self._probabilities(x)), classes)

    @in_chunks
    def predict_set(self, X: Any, level: float = 0.95) -> NDArray[np.bool_]:
        """Which classes a row may have, ``(n, classes)``: `level` of new rows have theirs in it.

        Columns are as in `classes_`. Several where it could be either; none where no class is as
        probable as the right one usually is. Call `calibrate` first.
        """
        check_is_fitted(self)
        require_level(level)
        if self.calibration_scores_ is None:
            raise ValueError(
                "a set of classes must rest on labeled rows that the fit has not seen, got none "
                "yet; call calibrate(X, y) first."
            )
        return 1 - self._probabilities(self._inputs(X)) <= to_numpy(self._reach(level))


def class_numbers(classes: Array, y: Array) -> NDArray[np.int64]:
    """The place of every label among the classes of the fit."""
    places = {name: i for i, name in enumerate(classes.tolist())}
    unknown = sorted({name for name in y.tolist() if name not in places}, key=str)
    if unknown:
        raise ValueError(
            f"classes must be those of the fit, {list(places)}, got {unknown[0]!r}, too."
        )
    return np.array([places[name] for name in y.tolist()], dtype=np.int64)
