"""Which prior, and which mean model, a fit in closed form conditions: left-out labels decide.

Leaving labels out of a posterior, but not out of the search for its prior, is too hopeful where
labels are few: 437 labels and 17 scales had a squared error of 0.33 so, and of 0.40 in new folds,
where a linear prior had 0.35 and 0.36. Up to `MAX_CROSS_VALIDATED` labels each fold is predicted by
a posterior whose prior has not seen it either; of more, labels are left out one by one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpn.core.priors.ard_evidence import LearntPrior, learn_ard_prior, usual_prior
from gpn.core.priors.linear_evidence import learn_linear_prior
from gpn.core.types import as_generator
from gpn.core.warnings import SearchWarning, warn_caller
from gpn.estimators.closed_form.groups import Groups, category_groups, one_group, with_own
from gpn.estimators.closed_form.mean import FOLDS, MAX_TARGETS, MIN_LABELS, MeanModel, cross_fit
from gpn.estimators.intervals.label_noise import student_loss
from gpn.methods.gpn.fit_report import UnseenLabels
from gpn.methods.gpn.fitting.closed_form import unseen_rows
from gpn.methods.gpn.model.kernel_generator import condition_exactly, leave_one_out
from gpn.training.torch_state import side_by_side

Rows = NDArray[np.float64]
OnStep = Callable[[], None]

MAX_SCORED_LABELS = 2000
MIN_COSINE_LABELS = 1000  # from so many on cosines, the RBF kernel, are tried as well; of fewer,
# one scale for all columns: own ones need labels
MAX_CROSS_VALIDATED = 600
FOLD_STEPS = 8  # of the search for a fold's prior, which begins at the answer for all labels
MAX_ERROR_RATIO = 1.2
LABELS_PER_EXTREME = 40  # one label in so many may be typed wrong, and decides nothing
HOPELESS = 3.0  # a mean with so many times the squared error of the posterior is not tried


@dataclass(frozen=True)
class Choice:
    """Inputs of the labels, with the mean model's column where there is one, and the prior."""

    x: Tensor
    learnt: LearntPrior
    mean: MeanModel | None
    groups: Groups | None = None  # of columns that share a scale
    linear_only: bool = False
    score: float = math.nan  # negative log score per left-out label
    squared_error: float = math.nan  # of such labels, without the few worst
    weights: Tensor | None = None  # of labels, whose noise is σ²/c
    unseen: UnseenLabels | None = None  # few labels, as priors predict them that have not seen them

    def scored(self, y: Tensor) -> "Choice":
        """With how it predicts left-out labels."""
        if len(y) <= MAX_CROSS_VALIDATED:
            unseen = cross_validated(self, y)
            residuals, variance = (y - unseen.mean).numpy(), unseen.variance.numpy()
            weights = np.ones((len(y), 1))
            if self.weights is not None:
                weights = self.weights[:, None].double().numpy()
        else:
            unseen = None
            residuals, variance, weights = _left_out(self.learnt, self.x, y, self.weights)
        total = variance + self.learnt.noise_std**2 / weights
        losses = [
            student_loss(residual / np.sqrt(spread)) + np.log(spread).mean() / 2
            for residual, spread in zip(residuals.T, total.T, strict=True)
        ]
        error = _usual_square((residuals**2 * weights).mean(1)) / float(np.mean(weights))
        return replace(self, score=float(np.mean(losses)), squared_error=error, unseen=unseen)


def choose(
    X: Rows, x: Tensor, y: Tensor, mean: Any, on_step: OnStep, weights: Tensor | None = None
) -> Choice:
    """The best of: no mean model, one as a column of the kernel, one as the prior's mean.

    Without one, functions may also be linear, share one scale for all columns, or have the RBF
    kernel.

    `X` are the rows in the units of the data, which the mean model sees; `x` the scaled ones.
    """
    if len(y) < 2 or not bool((y != y[0]).any()):
        return Choice(x, usual_prior(x.shape[1]), None, weights=weights)
    groups = category_groups(X)
    search = partial(_nonlinear, x, y, weights)
    searches = [partial(search, groups, start="erf")]
    if len(y) >= MIN_COSINE_LABELS:
        searches.append(partial(search, groups, start="cos"))
    elif max(groups) > 0:
        searches.append(partial(search, one_group(groups), start="erf"))
    searches.append(partial(_linear, x, y, weights))
    model = None if isinstance(mean, str) else mean
    too_little = len(y) < MIN_LABELS or y.shape[1] > MAX_TARGETS
    if mean is None or (model is None and too_little):
        choices = side_by_side(*searches)
        on_step()
        return _best(choices)
    unseen = unseen_rows(len(y)).numpy()
    fit_mean = partial(
        cross_fit,
        *(X, x.numpy(), y.numpy(), model),
        unseen=unseen,
        on_step=on_step,
        weights=None if weights is None else weights.numpy(),
    )
    (predicted, fitted), *choices = side_by_side(fit_mean, *searches)
    on_step()
    alone, column = _best(choices), torch.from_numpy(predicted).to(x)
    error = _usual_square((column - y).square().mean(1).numpy())
    if model is None and error > HOPELESS * alone.squared_error:
        return alone
    both, nonlinear = torch.cat([x, column], dim=1), _best(choices[:-1])
    groups = with_own(nonlinear.groups or groups, column.shape[1])
    search = partial(_nonlinear, both, y, weights, groups, start=nonlinear.learnt)
    uses = [replace(fitted, as_mean=as_mean) for as_mean in (False, True)]
    choices += side_by_side(*(partial(search, mean=use) for use in uses))
    on_step()
    return _best(choices)


