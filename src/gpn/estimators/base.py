"""What regressors and classifiers share: rows in and out, scores, and the threshold on them."""

import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from gpn.core.pools.base import Pool, max_sampled_rows
from gpn.core.posterior.base import Posterior
from gpn.core.task import Task, lazy_pool
from gpn.core.types import as_generator
from gpn.estimators.chunks import in_chunks
from gpn.estimators.conformal import conformal_rank
from gpn.estimators.scaling import Scale
from gpn.estimators.sentinels import scale_of_rows
from gpn.estimators.thresholds import (
    MIN_TO_HOLD_OUT,
    fit_without,
    folds,
    groups_of,
    shortened,
    split,
)
from gpn.estimators.validation import check_kind, checked_rows, made_up_pool, shape_of
from gpn.methods import registry
from gpn.methods.gpn.defaults import MAX_FEW_INPUTS
from gpn.training.checkpoint import CheckpointLike

Array = NDArray[Any]
FEW_LABELS = 1000
MAX_REPEATS = 10
DRAWS = 200


class Estimator(BaseEstimator):
    """What regressors and classifiers share.

    Attributes after `fit`
        posterior_: what was fitted, in scaled units. x_scale_: how columns were scaled.
        reference_scores_: sorted OOD scores of known rows, which set `threshold`.
    """

    verbose: bool
    posterior_: Posterior
    x_scale_: Scale
    reference_scores_: Array

    def _method(self, task: Task) -> Any:
        """The method to fit, configured for the task."""
        raise NotImplementedError

    def _knows_left_out(self, task: Task) -> bool:
        """Whether the method tells how unknown labels would be without themselves."""
        return False

    def _left_out_scores(self, x: torch.Tensor) -> Array:
        """Scores of the labels at `x`, each as if it had not been given."""
        raise NotImplementedError

    def _scale(self, X: Array, pool: Array | None) -> Scale:
        """How columns are brought to what a network expects."""
        return scale_of_rows(X, pool, getattr(self, "feature_names_in_", None))

    def _scores(self, x: torch.Tensor, posterior: Posterior | None = None) -> Array:
        """Larger is more unknown; None is the fitted posterior."""
        raise NotImplementedError

    def _weighted(self, X: Array, y: Array, weights: Any) -> tuple[Array, Array]:
        """Every row as often as its weight says, in an order that hangs on values alone."""
        rows = _in_order(X, y, _repeats(weights, X, check_random_state(self.random_state)))
        return X[rows], y[rows]

    def _fit(
        self,
        X: Array,
        y: Array,
        X_unlabeled: Any,
        n_classes: int | None = None,
        checkpoint: CheckpointLike = None,
    ) -> None:
        """Fit, and remember the scores of labels that the fit did not see, or as if it had not."""
        state = check_random_state(self.random_state)
        task, seed = self._task(X, y, X_unlabeled, n_classes, state)
        groups, classes = groups_of(X, y), y if n_classes else None
        if groups[-1] + 1 < MIN_TO_HOLD_OUT and self._knows_left_out(task):
            self._learn_from(task, seed, checkpoint)
            scores = self._left_out_scores(task.x_obs)
        else:
            kept, held_out = split(groups, classes, state)
            method = self._learn_from(task.subset(torch.from_numpy(kept)), seed, checkpoint)
            spared = classes is None or len(kept) < len(X)
            parts = [] if spared else folds(groups, y, state)
            if parts:
                scores = self._cross_fitted(method, task, parts, seed)
            else:
                scores = self._scores(task.x_obs[held_out])
        self.reference_scores_ = np.sort(scores)

    def _task(
        self,
        X: Array,
        y: Array,
        X_unlabeled: Any,
        n_classes: int | None,
        state: np.random.RandomState,
    ) -> tuple[Task, int]:
        """Labels and unlabeled rows, scaled, and the seed of the fit."""
        pool = self._scaled_pool(X, X_unlabeled)
        dtype = _precision(X)
        x, seed = self._rows(X).to(dtype), as_seed(state)
        unlabeled = made_up_pool(x, seed) if pool is None else pool.to(x.device, dtype)
        targets = torch.from_numpy(y) if n_classes else torch.from_numpy(y).to(dtype)
        return Task(x, targets, pool=unlabeled, n_classes=n_classes), seed

    def _learn_from(self, task: Task, seed: int, checkpoint: CheckpointLike) -> Any:
        """Fit the posterior, and return the method that did."""
        method = self._method(task)
        keep = {} if checkpoint is None else self._kept_in(checkpoint, method)
        show = True if self.verbose else None
        self.posterior_ = method.fit(task, rng=seed, progress=show, **keep)
        return method

    def _cross_fitted(self, method: Any, task: Task, parts: list[Array], seed: int) -> Array:
        """Scores of labels under fits that did not see them."""
        again = shortened(method, self._found(method))
        fits = (fit_without(again, task, rows, seed) for rows in parts)
        return np.concatenate(
            [self._scores(task.x_obs[rows], fit) for rows, fit in zip(parts, fits, strict=True)]
        )

    def _found(self, method: Any) -> Any:
        """The configuration to fit again with, if the method has one."""
        return getattr(method, "config", None)

    def _scaled_pool(self, X: Array, X_unlabeled: Any) -> torch.Tensor | Pool | None:
        """Unlabeled rows, scaled as they and the labels want it; a sample stands for a big pool."""
        check_kind(X_unlabeled)
        source = lazy_pool(X_unlabeled)
        if source is None:
            rows = None
            if X_unlabeled is not None:
                rows = checked_rows(X_unlabeled, X, self._validated)
            self.x_scale_ = self._scale(X, rows)
            return None if rows is None else self._rows(rows)
        sample = to_numpy(source.sample(max_sampled_rows(X[0].size), as_generator(0)))
        self.x_scale_ = self._scale(X, checked_rows(sample, X, self._validated))
        return source.mapped(lambda part: self._rows(to_numpy(part)))

    def _kept_in(self, checkpoint: CheckpointLike, method: Any) -> dict[str, Any]:
        """The method's argument for a checkpoint."""
        if "checkpoint" not in inspect.signature(method.fit).parameters:
            raise TypeError(
                "a checkpoint belongs to methods that train a network, got one for "
                f"{type(method).__name__}, which does not take it; use checkpoint=None."
            )
        if self.random_state is None:
            raise ValueError(
                "a fit with a checkpoint must have a seed, so that it can be taken up as it was, "
                "got random_state=None; set it to a number."
            )
        return {"checkpoint": checkpoint}

    def _validated(self, X: Any) -> Array:
        if isinstance(X, Pool):
            raise TypeError(
                f"these rows are needed all at once and must be an array, got {type(X).__name__}; "
                "pass np.load(path), or those of its rows that matter."
            )
        return validate_data(self, as_array(X), reset=False, dtype=np.float64, allow_nd=True)

    def _rows(self, X: Array) -> torch.Tensor:
        """In torch's own memory: how numpy's is aligned would show in the last digit."""
        return torch.tensor(self.x_scale_.apply(np.asarray(X, np.float64)))

    def _inputs(self, X: Any) -> torch.Tensor:
        """New rows, checked and scaled as in the fit."""
        self._check_axes(X)
        return self._rows(self._validated(X))

    def _check_axes(self, X: Any) -> None:
        """Raise unless new rows are shaped like those of the fit; of tables scikit-learn tells."""
        check_is_fitted(self)
        wanted, came = self.posterior_.signature.input_shape, shape_of(X)
        if max(len(came), len(wanted) + 1) > 2 and came[1:] != wanted:
            shape = ", ".join(map(str, wanted))
            one = "; one row alone is X[None]" if came == wanted else ""
            raise ValueError(f"X must be rows as in the fit, shape (n, {shape}), got {came}{one}.")

    @in_chunks
    def ood_score(self, X: Any) -> Array:
        """How unknown each row is: larger is more so."""
        return self._scores(self._inputs(X))

    @in_chunks
    def is_ood(self, X: Any, fpr: float = 0.05) -> NDArray[np.bool_]:
        """Rows more unknown than all but a share `fpr` of known ones."""
        return self.ood_score(X) > self.threshold(fpr)

    def threshold(self, fpr: float = 0.05) -> float:
        """The score that at most a share `fpr` of new known rows exceeds, on average over fits.

        It stands on scores of labels that the fit did not see: some that were held out, or, with
        fewer than fifty different labels, all of them, as if they had not been given where that
        has a closed form, and for classes under three shorter fits without a third of them each.
        With fewer than six labels of classes that have two, and for numbers without the closed
        form, it stands on labels that were learnt, and more new rows than `fpr` exceed it.
        """
        if not 0 < fpr < 1:
            raise ValueError(f"fpr must lie strictly between 0 and 1, got {fpr}; try 0.05.")
        return threshold_of(self.reference_scores_, fpr)

    def save(self, path: str | os.PathLike[str]) -> None:
        """The whole model as one file, for `gpn.load`."""
        from gpn.estimators.persistence import save_model

        check_is_fitted(self)
        save_model(self, path)

    def functions(self, n: int = 1, random_state: Any = 0) -> Callable[[Any], Array]:
        """`n` functions, for ever: what `sample_y` or `sample_proba` gives, at any rows, in pieces.

        Those methods draw afresh for the rows that they are given; here a row has the same values
        whatever stands beside it, also under an exact GP (see `gpn.methods.gp`).
        """
        check_is_fitted(self)
        values = self.posterior_.draw_many(n, as_seed(random_state))
        return lambda X: self._sampled(values(self._inputs(X)).cpu().double())

    def _sampled(self, draws: torch.Tensor) -> Array:
        """Draws of the posterior in the units of the data, functions last."""
        raise NotImplementedError

    def _draws(self, x: torch.Tensor, n: int, seed: int) -> torch.Tensor:
        return self.posterior_.sample(x, n, rng=seed).cpu().double()


