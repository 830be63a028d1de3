"""Regressors: one target or several, in the units of the data."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from torch import Tensor, nn

from gpn.core.networks.trunks import MLPTrunk, Trunk
from gpn.core.posterior.base import Posterior
from gpn.core.posterior.gaussian import GaussianPosterior
from gpn.core.priors.ard import ARDPrior
from gpn.core.task import Task, lazy_pool
from gpn.core.types import Outputs, as_generator
from gpn.core.warnings import GPNWarning, warn_caller
from gpn.estimators.active_learning import reduce_exact_variance, reduce_variance
from gpn.estimators.base import Array, Estimator, NamedMethod, as_seed, loadable, to_numpy
from gpn.estimators.chunks import in_chunks
from gpn.estimators.closed_form.choice import (
    MAX_CROSS_VALIDATED,
    Choice,
    choose,
    warn_of_edge,
)
from gpn.estimators.closed_form.follow import (
    MAX_FOLLOWED_ROWS,
    calibration_share,
    rows_to_follow,
)
from gpn.estimators.closed_form.mean import FOLDS, MeanModel
from gpn.estimators.gpn import GPNOptions
from gpn.estimators.intervals.calibration import MIN_STD, calibrated_interval, label_moments
from gpn.estimators.intervals.conformal import interval_scores
from gpn.estimators.intervals.distribution import LabelDistribution
from gpn.estimators.intervals.label_noise import LabelNoise, Residuals, learn_label_noise
from gpn.estimators.ood.label_range import LabelRange, Spread
from gpn.estimators.scaling import Scale, warn_of_target_sentinels
from gpn.estimators.thresholds import Fit, ThresholdRule, unseen_labels
from gpn.estimators.validation import checked_pool, repeated_rows, warn_of_copies, weighted_rows
from gpn.methods.gpn import GPN, GPNConfig, GPNPosterior
from gpn.methods.gpn.defaults import resolve
from gpn.methods.gpn.fit_report import FitReport, UnseenLabels
from gpn.methods.gpn.fitting.context import calibration_rows
from gpn.methods.gpn.posterior import ClosedFormPosterior
from gpn.training.checkpoint import CheckpointLike
from gpn.training.config import TrainConfig
from gpn.training.progress import progress_bar
from gpn.training.torch_state import one_thread

MAX_CANDIDATES, MAX_EXACT_CANDIDATES = 20_000, 3000
ROOT_DRAWS = 200
MIN_NOISE_LABELS, MIN_RANGE_LABELS = 10, 200
MAX_WIDER, MIN_VARIANCE = 10.0, 1e-12
MAX_PRIOR_ROWS = 200
MIN_PRIOR_VARIANCE, MAX_PRIOR_VARIANCE = 2.0, 4.0
MAX_ONE_THREAD_LABELS = 1000
STEPS = FOLDS + 2  # of a fit in closed form: the folds of a mean model, and priors twice
NUMERIC = {"y_numeric": True, "multi_output": True}  # checks of y

Moments = tuple[Outputs, Outputs]


class RowMoments(NamedTuple):
    """What the posterior says of rows before the gate, and P(known | x) ``(n, 1)``."""

    mean: Outputs
    variance: Outputs
    known: Tensor


class OneValueWarning(GPNWarning):
    """All targets are one value, which has no scale."""


class Prediction(NamedTuple):
    """Everything that a regressor predicts for rows, in the units of the data.

    std: of the function. std_total: of a new label, function and noise together.
    """

    mean: Array
    std: Array
    lower: Array
    upper: Array
    ood_score: Array
    is_ood: NDArray[np.bool_]
    std_total: Array


class Regressor(RegressorMixin, Estimator):
    """What `GPNRegressor` and `PosteriorRegressor` share: all but the method that is fitted.

    Attributes after `fit`, in addition to those of `Estimator`
        y_scale_: the scale of each target. n_targets_: how many there are.
        label_noise_: how labels scatter about the posterior, for each target; None where no label
        was left to see it.
        label_range_: the range of the labels, for the OOD score; None where the scatter is unknown,
        or nearly all rows are copies of others.
    """

    y_scale_: Scale
    n_targets_: int
    label_noise_: tuple[LabelNoise, ...] | None
    label_range_: LabelRange | None
    _flat: bool  # whether y had no axis of targets
    _weights: Tensor | None = None  # of labels during a fit in closed form

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

        Rows may be an array, a sparse matrix or a frame; columns of a frame that hold texts, dates
        or categories become numbers as in `gpn fit`. Missing numbers are taken as their column's
        median. Unlabeled rows may be too many for memory: a memory-mapped array, a torch Dataset
        or a `gpn.DiskPool`. A fit with a `checkpoint`, a path, is written to that file while it
        runs; killed and called again, it resumes there. A fit in closed form takes seconds and
        writes no checkpoint. An earlier calibration is forgotten.

        In closed form a label of weight c has the noise variance σ²/c, for every c > 0: it counts
        as c labels of its value. A row of weight 0 is as if absent. Where σ is learnt, only ratios
        of weights matter, and intervals are those of a label of mean weight. A network, and any
        other method, learns from repeated rows: whole weights are numbers of copies up to a mean
        of ten, others are rounded in proportion, to n rows in all.
        """
        X, y = self._validated(X, y, reset=True, **NUMERIC)
        targets = np.asarray(y, np.float64).reshape(len(y), -1)
        warn_of_copies(X, targets)
        self.n_targets_, self._flat = targets.shape[1], np.ndim(y) == 1
        weights = None
        if self._is_closed_form(X, has_pool=X_unlabeled is not None):
            X, targets, weights = weighted_rows(X, targets, sample_weight)
        else:
            X, targets = repeated_rows(X, targets, sample_weight, self.random_state)
        self.y_scale_ = Scale.of(targets, weights)
        warn_of_one_value(targets)
        warn_of_target_sentinels(targets)
        self._weights = None if weights is None else torch.from_numpy(weights)
        self._fit(X, self.y_scale_.apply(targets), X_unlabeled, checkpoint=checkpoint)
        self._weights = None
        return self

    def calibrate(self, X: Any, y: Any, X_target: Any = None) -> Self:
        """Make intervals hold their level, by labeled rows that `fit` has not seen.

        19 rows are enough for 95 % (⌈level / (1 − level)⌉), a few hundred for a steady width.

        With `X_target`, unlabeled rows of another distribution than X, the level holds on rows like
        those, as far as they overlap with X: calibration rows count by how much likelier they are
        among the target rows (`gpn.estimators.intervals.shift`). Where labels given x differ, too,
        nothing helps but labels.
        """
        self._check_rows(X)
        X, y = self._validated(X, y, **NUMERIC)
        targets = np.asarray(y, np.float64).reshape(len(y), -1)
        if targets.shape[1] != self.n_targets_:
            raise ValueError(
                f"y must have {self.n_targets_} targets as in the fit, got {targets.shape[1]}."
            )
        mean, std = self._label_moments(self._scaled(X))
        scaled = torch.from_numpy(self.y_scale_.apply(targets)).to(mean)
        scores = interval_scores(scaled, mean, std)
        self._set_calibration(X, to_numpy(scores), X_target)
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:  # noqa: FBT001
        """The mean; with `return_std`, also the standard deviation of the function (epistemic).

        That of a new label, function and noise together, is `predict_distribution(X).std()`. With
        `return_cov`, also the covariance between rows: ``(n, n)``, or ``(n, n, o)`` for several
        targets.
        """
        if return_std and return_cov:
            raise ValueError("only one of return_std and return_cov can be set, got both.")
        if return_std:
            return self._mean_and_std(X)
        if not return_cov:
            return self._mean(X)
        x = self._inputs(X)
        covariance = np.moveaxis(to_numpy(self._posterior.covariance(x)), 0, -1)
        variances = covariance * self.y_scale_.scale**2
        return self._to_units(self.posterior_.mean(x)), self._without_axis(variances)

    @in_chunks
    def _mean(self, X: Any) -> Array:
        x = self._inputs(X)
        return self._to_units(self.posterior_.mean(x))

    @in_chunks
    def _mean_and_std(self, X: Any) -> tuple[Array, Array]:
        x = self._inputs(X)
        found = self._moments(x)
        return self._to_units(found.mean), self._std(self._gated_variance(found))

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
        """Mean, deviations, interval, OOD score and flag, from one pass through the network.

        One by one they are `predict`, `predict_interval(X, level)`, `ood_score`, `is_ood(X, fpr)`
        and `predict_distribution(X).std()`.
        """
        limit = self.threshold(fpr)
        found = self._in_blocks(lambda x: self._predicted(x, level, limit), X)
        return found._replace(is_ood=found.is_ood | self._unseen(X))

    def _predicted(self, x: Tensor, level: float, limit: float) -> Prediction:
        """Everything at scaled rows; categories that are new play no part."""
        odds = None if self.detector_ is None else self._log_odds(x)
        found = self._moments(x, odds)
        said = self._distribution(x, found)
        lower, upper = self._interval(x, level, found, said)
        score = _variance_score(found.variance)
        if self.detector_ is not None and odds is not None:
            score = self.detector_.probability(self._score_log_odds(x, odds, found))
        std = self._std(self._gated_variance(found))
        mean, is_ood = self._to_units(found.mean), score > limit
        return Prediction(mean, std, lower, upper, score, is_ood, said.std())

    @in_chunks
    def predict_quantiles(self, X: Any, q: Any) -> Array:
        """The quantiles `q` of a new label: ``(n,)`` for one number, else ``(n, len(q))``, and the
        targets' axis in between where there are several."""
        levels = np.asarray(q, np.float64)
        if levels.size == 0 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantiles must lie strictly between 0 and 1, got {q!r:.100}.")
        found = self.predict_distribution(X)
        if levels.ndim == 0:
            return found.ppf(float(levels))
        return np.stack([found.ppf(level) for level in levels.ravel()], axis=-1)

    def predict_distribution(self, X: Any) -> LabelDistribution:
        """The distribution of a new label at each row: its mean, std, pdf, cdf, ppf, rvs, crps."""
        x = self._inputs(X)
        return self._distribution(x, self._moments(x))

    def _moments(self, x: Tensor, log_odds: Array | None = None) -> RowMoments:
        """Moments at scaled rows, whose log odds may be known already."""
        mean, variance = self.posterior_.moments(x)
        if log_odds is None or self.detector_ is None or not self._has_gate:
            known = self._known(x)
        else:
            known = torch.from_numpy(1 - self.detector_.doubt(log_odds))
        return RowMoments(mean, variance, known[:, None].to(mean.device))

    def _scores(self, x: Tensor) -> Array:
        if self.detector_ is None or self.label_range_ is None:
            return super()._scores(x)
        odds = self._log_odds(x)
        found = RowMoments(*self.posterior_.moments(x), torch.ones(len(x), 1))
        return self.detector_.probability(self._score_log_odds(x, odds, found))

    def _score_log_odds(self, x: Tensor, odds: Array, found: RowMoments) -> Array:
        """The detector's log odds, and what labels that may lie beyond all labels add to them."""
        if self.label_range_ is None:
            return odds
        total: Array = odds + self.label_range_.log_odds(self._spread(x, found))
        return total

    def _spread(self, x: Tensor, found: RowMoments) -> Spread:
        """The distribution of scaled labels at scaled rows that are known."""
        rows, variances = to_numpy(x.double()), to_numpy(found.variance.double())
        columns = zip(self._noise, variances.T, strict=True)
        scale = np.stack([noise.scale(rows, column) for noise, column in columns], axis=1)
        freedom = np.array([noise.freedom for noise in self._noise])
        return Spread(to_numpy(found.mean.double()), scale, freedom)

    @property
    def _noise(self) -> tuple[LabelNoise, ...]:
        """The scatter of each target's labels; without one, the noise of the posterior."""
        if self.label_noise_ is not None:
            return self.label_noise_
        return (LabelNoise((self.posterior_.noise_std or 0.0) ** 2),) * self.n_targets_

    @property
    def _reference_log_odds(self) -> Array:
        label_range = getattr(self, "label_range_", None)
        return super()._reference_log_odds if label_range is None else label_range.reference

    def _prior_variance(self, variance: Outputs) -> Outputs:
        """v₀ of unknown rows: never less than the posterior's own variance."""
        return variance.clamp_min(self.gate_variance_)

    def _gated_variance(self, found: RowMoments) -> Outputs:
        """s v + (1 − s) v₀, the function's variance."""
        if self.detector_ is None or not self._has_gate:
            return found.variance
        prior = self._prior_variance(found.variance)
        return found.variance + (1 - found.known).to(prior) * (prior - found.variance)

    def _distribution(self, x: Tensor, found: RowMoments) -> LabelDistribution:
        """The same at scaled rows, in the units of the data."""
        spread = self._spread(x, found)
        scale = spread.scale
        location = self._to_units(found.mean.double())
        parts = [scale * self.y_scale_.scale, np.broadcast_to(spread.freedom, scale.shape)]
        if self.detector_ is not None and self._has_gate:
            noises = np.array([each.noise_variance for each in self._noise])
            other = np.sqrt(to_numpy(self._prior_variance(found.variance.double())) + noises)
            parts.append(np.broadcast_to(to_numpy(found.known.double()), scale.shape))
            parts.append(np.maximum(other, scale) * self.y_scale_.scale)
        return LabelDistribution(location, *(self._without_axis(part) for part in parts))

    def _interval(
        self,
        x: Tensor,
        level: float,
        moments: RowMoments | None = None,
        said: LabelDistribution | None = None,
        *,
        observation_noise: bool | None = None,
    ) -> tuple[Array, Array]:
        """`predict_interval` at scaled rows, whose moments and labels may be known already."""
        posterior = self._posterior
        knows_noise = posterior.noise_std is not None or self.label_noise_ is not None
        of_label = knows_noise if observation_noise is None else observation_noise
        if self.calibration_ is not None and observation_noise is not False:
            found = moments or self._moments(x)
            mean, std = self._label_moments(x, found)
            low, high = calibrated_interval(mean, std, self.calibration_, level)
            if self.calibration_.weights is None:  # else target rows are those to cover
                margin = self._distribution(x, found).margin(level).reshape(len(x), -1)
                wider = torch.from_numpy(margin / self.y_scale_.scale).to(mean)
                low, high = low - wider, high + wider
        elif of_label and self.label_noise_ is not None:
            return (said or self._distribution(x, moments or self._moments(x))).interval(level)
        elif moments is not None and isinstance(posterior, GaussianPosterior):
            low, high = posterior.interval_of(*moments[:2], level, observation_noise=of_label)
        else:
            low, high = posterior.interval(x, level, observation_noise=of_label)
        return self._to_units(low), self._to_units(high)

    def _label_moments(self, x: Tensor, moments: RowMoments | None = None) -> Moments:
        """Mean and scale of a known row's label at scaled rows, in scaled units."""
        found = moments or self._moments(x)
        mean = found.mean
        if self.label_noise_ is None:
            return label_moments(mean, found.variance, self.posterior_.noise_std)
        scale = self._distribution(x, found).scale.reshape(len(x), -1)
        scaled = torch.from_numpy(scale / self.y_scale_.scale).clamp_min(MIN_STD)
        return mean.double(), scaled.to(mean.device)

    def _finish(self, fit: Fit, rule: ThresholdRule, unseen: Array) -> None:
        self.label_range_ = None
        super()._finish(fit, rule, unseen)
        self.gate_variance_ = prior_variance(self.posterior_, fit.task.x_obs)
        self.label_noise_ = None
        found = others = None
        if len(unseen):
            rows = torch.from_numpy(unseen)
            found = UnseenLabels(rows, *self.posterior_.moments(fit.task.x_obs[rows]))
        elif isinstance(self.posterior_, GPNPosterior):
            found, others = self.posterior_.fit_report.unseen, self.posterior_.fit_report.left_out
        if found is not None and len(found.rows) >= MIN_NOISE_LABELS:
            self.label_noise_ = self._learnt_noise(fit.task, found, others)
            if self._has_smaller_share(fit.task, found):
                self.label_noise_ = self._learnt_noise(fit.task, found, others)
            self.label_range_ = self._learnt_range(fit.task, found)
        if self.detector_ is not None:
            self.reference_scores_ = self.detector_.probability(self._reference_log_odds)

    def _has_smaller_share(self, task: Task, unseen: UnseenLabels) -> bool:
        """Whether the gate assumes fewer outliers now: see `_fit_share`."""
        rows = unseen.rows.cpu()
        found = RowMoments(unseen.mean.cpu(), unseen.variance.cpu(), torch.ones(len(rows), 1))
        spread = self._spread(task.x_obs.cpu()[rows], found)
        noises = np.array([each.noise_variance for each in self._noise])
        other = np.sqrt(to_numpy(self._prior_variance(found.variance.double())) + noises)
        y = to_numpy(task.y_obs.double())[rows.numpy()]
        known = stats.t.logpdf(y, spread.freedom, spread.location, spread.scale)
        unknown = stats.norm.logpdf(y, spread.location, np.maximum(other, spread.scale))
        return self._fit_share(task.x_obs, to_numpy(rows), known, unknown)

    def _learnt_range(self, task: Task, unseen: UnseenLabels) -> LabelRange | None:
        """The range of the labels, and the scores of those that were left out.

        None where these are few, as in fits of networks: the threshold rests on all labels there.
        """
        rows = unseen.rows.cpu()
        if len(rows) < min(len(task.x_obs) / 2, MIN_RANGE_LABELS):
            return None
        odds = self._label_log_odds(task.x_obs, to_numpy(rows))
        if odds is None:
            return None
        found = RowMoments(unseen.mean.cpu(), unseen.variance.cpu(), torch.ones(len(rows), 1))
        spread = self._spread(task.x_obs.cpu()[rows], found)
        return LabelRange.of(to_numpy(task.y_obs.double()), to_numpy(rows), spread, odds)

    def _learnt_noise(
        self, task: Task, unseen: UnseenLabels, others: UnseenLabels | None
    ) -> tuple[LabelNoise, ...]:
        """The scatter of each target's labels about what was predicted."""
        noise_std = self.posterior_.noise_std
        noise = None if noise_std is None else noise_std**2
        config = getattr(self.posterior_, "config", None)
        prior, n_parameters = getattr(config, "prior", None), 0.0
        if isinstance(prior, ARDPrior) and len(task.x_obs) > MAX_CROSS_VALIDATED:
            n_parameters = len(set(prior.column_scales))
        columns = self._residuals(task, unseen, has_gate=self._has_gate)
        more = [None] * task.n_outputs if others is None else self._residuals(task, others)
        return tuple(
            learn_label_noise(column, noise, n_parameters=n_parameters, others=other)
            for column, other in zip(columns, more, strict=True)
        )

    def _residuals(
        self, task: Task, found: UnseenLabels, *, has_gate: bool = False
    ) -> list[Residuals]:
        """What was missed at some labels, target by target."""
        rows = found.rows.cpu()
        x = to_numpy(task.x_obs[rows].double())
        gaps = to_numpy(task.y_obs[rows].double() - found.mean.to(task.y_obs.device).double())
        variances = to_numpy(found.variance.double())
        doubt = self._label_doubt(task.x_obs, to_numpy(rows)) if has_gate else None
        weights = 1.0 if self._weights is None else to_numpy(self._weights[rows])
        return [
            Residuals(x, *columns, doubt, self.gate_variance_, weights)
            for columns in zip(gaps.T, variances.T, strict=True)
        ]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Functions of the posterior at the rows: ``(n, s)``, or ``(n, o, s)``."""
        return self._to_samples(self._draws(self._inputs(X), n_samples, as_seed(random_state)))

    def suggest(self, X_pool: Any, n: int = 1) -> NDArray[np.int64]:
        """The numbers of the `n` rows to label next, the most important one first.

        Their labels leave the least variance in the pool. Beside a mean model every second row is a
        random one: variances know nothing of what trees may miss.
        """
        x = self._inputs(X_pool)
        noise = (self.posterior_.noise_std or 0.0) ** 2
        if isinstance(self.posterior_, ClosedFormPosterior):
            rows = _some_rows(len(x), max(MAX_EXACT_CANDIDATES, n))
            covariance = self.posterior_.covariance(x[rows])[:1].double()  # the same for all
            random_rows = None if getattr(self, "mean_", None) is None else as_generator(0)
            picked = reduce_exact_variance(covariance, n, noise, random_rows)
        else:
            scores = torch.from_numpy(self._ood_scores(self.posterior_, x))
            rows = scores.topk(min(len(scores), max(MAX_CANDIDATES, n))).indices.sort().values
            root = self.posterior_.covariance_root(x[rows], ROOT_DRAWS).cpu().double()
            picked = reduce_variance(root, n, noise)
        return to_numpy(rows[picked.to(rows.device)])

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


def _some_rows(n: int, count: int) -> Tensor:
    """All rows, or a random choice: any other would not have the pool's mean variance."""
    return torch.randperm(n, generator=as_generator(0))[:count].sort().values