def _usual_square(squares: Rows) -> float:
    """The mean of squared errors without the few worst, which may be labels typed wrong."""
    return float(np.sort(squares)[: len(squares) - len(squares) // LABELS_PER_EXTREME].mean())


def _best(choices: list[Choice]) -> Choice:
    """The best likelihood among those whose squared error is about the smallest.

    A prior that is right at most labels and far off at some may have the better likelihood, by a
    long tail.
    """
    most = MAX_ERROR_RATIO * min(choice.squared_error for choice in choices)
    return min((c for c in choices if c.squared_error <= most), key=lambda choice: choice.score)


def warn_of_edge(learnt: LearntPrior) -> None:
    """Warn where the search left the noise at the end of its range.

    The prior's other variances may end there where functions are polynomials: a harmless limit.
    """
    if "noise" in learnt.at_edge:
        warn_caller(
            "the labels should be more than noise, the search for their prior ended at the largest "
            f"noise that it allows, {learnt.noise_std:.2g} standard deviations of y; look for "
            "labels that are far off.",
            SearchWarning,
        )


def cross_validated(choice: Choice, y: Tensor) -> UnseenLabels:
    """Each fold of few labels as a posterior predicts it whose prior has not seen it either."""
    columns = choice.learnt.prior.mean_columns
    order = torch.randperm(len(y), generator=as_generator(2))
    first = (choice.x[:, None] == choice.x).all(-1).int().argmax(1)  # copies share their first row
    means, variances = torch.zeros_like(y), torch.zeros_like(y)
    for part in order.tensor_split(min(FOLDS, len(y))):
        is_left_out = torch.isin(first, part)
        fold, rest = is_left_out.nonzero()[:, 0], (~is_left_out).nonzero()[:, 0]
        if min(len(fold), len(rest)) == 0:
            continue
        x, targets = choice.x[rest], y[rest]
        weights = None if choice.weights is None else choice.weights[rest]
        learnt = (
            learn_linear_prior(x, targets, weights)
            if choice.linear_only
            else learn_ard_prior(
                x,
                targets,
                groups=choice.groups,
                start=choice.learnt,
                mean_columns=columns,
                activation=choice.learnt.prior.activation,
                weights=weights,
                steps=FOLD_STEPS,
            )
        )
        generator = condition_exactly(
            learnt.prior, x.double(), targets.double(), learnt.noise_std, weights
        )
        means[fold], variances[fold] = generator.moments(choice.x[fold].double())
    return UnseenLabels(torch.arange(len(y)), means, variances)


def _nonlinear(
    x: Tensor,
    y: Tensor,
    weights: Tensor | None,
    groups: Groups,
    *,
    start: LearntPrior | str,
    mean: MeanModel | None = None,
) -> Choice:
    """A prior by evidence; its search starts from an earlier answer, or with an activation."""
    learnt = learn_ard_prior(
        x,
        y,
        groups=groups,
        start=None if isinstance(start, str) else start,
        mean_columns=y.shape[1] if mean is not None and mean.as_mean else 0,
        activation=start if isinstance(start, str) else start.prior.activation,
        weights=weights,
    )
    return Choice(x, learnt, mean, groups, weights=weights).scored(y)


def _linear(x: Tensor, y: Tensor, weights: Tensor | None) -> Choice:
    learnt = learn_linear_prior(x, y, weights)
    return Choice(x, learnt, None, linear_only=True, weights=weights).scored(y)


def _left_out(
    learnt: LearntPrior, x: Tensor, y: Tensor, weights: Tensor | None
) -> tuple[Rows, Rows, Rows]:
    """y − mean, the function's variance and the weight, of (some) labels given the others."""
    order = torch.randperm(len(x), generator=as_generator(1))[:MAX_SCORED_LABELS]
    some_x, some_y = x[order].double(), y[order].double()
    some = None if weights is None else weights[order].to(some_x)
    generator = condition_exactly(learnt.prior, some_x, some_y, learnt.noise_std, some)
    mean, variance = leave_one_out(generator, some_y, learnt.noise_std, some)
    each = np.ones((len(order), 1)) if some is None else some[:, None].cpu().numpy()
    return (some_y - mean).cpu().numpy(), variance.cpu().numpy(), each