def threshold_of(reference: Array, fpr: float) -> float:
    """The ⌈(n + 1)(1 − fpr)⌉-th lowest of n scores of known rows.

    Of n + 1 rows that are alike each is as likely as any other to score highest. Where n is too
    small for that it is the highest, which a share 1/(n + 1) of known rows exceeds.
    """
    rank = min(conformal_rank(len(reference), 1 - fpr), len(reference))
    return float(np.sort(reference)[rank - 1])


def as_array(values: Any) -> Any:
    """A tensor as an array, from any device and in a dtype that numpy has; others as they are."""
    if not isinstance(values, torch.Tensor):
        return values
    plain = values.detach().cpu()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()


def as_seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))


def _precision(X: Array) -> torch.dtype:
    """Double where a posterior can be followed closely: few labels of few columns."""
    close = len(X) <= FEW_LABELS and X[0].size <= MAX_FEW_INPUTS
    return torch.float64 if close else torch.float32


def most_unknown(scores: torch.Tensor, most: int) -> torch.Tensor:
    """The rows that a joint choice is made from: all, or the `most` that score highest."""
    return scores.topk(min(len(scores), most)).indices.sort().values


def to_numpy(values: torch.Tensor) -> Array:
    return values.detach().cpu().numpy()


def _repeats(weights: Any, X: Array, state: np.random.RandomState) -> Array:
    """Row numbers, each as often as its weight says; fractions are shared out without bias."""
    if weights is None:
        return np.arange(len(X))
    given = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
    counts = given
    if np.any(given % 1) or given.sum() > MAX_REPEATS * len(X):
        marks = np.concatenate([[0.0], np.cumsum(given * len(X) / given.sum())])
        counts = np.diff(np.floor(marks + state.uniform()))
    return np.repeat(np.arange(len(X)), counts.astype(int))


def _in_order(X: Array, y: Array, rows: Array) -> Array:
    """The rows sorted by their values."""
    if X.ndim > 2:
        return rows
    keys = (*X[rows].T, *np.atleast_2d(y[rows].T))
    return rows[np.lexsort(keys)]


class _Named(Estimator):
    """Builds any method by its name."""

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

    def _method(self, task: Task) -> Any:
        return registry.get(self.method, **(self.settings or {}))
