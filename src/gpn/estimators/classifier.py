"""Classifiers: classes of any kind, numbers or texts."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import entr
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gpn import metrics
from gpn.core.checks import require_level
from gpn.core.networks.trunks import Trunk
from gpn.core.posterior.base import Posterior, sample_covariance_root
from gpn.core.posterior.softmax import softmax_draws, softmax_moments
from gpn.core.priors.ard import ARDPrior
from gpn.core.task import Task
from gpn.core.types import Draws
from gpn.estimators.active_learning import reduce_variance
from gpn.estimators.base import Array, Estimator, NamedMethod, as_seed, loadable, to_numpy
from gpn.estimators.chunks import in_chunks
from gpn.estimators.closed_form.class_choice import choose_classes
from gpn.estimators.closed_form.class_mean import FOLDS, ClassMean, check_class_mean
from gpn.estimators.gpn import GPNOptions
from gpn.estimators.intervals.calibration import class_numbers
from gpn.estimators.intervals.conformal import class_scores
from gpn.estimators.thresholds import Fit, ThresholdRule
from gpn.estimators.validation import repeated_rows
from gpn.methods.gpn import GPN, GPNConfig, GPNPosterior
from gpn.training.checkpoint import CheckpointLike
from gpn.training.config import TrainConfig
from gpn.training.progress import progress_bar
from gpn.training.torch_state import one_thread

MAX_CANDIDATES = 3000
CHUNK_ROWS = 1000  # so many have exact joint draws in closed form
SCORE_DRAWS = 200
MIN_PROBABILITY = 1e-9
MAX_ONE_THREAD_LABELS = 1000
STEPS = FOLDS + 4  # of a fit in closed form: priors, their scores, and a mean model


class ClassPrediction(NamedTuple):
    """Everything that a classifier predicts for rows; the columns are as in `classes_`."""

    label: Array
    probabilities: Array
    entropy: Array
    in_set: NDArray[np.bool_] | None  # None before `calibrate`
    ood_score: Array
    is_ood: NDArray[np.bool_]


class Classifier(ClassifierMixin, Estimator):
    """What `GPNClassifier` and `PosteriorClassifier` share: all but the method that is fitted.

    Attributes after `fit`, in addition to those of `Estimator`
        classes_: the classes, sorted.
        ood_measure_: the `ood_score` without a detector, a key of `metrics.CLASS_OOD_SCORES`.
    """

    classes_: Array
    ood_measure_: str = "variance"

    def fit(
        self,
        X: Any,
        y: Any,
        X_unlabeled: Any = None,
        sample_weight: Any = None,
        checkpoint: CheckpointLike = None,
    ) -> Self:
        """Learn from labeled rows, and from unlabeled rows like those to predict.

        The options are those of `GPNRegressor.fit`; in closed form unlabeled rows play no part in
        the posterior. A row is repeated as its weight says, also in closed form: whole weights are
        numbers of copies up to a mean of ten, others are rounded in proportion, to n rows in all.
        """
        X, y = self._validated(X, y, reset=True)
        check_classes(y)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must hold two classes at least, got one class only: {self.classes_[0]!r}; "
                "add labels of another class."
            )
        numbers = numbers.astype(np.int64)
        X, numbers = repeated_rows(X, numbers, sample_weight, self.random_state)
        self._fit(X, numbers, X_unlabeled, n_classes=len(self.classes_), checkpoint=checkpoint)
        return self

    def calibrate(self, X: Any, y: Any, X_target: Any = None) -> Self:
        """Make `predict_set` hold its level, by labeled rows that `fit` has not seen.

        19 rows are enough for 95 % (⌈level / (1 − level)⌉), a few hundred for a steady size.

        With `X_target`, unlabeled rows of another distribution than X, the level holds on rows like
        those, as far as they overlap with X: calibration rows count by how much likelier they are
        among the target rows (`gpn.estimators.intervals.shift`). Where labels given x differ, too,
        nothing helps but labels.
        """
        self._check_rows(X)
        X, y = self._validated(X, y)
        classes = torch.from_numpy(class_numbers(self.classes_, y))
        probabilities = torch.from_numpy(self._probabilities(self._scaled(X)))
        self._set_calibration(X, to_numpy(class_scores(probabilities, classes)), X_target)
        return self

    @in_chunks
    def predict(self, X: Any) -> Array:
        """The most probable class."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    @in_chunks
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, averaged over the posterior."""
        return self._probabilities(self._inputs(X))

    @in_chunks
    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @in_chunks
    def predict_set(self, X: Any, level: float = 0.95) -> NDArray[np.bool_]:
        """Which classes a row may have, ``(n, classes)``: `level` of new rows have theirs in it.

        It holds the classes with 1 − p ≤ q, q from 1 − p of the true classes of the calibration
        rows, and always the most probable class, so that no set is empty. The columns are as in
        `classes_`. Call `calibrate` first.
        """
        check_is_fitted(self)
        require_level(level)
        if self.calibration_ is None:
            raise ValueError(
                "a set of classes must rest on labeled rows that the fit has not seen, got none "
                "yet; call calibrate(X, y) first."
            )
        return self._sets(self.predict_proba(X), level)

    @in_chunks
    def predict_all(self, X: Any, level: float = 0.95, fpr: float = 0.05) -> ClassPrediction:
        """Classes, probabilities, sets and OOD scores, with the probabilities computed once.

        One by one they are `predict`, `predict_proba`, `entropy`, `predict_set(X, level)`,
        `ood_score` and `is_ood(X, fpr)`.
        """
        limit = self.threshold(fpr)
        found = self._in_blocks(lambda x: self._predicted(x, level, limit), X)
        return found._replace(is_ood=found.is_ood | self._unseen(X))

    def _predicted(self, x: Tensor, level: float, limit: float) -> ClassPrediction:
        """Everything at scaled rows; categories that are new play no part."""
        p, score = self._probabilities(x), self._scores(x)
        sets = None if self.calibration_ is None else self._sets(p, level)
        label = self.classes_[p.argmax(1)]
        return ClassPrediction(label, p, entr(p).sum(1), sets, score, score > limit)

    def sample_proba(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Class probabilities of each function: ``(n, classes, s)``, softmax(g / temperature)."""
        return self._to_samples(self._draws(self._inputs(X), n_samples, as_seed(random_state)))

    @in_chunks
    def entropy(self, X: Any) -> Array:
        """The entropy of `predict_proba`, in nats."""
        x = self._inputs(X)
        return to_numpy(self._posterior.entropy(x).double())

    def suggest(self, X_pool: Any, n: int = 1) -> NDArray[np.int64]:
        """The numbers of the `n` rows whose classes would leave the least variance in the pool.

        The variance is that of class probabilities; a label is one draw of them.
        """
        x = self._inputs(X_pool)
        scores = self.posterior_.mutual_information(x).cpu()
        rows = scores.topk(min(len(scores), max(MAX_CANDIDATES, n))).indices.sort().values
        p = self.posterior_.sample(x[rows], SCORE_DRAWS, rng=0).cpu().double().softmax(-1)
        noise = float((p.mean(0) * (1 - p.mean(0))).mean())
        return to_numpy(rows[reduce_variance(sample_covariance_root(p), n, noise)])

    def _ood_scores(self, posterior: Posterior, x: Tensor) -> Array:
        """`ood_measure_` of softmax(g).

        Without the temperature of labels, which sharpens probabilities: that detects fewer rows.
        """
        measure = metrics.CLASS_OOD_SCORES[self.ood_measure_]
        draws = (posterior.sample(rows, SCORE_DRAWS, rng=1) for rows in x.split(CHUNK_ROWS))
        return to_numpy(torch.cat([measure(chunk.cpu().double()) for chunk in draws]))

    def _to_samples(self, draws: Tensor) -> Array:
        return np.moveaxis(to_numpy((draws / self._posterior.temperature).softmax(-1)), 0, -1)

    def _probabilities(self, x: Tensor) -> Array:
        p = to_numpy(self._posterior.probabilities(x).double())
        return p / p.sum(1, keepdims=True)

    def _sets(self, probabilities: Array, level: float) -> NDArray[np.bool_]:
        assert self.calibration_ is not None
        sets = 1 - probabilities <= to_numpy(self.calibration_.quantile(level))
        sets[np.arange(len(sets)), probabilities.argmax(1)] = True
        return sets


