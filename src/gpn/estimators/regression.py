"""Regressors: targets, one or several, in the units they came in."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from gpn import acquisition
from gpn.caller import warn_caller
from gpn.core.checkpoint import Where
from gpn.core.diagnostic import GPNWarning
from gpn.core.posterior import Posterior
from gpn.estimators.base import DRAWS, Array, as_array, as_seed, most_unknown, to_numpy
from gpn.estimators.calibration import CalibratedIntervals
from gpn.estimators.outliers import warn_of_targets
from gpn.estimators.pieces import in_pieces
from gpn.scaling import Scale

MOST_CANDIDATES = 20_000


class OneValueWarning(GPNWarning):
    """All targets are one value, which has no scale."""


class Regressor(RegressorMixin, CalibratedIntervals):
    """Targets, one or several, in the units they came in."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _learn(
        self, X: Any, y: Any, X_unlabeled: Any, sample_weight: Any, checkpoint: Where
    ) -> None:
        X, y = validate_data(
            self,
            as_array(X),
            as_array(y),
            dtype=np.float64,
            y_numeric=True,
            multi_output=True,
            allow_nd=True,
        )
        targets = np.asarray(y, np.float64).reshape(len(y), -1)
        self.n_targets_, self._flat = targets.shape[1], np.ndim(y) == 1
        X, targets = self._weighted(X, targets, sample_weight)
        self.y_scale_ = Scale.of(targets)
        _warn_of(targets)
        self._fit(X, self.y_scale_.apply(targets), X_unlabeled, checkpoint=checkpoint)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:  # noqa: FBT001
        """The mean; with `return_std` the standard deviation of the function beside it.

        With `return_cov` its covariance between rows, ``(n, n)``, or ``(n, n, o)`` for several
        targets.
        """
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov, got both.")
        if not return_cov:
            return self._with_std(X) if return_std else self._mean(X)
        x = self._inputs(X)
        covariance = np.moveaxis(to_numpy(self.posterior_.covariance(x)), 0, -1)
        return self._mean_at(x), self._out(covariance * self.y_scale_.scale**2)

    @in_pieces
    def _mean(self, X: Any) -> Array:
        return self._mean_at(self._inputs(X))

    @in_pieces
    def _with_std(self, X: Any) -> tuple[Array, Array]:
        centre, variance = map(to_numpy, self.posterior_.moments(self._inputs(X)))
        std = np.sqrt(variance) * self.y_scale_.scale
        return self._out(self.y_scale_.undo(centre)), self._out(std)

    def _mean_at(self, x: torch.Tensor) -> Array:
        return self._out(self.y_scale_.undo(to_numpy(self.posterior_.mean(x))))

    @in_pieces
    def predict_interval(
        self, X: Any, level: float = 0.95, *, observation_noise: bool | None = None
    ) -> tuple[Array, Array]:
        """The ends of the middle `level`: of a new label, or of the function without its noise.

        None is a new label's wherever the fit knows the noise of labels. After `calibrate`, a
        label's interval is the one that holds `level` of labels, by the calibration rows.
        """
        x = self._inputs(X)
        known = self.posterior_.noise_std is not None
        noisy = known if observation_noise is None else observation_noise
        if self.calibration_scores_ is not None and observation_noise is not False:
            ends = self._calibrated_ends(x, level)
        else:
            ends = self.posterior_.interval(x, level, observation_noise=noisy)
        low, high = (self._out(self.y_scale_.undo(to_numpy(end))) for end in ends)
        return low, high

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Functions of the posterior at the rows: ``(n, s)``, or ``(n, o, s)``."""
        return self._sampled(self._draws(self._inputs(X), n_samples, as_seed(random_state)))

    def _sampled(self, draws: torch.Tensor) -> Array:
        last = np.moveaxis(self.y_scale_.undo(to_numpy(draws)), 0, -1)
        return last[:, 0] if self._flat else last

    def suggest(self, X_pool: Any, n: int = 1) -> NDArray[np.int64]:
        """The numbers of the `n` rows whose labels would leave the least variance in the pool."""
        x = self._inputs(X_pool)
        some = most_unknown(torch.from_numpy(self._scores(x)), max(MOST_CANDIDATES, n))
        noise = self.posterior_.noise_std or 0.0
        root = self.posterior_.covariance_root(x[some], DRAWS).cpu().double()
        picked = acquisition.reduce_variance(root, n, noise**2)
        return to_numpy(some[picked])

    def _scores(self, x: torch.Tensor, posterior: Posterior | None = None) -> Array:
        under = posterior or self.posterior_
        return to_numpy(under.variance(x).double().sum(1).sqrt())

    def _out(self, values: Array) -> Array:
        """One target as it came: without an axis of its own."""
        return values[..., 0] if self._flat else values


def _warn_of(targets: Array) -> None:
    """What a look at the targets alone tells: no spread at all, or all of it in a few of them."""
    flat = np.flatnonzero(np.ptp(targets, axis=0) == 0)
    if len(flat):
        which = "y" if targets.shape[1] == 1 else f"target {flat[0]} of y"
        warn_caller(
            f"{which} should hold two values at least, got {targets[0, flat[0]]:g} only; one value "
            "does not tell how far others are from it, so that the width of intervals is in units "
            "of 1, whatever those mean; add labels, or divide y by the size of its changes.",
            OneValueWarning,
        )
    warn_of_targets(targets)
