"""Regressors: one target or several, in the units of the data."""

from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from torch import Tensor

from gpn.core.posterior.base import Posterior
from gpn.core.posterior.gaussian import GaussianPosterior
from gpn.core.types import Outputs
from gpn.core.warnings import GPNWarning, warn_caller
from gpn.estimators.active_learning import reduce_variance
from gpn.estimators.base import Array, Estimator, NamedMethod, as_seed, loadable, to_numpy
from gpn.estimators.calibration import calibrated_interval, label_moments
from gpn.estimators.chunks import in_chunks
from gpn.estimators.conformal import interval_scores
from gpn.estimators.gpn import GPNOptions
from gpn.estimators.scaling import Scale, warn_of_target_sentinels
from gpn.estimators.validation import weighted_rows
from gpn.training.checkpoint import CheckpointLike

MAX_CANDIDATES = 20_000
ROOT_DRAWS = 200
NUMERIC = {"y_numeric": True, "multi_output": True}  # checks of y

Moments = tuple[Outputs, Outputs]


class OneValueWarning(GPNWarning):
    """All targets are one value, which has no scale."""


class Prediction(NamedTuple):
    """Everything that a regressor predicts for rows, in the units of the data."""

    mean: Array
    std: Array
    lower: Array
    upper: Array
    ood_score: Array
    is_ood: NDArray[np.bool_]


