"""The threshold on OOD scores, from scores of known rows that the fit did not learn from.

Four rules give such scores. A fit in closed form has `unseen_labels`, where each label is left out
in turn; for others `choose_rule` picks one:

    held_out       fifty different labels or more: a tenth is held out of the fit
    leave_one_out  fewer, and the fit reports leave-one-out variances in closed form
    cross_fitted   fewer, of classes: three shorter fits, each without a third of the labels

Where none of them is possible, `held_out` scores the labels that were learnt.
"""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpn.core.posterior.base import Posterior
from gpn.core.priors.leave_one_out import loo_variance
from gpn.core.task import Task
from gpn.core.warnings import GPNWarning
from gpn.estimators.intervals.conformal import conformal_rank
from gpn.methods.gpn import GPNPosterior
from gpn.methods.registry import Method
from gpn.training.config import TrainConfig

Array = NDArray[Any]

MIN_LABELS_TO_HOLD_OUT = 50
MIN_HELD_OUT = 19  # one new row in twenty exceeds the highest of 19
MAX_HELD_OUT = 1000
FOLDS = 3
MIN_LABELS_TO_FOLD = 6
FOLD_STEPS = 0.5  # share of the fit's steps: three such fits cost one and a half of it


def threshold_of(reference: Array, fpr: float) -> float:
    """The ⌈(n + 1)(1 − fpr)⌉-th lowest of n scores of known rows.

    Of n + 1 exchangeable rows each is equally likely to score highest. Where n is too small for
    that rank, it is the highest score, which a share 1/(n + 1) of known rows exceeds.
    """
    rank = min(conformal_rank(len(reference), 1 - fpr), len(reference))
    return float(np.sort(reference)[rank - 1])


@dataclass(frozen=True)
class Fit:
    """A finished fit, as a rule sees it; `task` has all labels, learnt or not."""

    method: Method
    posterior: Posterior
    task: Task
    seed: int
    score: Callable[[Posterior, Tensor], Array]
    weights: Tensor | None = None  # of labels


ThresholdRule = Callable[[Fit], Array]  # scores of known rows, in any order


def unseen_labels(fit: Fit) -> Array:
    """The posterior's deviation at labels that it predicted before it learnt them.

    A label whose row has copies is not unseen while they are learnt: copies are left out together.
    """
    assert isinstance(fit.posterior, GPNPosterior)
    unseen = fit.posterior.fit_report.unseen
    assert unseen is not None
    x, noise_std = fit.task.x_obs, fit.posterior.noise_std
    variance = unseen.variance[:, 0]
    if len(variance) == len(x) and noise_std and len(x.unique(dim=0)) < len(x):
        given_all = fit.posterior.variance(x)[:, 0].to(variance)
        variance = variance.maximum(loo_variance(given_all, x.to(variance), noise_std, fit.weights))
    return (variance.double() * fit.posterior.n_outputs).sqrt().cpu().numpy()


def choose_rule(
    groups: Array, classes: Array | None, state: np.random.RandomState, *, has_loo: bool
) -> tuple[Array, ThresholdRule]:
    """The labels to learn from, and the rule; `groups` are those of `groups_of`."""
    everything = np.arange(len(groups))
    if groups[-1] + 1 < MIN_LABELS_TO_HOLD_OUT and has_loo:
        return everything, leave_one_out
    rows = held_out_rows(groups, classes, state)
    if len(rows):
        return np.setdiff1d(everything, rows), partial(held_out, rows=rows)
    folds = [] if classes is None else class_folds(groups, classes, state)
    if folds:
        return everything, partial(cross_fitted, folds=folds)
    return everything, partial(held_out, rows=everything)


def held_out(fit: Fit, rows: Array) -> Array:
    """Scores of the labels `rows`."""
    return fit.score(fit.posterior, fit.task.x_obs[rows])


def leave_one_out(fit: Fit) -> Array:
    """(v₋ + max(0, Var[g] − v))^{1/2} at each label.

    v and v₋ are the exact posterior's variances with and without that label. Where the network
    has more variance than v, so it has at new rows.
    """
    assert isinstance(fit.posterior, GPNPosterior)
    found, n_outputs = fit.posterior.fit_report.label_variance, fit.posterior.n_outputs
    assert found is not None
    exact = n_outputs * found.given_all.double().cpu().numpy()
    loo = n_outputs * found.leave_one_out.double().cpu().numpy()
    network = fit.score(fit.posterior, fit.task.x_obs) ** 2
    return np.sqrt(loo + (network - exact).clip(0))


def cross_fitted(fit: Fit, folds: list[Array]) -> Array:
    """Scores of each fold under a shorter fit without it."""
    method, scores = shortened(fit.method, fit.posterior), []
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(fit.task.x_obs)), fold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GPNWarning)  # the fit itself has given them
            subset = fit.task.subset(torch.from_numpy(rest))
            posterior = method.fit(subset, rng=fit.seed, progress=False)
        scores.append(fit.score(posterior, fit.task.x_obs[fold]))
    return np.concatenate(scores)


def shortened(method: Method, posterior: Posterior) -> Method:
    """The method as it fitted `posterior`, with half of the training steps where it has any.

    The posterior's configuration has what the fit searched for, such as β: no second search.
    """
    config: Any = getattr(posterior, "config", None) or getattr(method, "config", None)
    train = getattr(config, "train", None)
    if not isinstance(train, TrainConfig):
        return method
    steps = max(1, round(FOLD_STEPS * train.steps))
    shorter: Any = copy.copy(method)
    shorter.config = config.replace(train=train.replace(steps=steps))
    return shorter


def groups_of(X: Array, y: Array) -> Array:
    """A number per row, the same for copies of a row, which must be neighbours."""
    both = np.concatenate([X.reshape(len(X), -1), y.reshape(len(y), -1)], axis=1)
    return np.concatenate([[0], np.cumsum((both[1:] != both[:-1]).any(1))])


def held_out_rows(groups: Array, classes: Array | None, state: np.random.RandomState) -> Array:
    """The rows to hold out: none with fewer than fifty groups, and never all of a class.

    Copies of a row stay together.
    """
    n = int(groups.max()) + 1
    order = state.permutation(n)
    if n < MIN_LABELS_TO_HOLD_OUT:
        return np.arange(0)
    count = min(max(n // 10, min(MIN_HELD_OUT, n // 4)), MAX_HELD_OUT)
    if classes is not None:  # the first group of each class moves to the end, out of reach
        first = np.unique(_group_classes(groups, classes)[order], return_index=True)[1]
        order = np.concatenate([np.delete(order, first), order[first]])
        count = min(count, n - len(first))
    return np.flatnonzero(np.isin(groups, order[:count]))


def class_folds(groups: Array, classes: Array, state: np.random.RandomState) -> list[Array]:
    """The rows to hold out of each fit in turn; none where that leaves too few.

    Every class is dealt out evenly, but for the only label of a class, which is always learnt.
    Copies of a row stay together.
    """
    labels = _group_classes(groups, classes)
    order = state.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    shared = order[np.bincount(labels)[labels[order]] > 1]
    if len(shared) < MIN_LABELS_TO_FOLD:
        return []
    fold = np.full(len(labels), -1)
    fold[shared] = np.arange(len(shared)) % FOLDS
    return [np.flatnonzero(fold[groups] == number) for number in range(FOLDS)]


def _group_classes(groups: Array, classes: Array) -> Array:
    """The class of each group."""
    picked: Array = classes[np.unique(groups, return_index=True)[1]]
    return picked
