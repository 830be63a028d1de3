"""Which labels a fit does not see, so that their scores are those of new rows.

With fifty labels or more a tenth is held out. Fewer cannot be spared for good: those of classes are
held out in turn, by fits of their own (`folds`), and the model itself learns from all.
"""

import copy
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpn.core.posterior.base import Posterior
from gpn.core.task import Task
from gpn.core.warnings import GPNWarning
from gpn.training.config import TrainConfig

Array = NDArray[Any]

MIN_TO_HOLD_OUT = 50

ENOUGH_HELD_OUT = 19  # the highest of 19 is exceeded by one new row in twenty

MAX_HELD_OUT = 1000

FOLDS = 3

MIN_TO_FOLD = 6

FOLD_STEPS = 0.5  # of the model's own: three such fits cost one and a half of it


def split(
    groups: Array, classes: Array | None, state: np.random.RandomState
) -> tuple[Array, Array]:
    """Rows to learn from, and rows to set the threshold on; of every class one is learnt at least.

    Copies of a row stay together. With fewer than fifty different labels none can be spared, and
    both are all of them.
    """
    n = int(groups.max()) + 1
    order = state.permutation(n)
    everything = np.arange(len(groups))
    if n < MIN_TO_HOLD_OUT:
        return everything, everything
    count = min(max(n // 10, min(ENOUGH_HELD_OUT, n // 4)), MAX_HELD_OUT)
    if classes is not None:  # the first of each class goes to the end, out of reach
        first = np.unique(_of_groups(groups, classes)[order], return_index=True)[1]
        order = np.concatenate([np.delete(order, first), order[first]])
        count = min(count, n - len(first))
    if count == 0:
        return everything, everything
    held_out = np.isin(groups, order[:count])
    return everything[~held_out], everything[held_out]


def folds(groups: Array, classes: Array, state: np.random.RandomState) -> list[Array]:
    """The rows to hold out of one fit after the other; none where that leaves too little.

    Every class is dealt out in turn, so that a fit has some of each; the only label of a class is
    never held out. Copies of a row stay together.
    """
    own = _of_groups(groups, classes)
    order = state.permutation(len(own))
    order = order[np.argsort(own[order], kind="stable")]
    shared = order[np.bincount(own)[own[order]] > 1]
    if len(shared) < MIN_TO_FOLD:
        return []
    fold = np.full(len(own), -1)
    fold[shared] = np.arange(len(shared)) % FOLDS
    return [np.flatnonzero(fold[groups] == number) for number in range(FOLDS)]


def fit_without(method: Any, task: Task, rows: Array, seed: int) -> Posterior:
    """What `method` learns from all labels but `rows`; of its doubts the model's own fit tells."""
    kept = np.setdiff1d(np.arange(len(task.x_obs)), rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPNWarning)
        posterior: Posterior = method.fit(
            task.subset(torch.from_numpy(kept)), rng=seed, progress=False
        )
    return posterior


def shortened(method: Any, config: Any) -> Any:
    """The method with `config`, but for half of the steps; one that takes none is as it was."""
    train = getattr(config, "train", None)
    if not isinstance(train, TrainConfig):
        return method
    steps = max(1, round(FOLD_STEPS * train.steps))
    again = copy.copy(method)
    again.config = config.replace(train=train.replace(steps=steps))
    return again


def groups_of(X: Array, y: Array) -> Array:
    """The number of each row's kind, of rows in order: equal neighbours are of one kind."""
    both = np.concatenate([X.reshape(len(X), -1), y.reshape(len(y), -1)], axis=1)
    return np.concatenate([[0], np.cumsum((both[1:] != both[:-1]).any(1))])


def _of_groups(groups: Array, classes: Array) -> Array:
    """The class of each kind of row."""
    own: Array = classes[np.unique(groups, return_index=True)[1]]
    return own
