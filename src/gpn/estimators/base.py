"""What regressors and classifiers share: rows in and out, scores, and the threshold on them."""

import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from gpn.core.checkpoint import Where
from gpn.core.conformal import conformal_rank
from gpn.core.diagnostic import GPNWarning
from gpn.core.pool import Pool, bounded_rows
from gpn.core.posterior import Posterior
from gpn.core.strangers import made_up
from gpn.core.task import Task, pool_outside_memory
from gpn.core.types import as_generator
from gpn.estimators.pieces import in_pieces
from gpn.methods.gpn.config import JOINT_DIMENSIONS
from gpn.scaling import Scale

Array = NDArray[Any]
FEW_LABELS = 1000
FEWEST_TO_HOLD_OUT = 50
ENOUGH_HELD_OUT = 19  # the highest of 19 is exceeded by one new row in twenty
MOST_HELD_OUT = 1000
MOST_REPEATS = 10
DRAWS = 200


class MadeUpPoolWarning(GPNWarning):
    """No unlabeled rows were given, and some had to be made up."""


class Estimator(BaseEstimator):
    """What regressors and classifiers share.

    Attributes after `fit`
        posterior_: what was fitted, in scaled units. x_scale_: how columns were scaled.
        reference_scores_: sorted OOD scores of known rows, which set the threshold of `is_ood`:
        of labels that were held out; with fewer than 50, of the labels as if they had not been
        given, where that has a closed form, else of the labels themselves.
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

    def _scale(self, X: Array) -> Scale:
        """How columns are brought to what a network expects."""
        return Scale.of(X)

    def _scores(self, x: torch.Tensor) -> Array:
        """Larger is more unknown."""
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
        checkpoint: Where = None,
    ) -> None:
        """Fit, and remember the scores of labels that the fit did not see, or as if it had not."""
        state = check_random_state(self.random_state)
        pool = self._scaled_pool(X, X_unlabeled)
        dtype = _precision(X)
        x, seed = self._rows(X).to(dtype), as_seed(state)
        unlabeled = _made_up(x, seed) if pool is None else pool.to(x.device, dtype)
        targets = torch.from_numpy(y) if n_classes else torch.from_numpy(y).to(dtype)
        task = Task(x, targets, pool=unlabeled, n_classes=n_classes)
        held_out = np.arange(0)
        groups = _groups(X, y)
        if groups[-1] + 1 >= FEWEST_TO_HOLD_OUT or not self._knows_left_out(task):
            kept, held_out = _split(groups, y if n_classes else None, state)
            task = task.labels(torch.from_numpy(kept))
        show = True if self.verbose else None
        method = self._method(task)
        keep = {} if checkpoint is None else self._kept_in(checkpoint, method)
        self.posterior_ = method.fit(task, rng=seed, progress=show, **keep)
        scores = self._scores(x[held_out]) if len(held_out) else self._left_out_scores(x)
        self.reference_scores_ = np.sort(scores)

    def _scaled_pool(self, X: Array, X_unlabeled: Any) -> torch.Tensor | Pool | None:
        """Unlabeled rows, scaled as they and the labels want it; a sample stands for a big pool."""
        source = pool_outside_memory(X_unlabeled)
        if source is None:
            rows = None if X_unlabeled is None else self._validated(X_unlabeled)
            self.x_scale_ = self._scale(X if rows is None else np.concatenate([X, rows]))
            return None if rows is None else self._rows(rows)
        sample = to_numpy(source.sample(bounded_rows(X[0].size), as_generator(0)))
        self.x_scale_ = self._scale(np.concatenate([X, self._validated(sample)]))
        return source.mapped(lambda part: self._rows(to_numpy(part)))

    def _kept_in(self, checkpoint: Where, method: Any) -> dict[str, Any]:
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
        check_is_fitted(self)
        return self._rows(self._validated(X))

    @in_pieces
    def ood_score(self, X: Any) -> Array:
        """How unknown each row is: larger is more so."""
        return self._scores(self._inputs(X))

    @in_pieces
    def is_ood(self, X: Any, fpr: float = 0.05) -> NDArray[np.bool_]:
        """Rows more unknown than all but a share `fpr` of known ones."""
        return self.ood_score(X) > self.threshold(fpr)

    def threshold(self, fpr: float = 0.05) -> float:
        """The score that at most a share `fpr` of new known rows exceeds, on average over fits."""
        if not 0 < fpr < 1:
            raise ValueError(f"fpr must lie strictly between 0 and 1, got {fpr}; try 0.05.")
        return threshold_of(self.reference_scores_, fpr)

    def save(self, path: str | os.PathLike[str]) -> None:
        """The whole model as one file, for `gpn.load`."""
        from gpn.model_file import save_model

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
    close = len(X) <= FEW_LABELS and X[0].size <= JOINT_DIMENSIONS
    return torch.float64 if close else torch.float32


def most_unknown(scores: torch.Tensor, most: int) -> torch.Tensor:
    """The rows that a joint choice is made from: all, or the `most` that score highest."""
    return scores.topk(min(len(scores), most)).indices.sort().values


def to_numpy(values: torch.Tensor) -> Array:
    return values.detach().cpu().numpy()


def _split(
    groups: Array, classes: Array | None, state: np.random.RandomState
) -> tuple[Array, Array]:
    """Rows to learn from, and rows to set the threshold on; of every class one is learnt at least.

    Copies of a row stay together. With fewer than fifty different labels none can be spared, and
    both are all of them.
    """
    n = int(groups.max()) + 1
    order = state.permutation(n)
    everything = np.arange(len(groups))
    if n < FEWEST_TO_HOLD_OUT:
        return everything, everything
    count = min(max(n // 10, min(ENOUGH_HELD_OUT, n // 4)), MOST_HELD_OUT)
    if classes is not None:  # the first of each class goes to the end, out of reach
        own = classes[np.unique(groups, return_index=True)[1]]
        first = np.unique(own[order], return_index=True)[1]
        order = np.concatenate([np.delete(order, first), order[first]])
        count = min(count, n - len(first))
    if count == 0:
        return everything, everything
    held_out = np.isin(groups, order[:count])
    return everything[~held_out], everything[held_out]


def _groups(X: Array, y: Array) -> Array:
    """The number of each row's kind, of rows in order: equal neighbours are of one kind."""
    both = np.concatenate([X.reshape(len(X), -1), y.reshape(len(y), -1)], axis=1)
    return np.concatenate([[0], np.cumsum((both[1:] != both[:-1]).any(1))])


def _repeats(weights: Any, X: Array, state: np.random.RandomState) -> Array:
    """Row numbers, each as often as its weight says; fractions are shared out without bias."""
    if weights is None:
        return np.arange(len(X))
    given = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
    counts = given
    if np.any(given % 1) or given.sum() > MOST_REPEATS * len(X):
        marks = np.concatenate([[0.0], np.cumsum(given * len(X) / given.sum())])
        counts = np.diff(np.floor(marks + state.uniform()))
    return np.repeat(np.arange(len(X)), counts.astype(int))


def _in_order(X: Array, y: Array, rows: Array) -> Array:
    """The rows sorted by their values."""
    if X.ndim > 2:
        return rows
    keys = (*X[rows].T, *np.atleast_2d(y[rows].T))
    return rows[np.lexsort(keys)]


def _made_up(x: torch.Tensor, seed: int) -> torch.Tensor:
    warnings.warn(
        "a fit should see unlabeled rows like those it will be asked about, got none; some are "
        "made up from the labeled ones, which is second best; pass fit(X, y, X_unlabeled=...).",
        MadeUpPoolWarning,
        stacklevel=4,
    )
    return torch.cat([x, made_up(x, max(1000, len(x)), as_generator(seed))])
