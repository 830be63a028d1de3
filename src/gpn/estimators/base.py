"""What regressors and classifiers share: checked and scaled rows, the fit, OOD scores, files."""

import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data
from torch import Tensor

from gpn.columns.frames import as_frame, fit_encoder, has_other_types
from gpn.core.pools.base import Pool, max_sampled_rows
from gpn.core.posterior.base import Posterior
from gpn.core.posterior.gated import GatedPosterior
from gpn.core.posterior.gaussian import GaussianPosterior
from gpn.core.task import Task, lazy_pool
from gpn.core.types import as_generator
from gpn.estimators.chunks import in_blocks, in_chunks
from gpn.estimators.closed_form.bends import straightened
from gpn.estimators.intervals.calibration import Calibration
from gpn.estimators.intervals.shift import shift_weights
from gpn.estimators.ood.detector import MIN_LABELS, Detector, different_rows
from gpn.estimators.ood.drift.checks import Drift
from gpn.estimators.ood.drift.rows import drift_of
from gpn.estimators.ood.gate import bearable_share
from gpn.estimators.ood.pool import some_pool_rows
from gpn.estimators.ood.thresholds import threshold_log_odds, warn_of_extrapolation
from gpn.estimators.scaling import Scale, scale_of_rows
from gpn.estimators.thresholds import (
    Fit,
    ThresholdRule,
    choose_rule,
    groups_of,
    held_out,
    threshold_of,
)
from gpn.estimators.validation import (
    as_array,
    as_dense,
    check_is_frame,
    check_labels_known,
    check_pool_type,
    check_row_shape,
    checked_pool,
    column_medians,
    imputed,
    shape_of,
    synthetic_pool,
    warn_of_missing,
)
from gpn.methods import registry
from gpn.methods.registry import Method
from gpn.training.checkpoint import CheckpointLike

Array = NDArray[Any]
E = TypeVar("E", bound="type[Estimator]")

ESTIMATORS: dict[str, "type[Estimator]"] = {}  # the classes that a model file may name

# Double precision costs little in a task this small, and is kinder to its posterior.
MAX_DOUBLE_LABELS = 1000
MAX_DOUBLE_COLUMNS = 10
MAX_REPEATED_ROWS = 1000
GATE_VARIANCE = 4.0  # of logits where rows are unknown; numbers have their own


def loadable(kind: E) -> E:
    """Register an estimator class, so that `gpn.load` opens files that name it."""
    ESTIMATORS[kind.__name__] = kind
    return kind