def prior_variance(posterior: Posterior, x: Tensor) -> float:
    """The prior's variance at labeled rows, in units of the labels' variance: from 2 to 4.

    The value of an unknown row and the posterior's mean there are about as far apart as two
    labels: their difference has twice a label's variance. A prior that is much wider has its scale
    from the slopes of functions.
    """
    prior = getattr(getattr(posterior, "config", None), "prior", None)
    if not isinstance(prior, ARDPrior):
        return MIN_PRIOR_VARIANCE
    rows = x[:MAX_PRIOR_ROWS].double()
    found = float(prior.kernel(rows, rows).diagonal().median())
    return min(max(found, MIN_PRIOR_VARIANCE), MAX_PRIOR_VARIANCE)


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

    config: all settings of a GPN; None chooses them from the data. Tables are fitted in closed
    form, with a scale for each column by marginal likelihood, unless a setting asks for a network.
    Unlabeled rows then teach the detector which rows are unknown, where the prior takes over.
    mean: a scikit-learn regressor whose cross-fitted predictions become an input column or the
    prior's mean, whichever predicts left-out labels better, or neither; "auto" tries boosted
    trees, None nothing. module: your own trunk, a torch module from rows to features, or one of
    gpn's trunks. A module whose parameters need no gradient is frozen: it gets rows without
    scaling, and only the layers after it are trained. A model with a torch module or with a mean
    of your own is saved by pickle or joblib, any other also by `save`. device: "auto" takes a GPU
    if there is one. verbose: a progress bar.

    A search names what it changes: GridSearchCV(GPNRegressor(), {"config__beta": [0.1, 1.0]}).
    """

    mean_: MeanModel | None

    def __init__(
        self,
        config: GPNConfig | None = None,
        *,
        mean: Any = "auto",
        module: nn.Module | Trunk | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            config, module=module, device=device, random_state=random_state, verbose=verbose
        )
        self.mean = mean

    def _is_closed_form(self, X: Array, *, has_pool: bool) -> bool:
        """For tables, unless a setting asks for a network."""
        config = self._config_with_module()
        if X.ndim != 2:
            return False
        if config.generator == "closed-form":
            return True
        if config.needs_network:
            return False
        return config.prior is None or isinstance(config.prior, ARDPrior)

    def _fit(
        self,
        X: Array,
        y: Array,
        X_unlabeled: Any,
        *,
        n_classes: int | None = None,
        checkpoint: CheckpointLike = None,
    ) -> None:
        self.mean_ = None
        _check_mean(self.mean)
        if not self._is_closed_form(X, has_pool=X_unlabeled is not None):
            learn = self._fit_follower if self._follows(X) else super()._fit
            learn(X, y, X_unlabeled, checkpoint=checkpoint)
            return
        seed, config = as_seed(check_random_state(self.random_state)), self._config()
        pool = self._scaled_pool(X, X_unlabeled, y)
        meanwhile = self._detector_meanwhile(X, pool, seed)
        x, targets = self._scaled(X), torch.from_numpy(y)
        if self._weights is not None and not config.noise_std:
            self._weights = self._weights / self._weights.mean()
        weights = self._weights
        threads = one_thread() if len(x) <= MAX_ONE_THREAD_LABELS else nullcontext()
        bar = progress_bar("GPN", show=True if self.verbose else None)
        with meanwhile, bar as on_progress:
            steps = iter(range(1, STEPS + 1))

            def on_step() -> None:
                on_progress(next(steps), STEPS, {})

            found = None
            if config.prior is None:
                found = choose(X, x, targets, self.mean, on_step, weights)
                self.mean_ = found.mean
                noise_std = config.noise_std or found.learnt.noise_std
                config = config.replace(prior=found.learnt.prior, noise_std=noise_std)
            train = None if self.device == "auto" else TrainConfig(device=self.device)
            method = GPN(config.replace(generator="closed-form", train=train))
            task = Task(x if found is None else found.x, targets)
            with threads:
                self.posterior_ = method.fit(task, rng=seed, progress=False, weights=weights)
                if found is not None:
                    self.posterior_.fit_report = self._choice_report(found, targets)
        fit = Fit(method, self.posterior_, task, seed, self._ood_scores, weights)
        self._finish(fit, unseen_labels, np.arange(0))

    def _follows(self, X: Array) -> bool:
        """Whether a network is trained to follow the posterior in closed form."""
        config = self._config_with_module()
        own = config.trunk is not None and not isinstance(config.trunk, MLPTrunk)
        given = config.prior, config.beta, config.synthetic_ood, config.jitter
        usual = config.codes, config.pool_weights, config.pairing
        return (
            X.ndim == 2
            and config.generator == "affine"
            and config.anchor in ("auto", "conditioned")
            and all(value is None for value in given)
            and usual == ("spectral", "auto", "every")
            and not own
        )

    def _learns_scales(self, X: Array, *, has_pool: bool) -> bool:
        return self._is_closed_form(X, has_pool=has_pool) or self._follows(X)

    def _fit_follower(
        self, X: Array, y: Array, X_unlabeled: Any, *, checkpoint: CheckpointLike
    ) -> None:
        """Prior and mean model as in closed form; a network then learns that posterior by heart.

        It follows it at labels, between them, and at unlabeled rows. A share of the labels, which
        the posterior has learnt, is not followed: they tell what the network misses at new rows.
        """
        seed, config = as_seed(check_random_state(self.random_state)), self._config_with_module()
        pool = self._scaled_pool(X, X_unlabeled, y)
        self._fit_detector(X, pool, seed)
        targets = torch.from_numpy(y)
        found = choose(X, self._scaled(X), targets, self.mean, lambda: None)
        self.mean_ = found.mean
        share = config.calibration_share
        share = calibration_share(len(X)) if share is None else share
        learnt = ~calibration_rows(len(X), share)
        near = found.x / found.x.new_tensor(found.learnt.prior.column_scales)
        unlabeled = self._some_unlabeled(X, X_unlabeled)
        rows = rows_to_follow(X[learnt.numpy()], near[learnt], unlabeled, seed)
        config = config.replace(
            calibration_share=share,
            anchor="conditioned",
            prior=found.learnt.prior,
            noise_std=config.noise_std or found.learnt.noise_std,
            reference_rows=max(config.reference_rows, len(rows)),
        )
        dtype = self._dtype(len(X), X.shape[1:])
        task = Task(found.x.to(dtype), targets.to(dtype), pool=self._scaled(rows).to(dtype))
        config = resolve(config, task).public()
        assert config.train is not None
        if self.device != "auto":
            config = config.replace(train=config.train.replace(device=self.device))
        method, shown = GPN(config), True if self.verbose else None
        self.posterior_ = method.fit(task, rng=seed, progress=shown, checkpoint=checkpoint)
        self.posterior_.fit_report = self._follower_report(found, task)
        fit = Fit(method, self.posterior_, task, seed, self._ood_scores)
        self._finish(fit, unseen_labels, np.arange(0))

    def _follower_report(self, found: Choice, task: Task) -> FitReport:
        """The report, whose left-out labels are missed by what the network misses, too.

        At new rows a network misses more of the posterior than at the rows that it was trained at,
        and its variance is smaller: labels at which it was not trained say by how much.
        """
        assert isinstance(self.posterior_, GPNPosterior)
        report = self._choice_report(found, task.y_obs)
        unseen, followed = report.unseen, report.followed
        assert followed is not None
        assert unseen is not None
        mean, variance = (part[unseen.rows] for part in self.posterior_.moments(task.x_obs))
        gap, loo_variance = (mean - followed[unseen.rows]).to(unseen.mean), unseen.variance
        share = self.posterior_.config.calibration_share or 0.0
        held_out = calibration_rows(len(task.x_obs), share)[unseen.rows.cpu()].to(gap.device)
        if int(held_out.sum()) >= MIN_NOISE_LABELS:
            narrower = variance / loo_variance.clamp_min(MIN_VARIANCE)
            loo_variance = loo_variance * narrower[held_out].median(0).values
            if not held_out.all():
                wider = _root_mean_square(gap[held_out]) / _root_mean_square(gap[~held_out])
                gap[~held_out] *= wider.clamp(1.0, MAX_WIDER)
        unseen = replace(unseen, mean=unseen.mean + gap, variance=loo_variance)
        return replace(report, unseen=unseen, left_out=None)

    def _some_unlabeled(self, X: Array, X_unlabeled: Any) -> Array | None:
        """Unlabeled rows in the units of the data, as many as a network follows at most."""
        source, rows = lazy_pool(X_unlabeled), X_unlabeled
        if source is not None:
            rows = to_numpy(source.sample(MAX_FOLLOWED_ROWS, as_generator(0)))
        if rows is None:
            return None
        checked = checked_pool(rows, X, self._validated)
        return checked[to_numpy(_some_rows(len(checked), MAX_FOLLOWED_ROWS))]

    def _choice_report(self, found: Choice, targets: Tensor) -> FitReport:
        """The fit's report, with what was found before it; a search at its edge gives a warning."""
        assert isinstance(self.posterior_, GPNPosterior)
        report = replace(self.posterior_.fit_report, at_edge=found.learnt.at_edge)
        warn_of_edge(found.learnt)
        if found.unseen is not None and len(targets) >= MIN_NOISE_LABELS:
            report = replace(report, unseen=found.unseen)
        return report

    def _scaled(self, X: Array) -> Tensor:
        """Scaled rows, with the mean model's column where there is one."""
        x = super()._scaled(X)
        if getattr(self, "mean_", None) is None:
            return x
        assert self.mean_ is not None
        return torch.cat([x, torch.from_numpy(self.mean_.predict(X, x.numpy())).to(x)], dim=1)


def _root_mean_square(values: Tensor) -> Tensor:
    """Of each column, and not 0."""
    return values.square().mean(0).clamp_min(MIN_VARIANCE).sqrt()


def _check_mean(mean: Any) -> None:
    """Raise unless `mean` is one of the choices, or has the verbs of a regressor."""
    if mean is None or (isinstance(mean, str) and mean == "auto"):
        return
    if hasattr(mean, "fit") and hasattr(mean, "predict") and not isinstance(mean, type):
        return
    raise ValueError(
        f"mean must be 'auto', None or a scikit-learn regressor, got {mean!r:.100}; "
        "try mean=HistGradientBoostingRegressor()."
    )


@loadable
class PosteriorRegressor(NamedMethod, Regressor):
    """Any method of `gpn.methods` for numbers: `method` names it, `settings` changes its config."""