def check_classes(y: Array) -> None:
    """Raise where a row has no class, or where classes cannot be sorted."""
    missing = [i for i, name in enumerate(y.tolist()) if name is None]
    if missing:
        raise ValueError(
            f"y must have a class for every row, got None in {len(missing)} of {len(y)} (first: "
            f"row {missing[0]}); move rows without one to X_unlabeled."
        )
    if len({isinstance(name, str) for name in y.tolist()}) > 1:
        raise TypeError(
            "classes must be all texts or all numbers, got both; try y.astype(str) before the fit."
        )


@loadable
class GPNClassifier(GPNOptions, Classifier):
    """A Generative Posterior Network for classes.

    Tables are fitted in closed form, by Laplace's approximation, unless a setting asks for a
    network. mean: a scikit-learn classifier whose cross-fitted log-odds become input columns or
    the prior's mean, whichever predicts left-out labels better, or neither; "auto" tries boosted
    trees, None nothing. The other options are those of `GPNRegressor`.
    """

    mean_: ClassMean | None

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
        """Unless rows are no table, or a setting asks for a network."""
        config = self._config_with_module()
        if X.ndim != 2 or config.generator == "closed-form" or config.needs_network:
            return X.ndim == 2 and config.generator == "closed-form"
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
        self.mean_, self.ood_measure_ = None, "mutual information"
        check_class_mean(self.mean)
        if not self._is_closed_form(X, has_pool=X_unlabeled is not None):
            super()._fit(X, y, X_unlabeled, n_classes=n_classes, checkpoint=checkpoint)
            return
        assert n_classes is not None
        seed, config = as_seed(check_random_state(self.random_state)), self._config()
        pool = self._scaled_pool(X, X_unlabeled)
        meanwhile = self._detector_meanwhile(X, pool, seed)
        x, labels = self._scaled(X), torch.from_numpy(y)
        threads = one_thread() if len(x) <= MAX_ONE_THREAD_LABELS else nullcontext()
        bar = progress_bar("GPN", show=True if self.verbose else None)
        with meanwhile, threads, bar as on_progress:
            steps = iter(range(1, STEPS + 1))

            def on_step() -> None:
                on_progress(next(steps), STEPS, {})

            if config.prior is None:
                found = choose_classes(X, x, labels, n_classes, self.mean, on_step)
                self.mean_, x = found.mean, found.x
                config = config.replace(prior=found.prior, temperature=found.temperature)
            train = None if self.device == "auto" else TrainConfig(device=self.device)
            method = GPN(config.replace(generator="closed-form", train=train))
            task = Task(x, labels, n_classes=n_classes)
            self.posterior_ = method.fit(task, rng=seed, progress=False)
        fit = Fit(method, self.posterior_, task, seed, self._ood_scores)
        rule = partial(left_out_scores, measure=metrics.CLASS_OOD_SCORES[self.ood_measure_])
        self._finish(fit, rule, np.arange(0))

    def _finish(self, fit: Fit, rule: ThresholdRule, unseen: Array) -> None:
        found = getattr(self.posterior_, "fit_report", None)
        if found is not None and found.unseen is not None:
            p = to_numpy(softmax_moments(found.unseen.mean, found.unseen.variance)[0].double())
            y = to_numpy(fit.task.y_obs)[to_numpy(found.unseen.rows)]
            known = np.log(np.maximum(p[np.arange(len(y)), y], MIN_PROBABILITY))[:, None]
            even = np.full_like(known, -np.log(p.shape[1]))
            self._fit_share(fit.task.x_obs, to_numpy(found.unseen.rows), known, even)
        super()._finish(fit, rule, unseen)

    def _scaled(self, X: Array) -> Tensor:
        """Scaled rows, with the mean model's columns where there is one."""
        x = super()._scaled(X)
        if getattr(self, "mean_", None) is None:
            return x
        assert self.mean_ is not None
        return torch.cat([x, torch.from_numpy(self.mean_.predict(X)).to(x)], dim=1)


def left_out_scores(fit: Fit, measure: Callable[[Draws], Tensor]) -> Array:
    """The measure at each label, given all others."""
    assert isinstance(fit.posterior, GPNPosterior)
    unseen = fit.posterior.fit_report.unseen
    assert unseen is not None
    chunks = zip(unseen.mean.split(CHUNK_ROWS), unseen.variance.split(CHUNK_ROWS), strict=True)
    scores = [measure(softmax_draws(*chunk).log()).cpu() for chunk in chunks]
    return to_numpy(torch.cat(scores))


@loadable
class PosteriorClassifier(NamedMethod, Classifier):
    """Any method of `gpn.methods` for classes."""
