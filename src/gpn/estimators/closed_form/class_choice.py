"""Which prior, temperature and mean model a classifier conditions: left-out labels decide.

Each candidate is a prior by evidence, times a height κ, at a temperature T. Its score is

    −1/n Σ_i log p(y_i | others) − δ/n · mean_i log p(not y_i | others)

The second part counts δ labels, one, as wrong: few labels cannot tell p = 0.99 from
p = 0.9999, and the safer of the two is wanted. Heights and temperatures are averaged, with weights
exp(−n · score); candidates are compared by their best score, with an advantage for simple ones.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpn.core.posterior.softmax import softmax_moments
from gpn.core.priors.ard import ARDPrior
from gpn.core.priors.class_evidence import learn_class_prior
from gpn.core.priors.laplace import FullCovariance, Mode, find_mode, laplace_root
from gpn.core.types import Labels, Outputs, as_generator
from gpn.estimators.closed_form.class_mean import (
    MAX_CLASSES,
    MIN_LABELS,
    ClassMean,
    cross_fit_classes,
    has_folds,
)
from gpn.methods.gpn.model.class_generator import tempered

Rows = NDArray[np.float64]
OnStep = Callable[[], None]
Grid = NDArray[np.float64]  # a line per height, a column per temperature

HEIGHTS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
TEMPERATURES = (0.01, 0.03, 0.1, 0.3, 1.0)
WRONG_SHARE = 1.0  # δ
MIN_WRONG = 1e-6
FEW_LABELS, SOME_LABELS = 100, 600  # five folds, three, and one split beyond
MAX_TRAIN, MAX_TEST = 400, 1000
FOLD_STEPS, MEAN_STEPS = 8, 10
PAIRS = 32
# A score must be so much better than that of a simpler candidate, at a hundred labels.
ADVANTAGE = {"linear": 0.0, "shared": 0.15, "columns": 0.25, "trees": 0.2}
ADVANTAGE_LABELS = 100
HOPELESS = 1.5  # a mean model whose own score is so many times worse is not tried
NO_HELP = 1.05  # nor trees as the mean, where as columns they do so much worse


@dataclass(frozen=True)
class ClassChoice:
    """Inputs of the labels, with the mean model's columns where there is one, and the prior."""

    x: Tensor
    prior: ARDPrior
    temperature: float
    mean: ClassMean | None = None
    kind: str = "shared"
    score: float = math.nan


@dataclass(frozen=True)
class _Candidate:
    """A prior by evidence before its height is chosen; `parent` is where its search began."""

    kind: str
    x: Tensor
    prior: ARDPrior
    parent: ARDPrior | None = None
    mean: ClassMean | None = None


def choose_classes(
    X: Rows, x: Tensor, y: Labels, n_classes: int, mean: Any, on_step: OnStep
) -> ClassChoice:
    """The best of: linear functions, one scale, a scale per column; and a mean model beside them.

    `X` are the rows in the units of the data, which the mean model sees; `x` the scaled ones.
    """
    x = x.double()
    zeros = x.new_zeros(len(x), n_classes)
    shared = learn_class_prior(x, y, zeros, kind="shared")
    columns = learn_class_prior(x, y, zeros, kind="columns", start=shared)
    linear = learn_class_prior(x, y, zeros, kind="linear")
    on_step()
    candidates = [
        _Candidate("linear", x, linear),
        _Candidate("shared", x, shared),
        _Candidate("columns", x, columns, parent=shared),
    ]
    parts = list(splits(x, y))
    choices = [_scored(candidate, y, n_classes, parts) for candidate in candidates]
    alone = _best(choices, len(y))
    on_step()
    model = None if isinstance(mean, str) else mean
    numbers = y.cpu().numpy()
    rarest = int(np.bincount(numbers, minlength=n_classes).min())
    too_little = len(y) < MIN_LABELS or n_classes > MAX_CLASSES or rarest < 2
    if mean is None or (model is None and too_little) or not has_folds(numbers):
        return alone
    out_of_fold, fitted = cross_fit_classes(X, numbers, n_classes, model, on_step)
    odds = torch.from_numpy(out_of_fold).to(x)
    own = float(torch.nn.functional.cross_entropy(odds, y))
    if model is None and own > HOPELESS * alone.score:
        return alone
    for as_mean in (False, True):
        if as_mean and model is None and choices[-1].score > NO_HELP * alone.score:
            break
        candidate = _with_mean(x, y, odds, replace(fitted, as_mean=as_mean), shared)
        choices.append(_scored(candidate, y, n_classes, parts))
        on_step()
    return _best(choices, len(y))


def _with_mean(
    x: Tensor, y: Labels, odds: Outputs, model: ClassMean, shared: ARDPrior
) -> _Candidate:
    """A scale per column, those of the mean model's included."""
    both = torch.cat([x, odds], dim=1)
    n_columns = odds.shape[1] if model.as_mean else 0
    mean = odds if model.as_mean else torch.zeros_like(odds)
    scales = shared.column_scales + (shared.column_scales[0],) * odds.shape[1]
    parent = replace(shared, column_scales=scales, mean_columns=n_columns)
    prior = learn_class_prior(both, y, mean, start=parent, mean_columns=n_columns, steps=MEAN_STEPS)
    return _Candidate("trees", both, prior, parent=parent, mean=model)


