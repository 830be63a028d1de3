"""Regressors: targets, one or several, in the units they came in."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data
from torch import Tensor

from gpn.core.posterior.base import Posterior
from gpn.core.warnings import GPNWarning, warn_caller
from gpn.estimators import active_learning as acquisition
from gpn.estimators.base import (
    DRAWS,
    Array,
    _Named,
    as_array,
    as_seed,
    most_unknown,
    to_numpy,
)
from gpn.estimators.calibration import CalibratedIntervals
from gpn.estimators.chunks import in_chunks
from gpn.estimators.gpn import _GPN
from gpn.estimators.scaling import Scale
from gpn.estimators.sentinels import warn_of_targets
from gpn.methods.gpn import GPNPosterior
from gpn.training.checkpoint import CheckpointLike

MAX_CANDIDATES = 20_000


class OneValueWarning(GPNWarning):
    """All targets are one value, which has no scale."""


class Regressor(RegressorMixin, CalibratedIntervals):
    """Targets, one or several, in the units they came in."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _learn(
        self, X: Any, y: Any, X_unlabeled: Any, sample_weight: Any, checkpoint: CheckpointLike
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

    @in_chunks
    def _mean(self, X: Any) -> Array:
        return self._mean_at(self._inputs(X))

    @in_chunks
    def _with_std(self, X: Any) -> tuple[Array, Array]:
        centre, variance = map(to_numpy, self.posterior_.moments(self._inputs(X)))
        std = np.sqrt(variance) * self.y_scale_.scale
        return self._out(self.y_scale_.undo(centre)), self._out(std)

    def _mean_at(self, x: torch.Tensor) -> Array:
        return self._out(self.y_scale_.undo(to_numpy(self.posterior_.mean(x))))

    @in_chunks
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
        some = most_unknown(torch.from_numpy(self._scores(x)), max(MAX_CANDIDATES, n))
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


class GPNRegressor(_GPN, Regressor):
    """A Generative Posterior Network for numbers.

    config: everything that can be set of a GPN; None chooses from the data, a prior's smoothness
    and the noise of labels by marginal likelihood where the fit follows a posterior. module: your
    own trunk, a torch module from rows to features, or one of gpn's trunks; if its parameters want
    no gradient it is used as it is, on rows as they are given, and only what follows it is trained.
    A model with a torch module is saved by pickle or joblib, others by `save`, too.
    device: "auto" takes a GPU if there is one. verbose: a progress bar.

    A search names what it changes: GridSearchCV(GPNRegressor(), {"config__beta": [0.1, 1.0]}).
    """

    def _left_out_scores(self, x: Tensor) -> Array:
        """(v₋ + max(0, Var[g] − v))^{1/2} at the labels `x`, with v and v₋ of the exact posterior:
        where the network has more variance than that, so it has at new rows."""
        assert isinstance(self.posterior_, GPNPosterior)
        found = self.posterior_.fit_report.label_variance
        assert found is not None
        exact, left_out = (
            self.n_targets_ * to_numpy(variance.double())  # of every target
            for variance in (found.given_all, found.leave_one_out)
        )
        return np.sqrt(left_out + (self._scores(x) ** 2 - exact).clip(0))


class PosteriorRegressor(_Named, Regressor):
    """Any method of `gpn.methods` for numbers: `method` names it, `settings` changes its config."""