class Estimator(BaseEstimator):
    """What regressors and classifiers share.

    Attributes after `fit`
        posterior_: the fitted posterior, in scaled units. x_scale_: the scale of each column.
        detector_: what scores rows of a table; None for images, and for fewer than eight labels.
        reference_scores_: sorted OOD scores of known rows, from which `threshold` is taken.
        calibration_: conformal scores of calibration rows, None until `calibrate`.
        encoder_: what makes numbers of a frame with columns of other types; else None.
        repeated_rows_: some scaled rows with their copies, where the detector takes copies once.
        medians_: of the columns of an array, which missing values are taken as; None for images.
    """

    random_state: Any
    verbose: bool
    posterior_: Posterior
    x_scale_: Scale
    detector_: Detector | None
    gate_variance_: float
    repeated_rows_: Array | None
    reference_scores_: Array
    calibration_: Calibration | None
    encoder_: Any
    medians_: Array | None
    _had_missing: bool  # whether rows of the fit had missing values, of which it gave a warning

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    # Which method is fitted, and what it wants: `NamedMethod` and `GPNOptions` decide.

    def _method(self, task: Task) -> Method:
        """The method, configured for the task."""
        raise NotImplementedError

    @property
    def _scales_inputs(self) -> bool:
        return True

    def _dtype(self, n_labels: int, input_shape: tuple[int, ...]) -> torch.dtype:
        """The precision that the method prefers."""
        small = n_labels <= MAX_DOUBLE_LABELS and np.prod(input_shape) <= MAX_DOUBLE_COLUMNS
        return torch.float64 if small else torch.float32

    @property
    def _has_gate(self) -> bool:
        """Whether predictions turn to the prior at rows that the detector does not know."""
        return False

    def _has_loo(self, task: Task) -> bool:
        """Whether the fit reports leave-one-out variances at the labels, in closed form."""
        return False

    def _is_closed_form(self, X: Array, *, has_pool: bool) -> bool:
        """Whether the posterior is found without training, by the labels alone."""
        return False

    def _learns_scales(self, X: Array, *, has_pool: bool) -> bool:
        """Whether each column gets a scale by the labels."""
        return self._is_closed_form(X, has_pool=has_pool)

    # Numbers and classes differ in these two.

    def _ood_scores(self, posterior: Posterior, x: Tensor) -> Array:
        """How unknown scaled rows are under a posterior; larger is more unknown."""
        raise NotImplementedError

    def _to_samples(self, draws: Tensor) -> Array:
        """Draws ``(s, n, o)`` of the posterior in the units of the data, with `s` last."""
        raise NotImplementedError

    def _fit(
        self,
        X: Array,
        y: Array,
        X_unlabeled: Any,
        *,
        n_classes: int | None = None,
        checkpoint: CheckpointLike = None,
    ) -> None:
        """Fit the posterior, then score known rows that it did not learn from."""
        state = check_random_state(self.random_state)
        seed = as_seed(state)
        pool = self._scaled_pool(X, X_unlabeled)
        task = self._task(X, y, pool, n_classes, seed)
        self._fit_detector(X, pool, seed)
        rows, rule = self._rows_to_learn(X, y, task, state)
        learnt = task.subset(torch.from_numpy(rows))
        method = self._method(learnt)
        options: dict[str, Any] = {"rng": seed, "progress": True if self.verbose else None}
        if checkpoint is not None:
            check_checkpoint(method, self.random_state)
            options["checkpoint"] = checkpoint
        self.posterior_ = method.fit(learnt, **options)
        fit = Fit(method, self.posterior_, task, seed, self._ood_scores)
        self._finish(fit, rule, np.setdiff1d(np.arange(len(task.x_obs)), rows))

    def _rows_to_learn(
        self, X: Array, y: Array, task: Task, state: np.random.RandomState
    ) -> tuple[Array, ThresholdRule]:
        """The labels that the posterior learns from, and the rule for the threshold.

        With a detector no label is held out for the threshold, some numbers for their noise only.
        """
        if self.detector_ is not None and task.is_classification:
            return np.arange(len(X)), partial(held_out, rows=np.arange(len(X)))
        classes = y if task.is_classification else None
        return choose_rule(groups_of(X, y), classes, state, has_loo=self._has_loo(task))

    def _fit_detector(self, X: Array, pool: Tensor | Pool | None, seed: int) -> None:
        """Set `detector_`, from scaled rows of a table."""
        self.detector_, self.gate_variance_, self.repeated_rows_ = None, GATE_VARIANCE, None
        if X.ndim != 2:
            return
        every = to_numpy(Estimator._scaled(self, X))
        rows = every[different_rows(every)]
        if len(rows) < len(every):
            self.repeated_rows_ = some_rows(every, MAX_REPEATED_ROWS, seed)
        if len(rows) >= MIN_LABELS:
            self.detector_ = Detector.fit(rows, some_pool_rows(pool, seed), seed)

    @contextmanager
    def _detector_meanwhile(
        self, X: Array, pool: Tensor | Pool | None, seed: int
    ) -> Iterator[None]:
        """Fit the detector in a second thread while the block fits the posterior."""
        with ThreadPoolExecutor(1) as executor:
            fitted = executor.submit(self._fit_detector, X, pool, seed)
            yield
            fitted.result()

    def _finish(self, fit: Fit, rule: ThresholdRule, unseen: Array) -> None:
        """Score known rows; `unseen` are the labels that the fit did not learn from."""
        if self.detector_ is None:
            self.reference_scores_ = np.sort(rule(fit))
        else:
            self.reference_scores_ = self.detector_.probability(self._reference_log_odds)
        self.calibration_ = None

    def _fit_share(self, x: Tensor, numbers: Array, known: Array, unknown: Array) -> bool:
        """Whether the gate assumes fewer outliers now, since left-out labels could not bear more.

        known, unknown: log densities ``(n, o)`` of the labels `numbers` on the gate's two sides.
        """
        odds, detector = self._label_log_odds(x, numbers), self.detector_
        if not self._has_gate or odds is None or detector is None or detector.pool is None:
            return False
        share = bearable_share(detector, odds, known, unknown)
        self.detector_ = replace(detector, share=share)
        return share < detector.share

    def _set_calibration(self, X: Array, scores: Array, X_target: Any) -> None:
        """Keep conformal scores of the checked rows X, with weights where targets differ."""
        shift = None
        if X_target is not None:
            rows, target = (Estimator._scaled(self, each) for each in (X, self._target(X_target)))
            shift = shift_weights(*(to_numpy(each.flatten(1)) for each in (rows, target)))
        self.calibration_ = Calibration.of(scores, shift)

    def _target(self, X_target: Any) -> Array:
        self._check_rows(X_target)
        return self._validated(X_target)

    @property
    def calibration_scores_(self) -> Array | None:
        """Sorted conformal scores ``(n, o)``, None until `calibrate`."""
        return None if self.calibration_ is None else self.calibration_.scores

    def _task(
        self, X: Array, y: Array, pool: Tensor | Pool | None, n_classes: int | None, seed: int
    ) -> Task:
        """Labels and unlabeled rows, scaled."""
        dtype = self._dtype(len(X), X.shape[1:])
        x = self._scaled(X).to(dtype)
        unlabeled = synthetic_pool(x, seed) if pool is None else pool.to(x.device, dtype)
        targets = torch.from_numpy(y) if n_classes else torch.from_numpy(y).to(dtype)
        return Task(x, targets, pool=unlabeled, n_classes=n_classes)

    def _scaled_pool(
        self, X: Array, X_unlabeled: Any, y: Array | None = None
    ) -> Tensor | Pool | None:
        """Set `x_scale_`, by a sample where the pool is outside memory, and scale the pool."""
        check_pool_type(X_unlabeled)
        source = lazy_pool(X_unlabeled)
        rows = X_unlabeled
        if source is not None:
            rows = to_numpy(source.sample(max_sampled_rows(X[0].size), as_generator(0)))
        if rows is not None:
            rows = checked_pool(rows, X, self._validated)
        names = getattr(self, "feature_names_in_", None)
        if self.encoder_ is not None:
            names = np.array(self.encoder_.input_names, dtype=object)
        self.x_scale_ = Scale.none()
        if self._scales_inputs:
            robust = self._learns_scales(X, has_pool=rows is not None)
            self.x_scale_ = scale_of_rows(X, rows, names, robust=robust)
            if robust and y is not None:
                self.x_scale_ = straightened(self.x_scale_, X, y)
        if source is not None:
            return source.mapped(lambda chunk: Estimator._scaled(self, to_numpy(chunk)))
        return None if rows is None else self._scaled(rows)

    def _validated(self, *arrays: Any, **checks: Any) -> Any:
        """X, or X and y, as arrays after scikit-learn's checks; by default against the fit."""
        if isinstance(arrays[0], Pool):
            raise TypeError(
                f"these rows must be an array, got {type(arrays[0]).__name__}; pass "
                "np.load(path), or a part of its rows."
            )
        checks = {"reset": False, "dtype": np.float64, "allow_nd": True, **checks}
        X, *y = (as_frame(as_dense(as_array(values))) for values in arrays)
        for labels in y:
            check_labels_known(labels)
        if checks["reset"]:
            self.encoder_ = fit_encoder(X) if has_other_types(X) else None
        if getattr(self, "encoder_", None) is not None:
            return self._encoded(X, *y, **checks)
        missing = "allow-nan" if len(shape_of(X)) == 2 else True
        found = validate_data(self, X, *y, ensure_all_finite=missing, **checks)
        x = found[0] if y else found
        if checks["reset"]:
            self.medians_ = column_medians(x) if x.ndim == 2 else None
            self._had_missing = bool(np.isnan(x).any())
        if checks["reset"] or not getattr(self, "_had_missing", False):
            warn_of_missing(x, getattr(self, "feature_names_in_", None))
        x = imputed(x, getattr(self, "medians_", None))
        return (x, *found[1:]) if y else x

    def _encoded(self, X: Any, *y: Any, reset: bool, **checks: Any) -> Any:
        """A frame as numbers, by the encoder; scikit-learn checks names, and y."""
        check_is_frame(X)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if reset:
            self.medians_ = None
        x = self.encoder_.transform(X)
        return check_X_y(x, *y, estimator=self, **checks) if y else x

    @property
    def _n_inputs(self) -> int:
        """How many numbers a row becomes."""
        encoder = getattr(self, "encoder_", None)
        return int(self.n_features_in_) if encoder is None else encoder.width

    def _unseen(self, X: Any) -> NDArray[np.bool_]:
        """Which rows hold a value of a category that the fit has not seen."""
        encoder = getattr(self, "encoder_", None)
        if encoder is None:
            return np.zeros(len(shape_of(X)) and shape_of(X)[0], dtype=bool)
        return encoder.unseen_rows(as_frame(X))

    def _check_rows(self, X: Any) -> None:
        check_is_fitted(self)
        check_row_shape(X, self.posterior_.signature.input_shape)

    def _inputs(self, X: Any) -> Tensor:
        """New rows, checked and scaled as in the fit."""
        self._check_rows(X)
        return self._scaled(self._validated(X))

    def _scaled(self, X: Array) -> Tensor:
        """Scaled rows in torch's memory: the alignment of numpy's changes the last digit."""
        return torch.tensor(self.x_scale_.apply(np.asarray(X, np.float64)))

    @property
    def _posterior(self) -> Posterior:
        """The posterior of predictions: the prior's where the detector knows no such rows."""
        if self.detector_ is None or not self._has_gate:
            return self.posterior_
        return GatedPosterior(self.posterior_, self._known, self.gate_variance_)

    def _known(self, x: Tensor) -> Tensor:
        """P(known | x) at scaled rows; 1 without a gate."""
        if self.detector_ is None or not self._has_gate:
            return torch.ones(len(x), device=x.device, dtype=torch.float64)
        return torch.from_numpy(1 - self.detector_.doubt(self._log_odds(x))).to(x.device)

    def _label_doubt(self, x: Tensor, numbers: Array) -> Array | None:
        """1 − P(known | x) of the labels `numbers`, by a detector that has not seen them."""
        odds = self._label_log_odds(x, numbers)
        return None if odds is None or self.detector_ is None else self.detector_.doubt(odds)

    def _label_log_odds(self, x: Tensor, numbers: Array) -> Array | None:
        """Log odds of the labels `numbers`, by a detector that has not seen them."""
        detector = self.detector_
        if detector is None or detector.fitted_labels is None:
            return None
        rows = to_numpy(x[:, : self._n_inputs].double())
        if len(detector.fitted_labels.order) != len(rows):
            return None  # copies were taken together
        return detector.label_log_odds(rows, numbers)

    @property
    def _reference_log_odds(self) -> Array:
        """Log odds of labels that were left out of the fit of their detector."""
        assert self.detector_ is not None
        return self.detector_.reference

    def _log_odds(self, x: Tensor) -> Array:
        """The detector's log odds at scaled rows."""
        assert self.detector_ is not None
        return in_blocks(self.detector_.log_odds, to_numpy(x[:, : self._n_inputs].double()))

    def _in_blocks(self, compute: Callable[[Tensor], Any], X: Any) -> Any:
        """`compute` of scaled new rows, in blocks where the posterior knows its moments."""
        self._check_rows(X)
        rows = self._validated(X)
        has_blocks = self.detector_ is not None and self.posterior_.device.type == "cpu"
        if has_blocks and isinstance(self.posterior_, GaussianPosterior):
            return in_blocks(lambda block: compute(self._scaled(block)), rows)
        return compute(self._scaled(rows))

    def _scores(self, x: Tensor) -> Array:
        """`ood_score` at scaled rows."""
        if self.detector_ is None:
            return self._ood_scores(self.posterior_, x)
        return self.detector_.probability(self._log_odds(x))

    @in_chunks
    def ood_score(self, X: Any) -> Array:
        """How unlike the labeled rows each row is: larger is more unlike.

        For tables it is the probability that a row is an outlier, if about a tenth of all rows
        were: by its columns and, of a regressor, by how probable a label beyond all labels is. It
        is 1 − 1/distance far away, so that rows keep their order up to distances of 10¹⁵. For
        images, and for fewer than eight labels, it is the posterior's deviation; of classes, the
        mutual information of class and function (of other methods: the variance of probabilities).
        """
        return self._scores(self._inputs(X))

    @in_chunks
    def is_ood(self, X: Any, fpr: float = 0.05) -> NDArray[np.bool_]:
        """Rows whose score exceeds `threshold(fpr)`, or that hold a category that is new."""
        return (self.ood_score(X) > self.threshold(fpr)) | self._unseen(X)

    def threshold(self, fpr: float = 0.05) -> float:
        """The score that at most a share `fpr` of new known rows exceeds, on average over fits.

        It is a quantile of the scores of labels that were left out of the fit of their detector,
        all of them; the share differs from data set to data set by √(fpr (1 − fpr)/n). Where fpr is
        below 1/(n + 1), it is extrapolated, far below with a warning. Without a detector (images,
        and fewer than eight labels) the scores are those of held-out labels, of leave-one-out
        variances, or of shorter fits without a third of the labels each; where none of these is
        possible, the labels were learnt, and more new rows than `fpr` exceed the threshold.
        """
        check_is_fitted(self)
        if not 0 < fpr < 1:
            raise ValueError(f"fpr must lie strictly between 0 and 1, got {fpr}; try 0.05.")
        detector = getattr(self, "detector_", None)
        if detector is None:
            return threshold_of(self.reference_scores_, fpr)
        reference = self._reference_log_odds
        warn_of_extrapolation(len(reference), fpr)
        limit = np.array([threshold_log_odds(reference, fpr)])
        return float(detector.probability(limit)[0])

    def drift(
        self,
        X: Any,
        y: Any = None,
        X_reference: Any = None,
        *,
        fpr: float = 0.05,
        level: float = 0.95,
        false_alarms: float = 0.01,
    ) -> Drift:
        """Whether new rows, and the labels that are known by now, still look like those of the fit.

        The checks are the share of flagged rows (`is_ood(X, fpr)`), each column against the labeled
        rows that the model stores, categories with values that are new, and how many of the labels
        `y` lie in their intervals (or calibrated sets of classes) of this `level`; NaN in `y` is a
        label that is not known yet. Where nothing has changed, `false_alarms` is the probability
        that any of them raises an alarm. Columns that moved by less than 0.05, in terms of their
        distribution functions, do not count. With `X_reference`, rows are compared with these
        rather than with those of the fit: with the first month in production, for example.
        """
        check_is_fitted(self)
        return drift_of(
            self,
            X,
            y,
            X_reference,
            encoder=getattr(self, "encoder_", None),
            tables=(as_frame(X), as_frame(X_reference)),
            fpr=fpr,
            level=level,
            false_alarms=false_alarms,
        )

    def functions(self, n: int = 1, random_state: Any = 0) -> Callable[[Any], Array]:
        """`n` fixed functions: call the result on any rows, also chunk by chunk.

        `sample_y` and `sample_proba` draw anew for the rows of each call. Here a row has the same
        values whatever other rows are in the call, also under an exact GP (`gpn.methods.gp`).
        """
        check_is_fitted(self)
        values = self._posterior.draw_many(n, as_seed(random_state))
        return lambda X: self._to_samples(values(self._inputs(X)).cpu().double())

    def _draws(self, x: Tensor, n: int, seed: int) -> Tensor:
        return self._posterior.sample(x, n, rng=seed).cpu().double()

    def plot(self, X: Any, y: Any, *, level: float = 0.95) -> Any:
        """A matplotlib Figure of predictions against labels and of OOD scores, for labeled rows.

        Numbers show each interval against the true value, classes a reliability diagram. Needs
        `pip install gpn[plots]`; save it by `figure.savefig(path)`.
        """
        check_is_fitted(self)
        # plots lie above the estimators, so they are found by name
        return importlib.import_module("gpn.plots.models").model_figure(self, X, y, level=level)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole model to one file, for `gpn.load`."""
        from gpn.estimators.persistence import save_model

        check_is_fitted(self)
        save_model(self, path)


class NamedMethod(Estimator):
    """Fits the method of `gpn.methods` with the name `method`, with its `settings` changed."""

    def __init__(
        self,
        method: str = "gpn",
        *,
        settings: dict[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.settings = settings
        self.random_state = random_state
        self.verbose = verbose

    def _method(self, task: Task) -> Method:
        return registry.get(self.method, **(self.settings or {}))


def check_checkpoint(method: Method, random_state: Any) -> None:
    """Raise unless a fit of `method` can be resumed from a checkpoint."""
    if "checkpoint" not in inspect.signature(method.fit).parameters:
        raise TypeError(
            "a checkpoint must go to a method that trains a network, got one for "
            f"{type(method).__name__}, which does not take it; use checkpoint=None."
        )
    if random_state is None:
        raise ValueError(
            "a fit with a checkpoint must have a seed, so that it can be resumed, got "
            "random_state=None; set it to a number."
        )


def some_rows(rows: Array, count: int, seed: int) -> Array:
    """At most `count` rows at random."""
    return rows[np.random.default_rng(seed).permutation(len(rows))[:count]]


def as_seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))


def to_numpy(values: Tensor) -> Array:
    return values.detach().cpu().numpy()