def _best(choices: list[ClassChoice], n: int) -> ClassChoice:
    """The best score; a candidate with more freedom must be better by its advantage."""
    share = min(1.0, ADVANTAGE_LABELS / n)
    return min(choices, key=lambda one: one.score / (1 - share * ADVANTAGE[one.kind]))


def _scored(
    candidate: _Candidate, y: Labels, n_classes: int, parts: list[tuple[Tensor, Tensor]]
) -> ClassChoice:
    """The candidate at its best height and temperature."""
    scores, counted = np.zeros((len(HEIGHTS), len(TEMPERATURES))), 0
    for train, test in parts:
        prior = _refitted(candidate, y, train, n_classes)
        scores += len(test) * _grid(prior, candidate.x, y, train, test, n_classes)
        counted += len(test)
    scores /= counted
    weights = np.exp(-counted * (scores - scores.min()))
    weights /= weights.sum()
    height = math.exp(float(weights.sum(1) @ np.log(HEIGHTS)))
    temperature = math.exp(float(weights.sum(0) @ np.log(TEMPERATURES)))
    prior = tempered(candidate.prior, height * temperature)
    best = float(scores.min())
    return ClassChoice(candidate.x, prior, temperature, candidate.mean, candidate.kind, best)


def splits(x: Tensor, y: Labels) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows to learn from and rows to predict; copies of a row stay together.

    Of many rows there is one split, whose first rows are those that priors are learnt from.
    """
    order = torch.randperm(len(y), generator=as_generator(0)).to(y.device)
    group = x[order].unique(dim=0, return_inverse=True)[1]
    first = torch.full_like(group, len(y)).scatter_reduce(
        0, group, torch.arange(len(y), device=y.device), "amin"
    )
    order = order[first[group].argsort(stable=True)]
    place = first[group].sort().values.unique_consecutive(return_inverse=True)[1]
    if int(place[-1]) == 0:  # all rows are equal
        place = torch.arange(len(y), device=y.device)
    n_groups = int(place[-1]) + 1
    if len(y) > SOME_LABELS and n_groups > MAX_TRAIN:
        yield order[:MAX_TRAIN], order[MAX_TRAIN : MAX_TRAIN + MAX_TEST]
        return
    n_parts = 5 if len(y) <= FEW_LABELS else 3
    for numbers in torch.arange(n_groups, device=y.device).tensor_split(min(n_parts, n_groups)):
        is_left_out = torch.isin(place, numbers)
        train = order[~is_left_out][:MAX_TRAIN]
        if len(train):
            yield train, order[is_left_out][:MAX_TEST]


def _refitted(candidate: _Candidate, y: Labels, train: Tensor, n_classes: int) -> ARDPrior:
    """The prior of many scales without the rows that it is to predict; few scales stay."""
    if candidate.parent is None or len(y) > SOME_LABELS:
        return candidate.prior
    x, columns = candidate.x[train], candidate.prior.mean_columns
    mean = candidate.prior.mean(x, n_classes)
    return learn_class_prior(
        x,
        y[train],
        mean,
        start=candidate.parent,
        mean_columns=columns,
        steps=FOLD_STEPS,
    )


def _grid(
    prior: ARDPrior, x: Tensor, y: Labels, train: Tensor, test: Tensor, n_classes: int
) -> Grid:
    """The mean score of the rows `test` for each height and temperature."""
    gram, cross = prior.kernel(x[train], x[train]), prior.kernel(x[train], x[test])
    mean, at_test = prior.mean(x[train], n_classes), prior.mean(x[test], n_classes)
    prior_variance = prior.variance(x[test])
    mode: Mode | None = None
    lines = []
    for height in HEIGHTS:
        start = None if mode is None else mode.weights
        mode = find_mode(FullCovariance(height * gram), y[train], mean, start)
        root = laplace_root(height * gram, mode.precision)
        half = height * (root @ cross)
        logits = at_test + height * (cross.T @ mode.weights)
        variance = (height * prior_variance - half.square().sum(0)).clamp_min(0.0)
        lines.append([_score(logits, t * variance, y[test], len(y)) for t in TEMPERATURES])
    return np.array(lines)


def _score(mean: Outputs, variance: Tensor, y: Labels, n: int) -> float:
    """The mean of −log p(y) and, with weight δ/n, of −log p(another class)."""
    p, _ = softmax_moments(mean, variance[:, None].expand_as(mean), PAIRS)
    right = p[torch.arange(len(y), device=y.device), y].clamp(MIN_WRONG, 1 - MIN_WRONG)
    wrong = (1 - right) / (p.shape[1] - 1)
    return -float(right.log().mean() + WRONG_SHARE / n * wrong.log().mean())