class Regressor(RegressorMixin, Estimator):
    """What `GPNRegressor` and `PosteriorRegressor` share: all but the method that is fitted.

    Attributes after `fit`, in addition to those of `Estimator`
        y_scale_: the scale of each target. n_targets_: how many there are.
    """

    y_scale_: Scale
    n_targets_: int
    _flat: bool  # whether y had no axis of targets

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        X_unlabeled: Any = None,
        sample_weight: Any = None,
        checkpoint: CheckpointLike = None,
    ) -> Self:
        """Learn from labeled rows, and from unlabeled rows like those to predict.

        Unlabeled rows may be too many for memory: a memory-mapped array, a torch Dataset or a
        `gpn.DiskPool`. A row counts as often as its weight says. A fit with a `checkpoint`, a
        path, is written to that file while it runs; killed and called again, it resumes there.
        An earlier calibration is forgotten.
        """
        X, y = self._validated(X, y, reset=True, **NUMERIC)
        targets = np.asarray(y, np.float64).reshape(len(y), -1)
        self.n_targets_, self._flat = targets.shape[1], np.ndim(y) == 1
        X, targets = weighted_rows(X, targets, sample_weight, self.random_state)
        self.y_scale_ = Scale.of(targets)
        warn_of_one_value(targets)
        warn_of_target_sentinels(targets)
        self._fit(X, self.y_scale_.apply(targets), X_unlabeled, checkpoint=checkpoint)
        return self

    def calibrate(self, X: Any, y: Any) -> Self:
        """Make intervals hold their level, by labeled rows that `fit` has not seen.

        19 rows are enough for 95 % (⌈level / (1 − level)⌉), a few hundred for a steady width.
        """
        self._check_rows(X)
        X, y = self._validated(X, y, **NUMERIC)
        targets = np.asarray(y, np.float64).reshape(len(y), -1)
        if targets.shape[1] != self.n_targets_:
            raise ValueError(
                f"y must have {self.n_targets_} targets as in the fit, got {targets.shape[1]}."
            )
        moments = self.posterior_.moments(self._scaled(X))
        mean, std = label_moments(*moments, self.posterior_.noise_std)
        scaled = torch.from_numpy(self.y_scale_.apply(targets)).to(mean)
        scores = interval_scores(scaled, mean, std)
        self.calibration_scores_ = np.sort(to_numpy(scores), axis=0)
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:  # noqa: FBT001
        """The mean; with `return_std`, also the standard deviation of the function.

        With `return_cov`, also its covariance between rows: ``(n, n)``, or ``(n, n, o)`` for
        several targets.
        """
        if return_std and return_cov:
            raise ValueError("only one of return_std and return_cov can be set, got both.")
        if return_std:
            return self._mean_and_std(X)
        if not return_cov:
            return self._mean(X)
        x = self._inputs(X)
        covariance = np.moveaxis(to_numpy(self.posterior_.covariance(x)), 0, -1)
        variances = covariance * self.y_scale_.scale**2
        return self._to_units(self.posterior_.mean(x)), self._without_axis(variances)

    @in_chunks
    def _mean(self, X: Any) -> Array:
        x = self._inputs(X)
        return self._to_units(self.posterior_.mean(x))

    @in_chunks
    def _mean_and_std(self, X: Any) -> tuple[Array, Array]:
        x = self._inputs(X)
        mean, variance = self.posterior_.moments(x)
        return self._to_units(mean), self._std(variance)

    @in_chunks
    def predict_interval(
        self, X: Any, level: float = 0.95, *, observation_noise: bool | None = None
    ) -> tuple[Array, Array]:
        """The ends of the central interval of `level`, for a new label or for the function.

        With `observation_noise` it is a label's, without it the function's. None is a label's
        where the fit knows the noise. After `calibrate`, a label's interval is the conformal one.
        """
        return self._interval(self._inputs(X), level, observation_noise=observation_noise)

    @in_chunks
    def predict_all(self, X: Any, level: float = 0.95, fpr: float = 0.05) -> Prediction:
        """Mean, standard deviation, interval and OOD score, from one pass through the network.

        One by one they are `predict`, `predict_interval(X, level)`, `ood_score`, `is_ood(X, fpr)`.
        """
        x, limit = self._inputs(X), self.threshold(fpr)
        mean, variance = self.posterior_.moments(x)
        lower, upper = self._interval(x, level, (mean, variance))
        score = _variance_score(variance)
        return Prediction(
            self._to_units(mean), self._std(variance), lower, upper, score, score > limit
        )

    def _interval(
        self,
        x: Tensor,
        level: float,
        moments: Moments | None = None,
        *,
        observation_noise: bool | None = None,
    ) -> tuple[Array, Array]:
        """`predict_interval` at scaled rows, whose moments may be known already."""
        posterior, noise_std = self.posterior_, self.posterior_.noise_std
        noisy = noise_std is not None if observation_noise is None else observation_noise
        if self.calibration_scores_ is not None and observation_noise is not False:
            mean, std = label_moments(*(moments or posterior.moments(x)), noise_std)
            ends = calibrated_interval(mean, std, self.calibration_scores_, level)
        elif moments is not None and isinstance(posterior, GaussianPosterior):
            ends = posterior.interval_of(*moments, level, observation_noise=noisy)
        else:
            ends = posterior.interval(x, level, observation_noise=noisy)
        return self._to_units(ends[0]), self._to_units(ends[1])

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Functions of the posterior at the rows: ``(n, s)``, or ``(n, o, s)``."""
        return self._to_samples(self._draws(self._inputs(X), n_samples, as_seed(random_state)))

    def suggest(self, X_pool: Any, n: int = 1) -> NDArray[np.int64]:
        """The numbers of the `n` rows whose labels would leave the least variance in the pool."""
        x = self._inputs(X_pool)
        scores = torch.from_numpy(self._ood_scores(self.posterior_, x))
        rows = scores.topk(min(len(scores), max(MAX_CANDIDATES, n))).indices.sort().values
        root = self.posterior_.covariance_root(x[rows], ROOT_DRAWS).cpu().double()
        picked = reduce_variance(root, n, (self.posterior_.noise_std or 0.0) ** 2)
        return to_numpy(rows[picked])

    def _ood_scores(self, posterior: Posterior, x: Tensor) -> Array:
        return _variance_score(posterior.variance(x))

    def _to_samples(self, draws: Tensor) -> Array:
        last = np.moveaxis(self.y_scale_.undo(to_numpy(draws)), 0, -1)
        return last[:, 0] if self._flat else last

    def _to_units(self, values: Outputs) -> Array:
        """Scaled targets in the units of the data."""
        return self._without_axis(self.y_scale_.undo(to_numpy(values)))

    def _std(self, variance: Outputs) -> Array:
        return self._without_axis(np.sqrt(to_numpy(variance)) * self.y_scale_.scale)

    def _without_axis(self, values: Array) -> Array:
        """A single target loses its axis where y had none."""
        return values[..., 0] if self._flat else values


def _variance_score(variance: Outputs) -> Array:
    """The square root of the variance summed over targets: the OOD score."""
    return to_numpy(variance.double().sum(1).sqrt())


def warn_of_one_value(targets: Array) -> None:
    """Warn where all values of a target are equal."""
    constant = np.flatnonzero(np.ptp(targets, axis=0) == 0)
    if len(constant):
        which = "y" if targets.shape[1] == 1 else f"target {constant[0]} of y"
        warn_caller(
            f"{which} should hold two values at least, got {targets[0, constant[0]]:g} only; one "
            "value has no scale, so that intervals are as wide as if the standard deviation of y "
            "were 1; add labels, or divide y by the size of its changes.",
            OneValueWarning,
        )


@loadable
class GPNRegressor(GPNOptions, Regressor):
    """A Generative Posterior Network for numbers.

    config: all settings of a GPN; None chooses them from the data. Where the fit approximates the
    exact posterior, prior and noise are chosen by marginal likelihood. module: your own trunk, a
    torch module from rows to features, or one of gpn's trunks. A module whose parameters need no
    gradient is frozen: it gets rows without scaling, and only the layers after it are trained.
    A model with a torch module is saved by pickle or joblib, any other also by `save`.
    device: "auto" takes a GPU if there is one. verbose: a progress bar.

    A search names what it changes: GridSearchCV(GPNRegressor(), {"config__beta": [0.1, 1.0]}).
    """


@loadable
class PosteriorRegressor(NamedMethod, Regressor):
    """Any method of `gpn.methods` for numbers: `method` names it, `settings` changes its config."""
