"""Which prior, and which mean model, a fit in closed form conditions: left-out labels decide.

Leaving labels out of a posterior, but not out of the search for its prior, is too hopeful where
labels are few: 437 labels and 17 scales had a squared error of 0.33 so, and of 0.40 in new folds,
where a linear prior had 0.35 and 0.36. Up to `MAX_CROSS_VALIDATED` labels each fold is predicted by
a posterior whose prior has not seen it either; of more, labels are left out one by one.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpn.core.priors.ard import STATIONARY
from gpn.core.priors.ard_evidence import LearntPrior, learn_ard_prior, usual_prior
from gpn.core.priors.linear_evidence import learn_linear_prior
from gpn.core.types import as_generator
from gpn.core.warnings import SearchWarning, warn_caller
from gpn.estimators.closed_form.groups import Groups, category_groups, one_group, with_own
from gpn.estimators.closed_form.mean import (
    MAX_TARGETS,
    MIN_LABELS,
    MeanModel,
    cross_fit,
    folds_of,
    nested_predictions,
)
from gpn.estimators.intervals.label_noise import student_loss
from gpn.methods.gpn.fit_report import UnseenLabels
from gpn.methods.gpn.fitting.closed_form import unseen_rows
from gpn.methods.gpn.model.kernel_generator import (
    KernelGenerator,
    condition_exactly,
    leave_one_out,
)
from gpn.training.torch_state import side_by_side

Rows = NDArray[np.float64]
Index = NDArray[np.int64]
OnStep = Callable[[], None]
Moments = tuple[Tensor, Tensor, Tensor]  # numbers of rows, means and variances

MAX_SCORED_LABELS = 2000
# From so many labels on the RBF and the Matérn kernel are tried as well; of fewer, one scale for
# all columns, as a scale for each needs labels.
MIN_STATIONARY_LABELS = 1000
MAX_CROSS_VALIDATED, MAX_ALL_FOLDS = 600, 300
SOME_FOLDS = 3  # of five, beyond the latter
FOLD_STEPS = 6  # of the search for a fold's prior, which begins at the answer for all labels
MAX_ERROR_RATIO = 1.2
LABELS_PER_EXTREME = 40  # one label in so many may be typed wrong, and decides nothing
ADVANTAGE = 0.1  # nats times √n that a candidate must gain over the next simpler one
# Nats that an e times smaller squared error is worth: likelihoods within 0.01 nats of each other
# may have errors that differ by half.
NATS_PER_ERROR, MIN_ERROR = 0.1, 1e-8
HOPELESS = 3.0  # a mean with so many times the squared error of the posterior is not tried
# Squared errors of left-out labels are 0.1 to 1.4 times what the posterior expects on 12 tables;
# beyond this, functions bend wildly to pass through nearly equal rows with different labels.
MAX_SURPRISE = 4.0
NOISE_STEP, MAX_NOISE_STEPS = 3.0, 4


@dataclass(frozen=True)
class Choice:
    """Inputs of the labels, with the mean model's column where there is one, and the prior.

    groups: columns that share a scale. score: the negative log score per left-out label.
    squared_errors: of such labels, without the few worst and of all. surprise: these of all, in
    units of what the posterior expects. unseen: few labels, as priors
    predict them that have not seen them.
    """

    x: Tensor
    learnt: LearntPrior
    mean: MeanModel | None = None
    groups: Groups | None = None
    linear_only: bool = False
    score: float = math.nan
    squared_errors: tuple[float, float] = (math.nan, math.nan)
    surprise: float = math.nan
    unseen: UnseenLabels | None = None

    @property
    def complexity(self) -> int:
        """0: linear functions; 1: one scale; 2: a scale for each column; 3: a mean model too."""
        if self.mean is not None:
            return 3
        has_one_scale = self.groups is not None and max(self.groups) == 0
        return 0 if self.linear_only else 1 if has_one_scale else 2


@dataclass(frozen=True)
class _Labels:
    """What every candidate is judged by. A label of weight c has the noise σ²/c.

    folds: of few labels (some of the folds), which are left out together; else labels are left out
    one by one.
    """

    y: Tensor
    weights: Tensor | None
    folds: list[tuple[Index, Index]] | None

    def scored(self, choice: Choice, nested: Rows | None = None) -> Choice:
        """The choice with how it predicts left-out labels.

        Folds are predicted by priors that have not seen them, and by the prior itself: the worse
        of both counts. The first shows what follows the noise, the second a search that ended at a
        prior for these labels alone.
        """
        if self.folds is None:
            return self._judged(choice, self._left_out(choice))
        both = zip(*self._cross_validated(choice, self.folds, nested), strict=True)
        columns = [zip(*folds, strict=True) for folds in both]
        found = [self._judged(choice, UnseenLabels(*map(torch.cat, each))) for each in columns]
        return max(found, key=lambda each: each.score)

    def steadied(self, choice: Choice) -> Choice:
        """The choice with so much noise that left-out labels are not far off; most need no more.

        Evidence on some labels may leave no noise where no two of them contradict each other, and
        others do: functions then bend wildly. Where a label is merely wrong, noise does not help.
        """
        if self.folds is not None:
            return choice
        noisier = choice
        for _ in range(MAX_NOISE_STEPS):
            if noisier.surprise <= MAX_SURPRISE:
                break
            noise_std = NOISE_STEP * noisier.learnt.noise_std
            noisier = replace(noisier, learnt=replace(noisier.learnt, noise_std=noise_std))
            noisier = self.scored(noisier)
        is_better = noisier.squared_errors[1] * MAX_ERROR_RATIO < choice.squared_errors[1]
        return noisier if is_better else choice

    def _judged(self, choice: Choice, unseen: UnseenLabels) -> Choice:
        """By predictions of some labels; kept where they are those of folds."""
        weights = np.ones((len(unseen.rows), 1))
        if self.weights is not None:
            weights = self.weights[unseen.rows, None].double().cpu().numpy()
        residuals = (self.y[unseen.rows].double() - unseen.mean).cpu().numpy()
        total = unseen.variance.cpu().numpy() + choice.learnt.noise_std**2 / weights
        losses = [
            student_loss(residual / np.sqrt(spread)) + np.log(spread).mean() / 2
            for residual, spread in zip(residuals.T, total.T, strict=True)
        ]
        errors = _squared_errors((residuals**2 * weights).mean(1) / float(np.mean(weights)))
        surprise = float((residuals**2).sum() / total.sum())
        kept = None if self.folds is None else unseen
        score = float(np.mean(losses))
        return replace(choice, score=score, squared_errors=errors, surprise=surprise, unseen=kept)

    def _left_out(self, choice: Choice) -> UnseenLabels:
        """(Some) labels given the others."""
        order = torch.randperm(len(self.y), generator=as_generator(1))[:MAX_SCORED_LABELS]
        x, y = choice.x[order].double(), self.y[order].double()
        weights = None if self.weights is None else self.weights[order].to(x)
        generator = _conditioned(choice.learnt, x, y, weights)
        return UnseenLabels(order, *leave_one_out(generator, y, choice.learnt.noise_std, weights))

    def _cross_validated(
        self, choice: Choice, folds: list[tuple[Index, Index]], nested: Rows | None
    ) -> Iterator[tuple[Moments, ...]]:
        """Rows of each fold, mean and variance: by a prior learnt without it, and by the choice's.

        The mean model has not seen the fold either.
        """
        y = self.y.double()
        for number, (rest, fold) in enumerate(folds):
            x = choice.x.double()
            if nested is not None:
                column = torch.from_numpy(nested[number]).to(x)
                x = torch.cat([x[:, : -column.shape[1]], column], dim=1)
            labels = x[rest], y[rest], None if self.weights is None else self.weights[rest]
            anew, left_out = _learnt_anew(choice, *labels), torch.from_numpy(fold)
            yield tuple(
                (left_out, *_conditioned(learnt, *labels).moments(x[fold]))
                for learnt in (anew, choice.learnt)
            )


def _conditioned(
    learnt: LearntPrior, x: Tensor, y: Tensor, weights: Tensor | None
) -> KernelGenerator:
    return condition_exactly(learnt.prior, x, y, learnt.noise_std, weights)


def choose(
    X: Rows, x: Tensor, y: Tensor, mean: Any, on_step: OnStep, weights: Tensor | None = None
) -> Choice:
    """The best of: no mean model, one as a column of the kernel, one as the prior's mean.

    Without one, functions may also be linear, share one scale for all columns, or have the RBF or
    the Matérn kernel.

    `X` are the rows in the units of the data, which the mean model sees; `x` the scaled ones.
    """
    if len(y) < 2 or not bool((y != y[0]).any()):
        return Choice(x, usual_prior(x.shape[1]))
    labels = _Labels(y, weights, _some_folds(X))
    groups = category_groups(X)
    search = partial(_nonlinear, x, labels)
    searches = [partial(search, groups, start="erf")]
    if len(y) >= MIN_STATIONARY_LABELS:
        searches += [partial(search, groups, start=activation) for activation in STATIONARY]
    elif max(groups) > 0:
        searches.append(partial(search, one_group(groups), start="erf"))
    searches.append(partial(_linear, x, labels))
    model = None if isinstance(mean, str) else mean
    too_little = len(y) < MIN_LABELS or y.shape[1] > MAX_TARGETS
    if mean is None or (model is None and too_little):
        choices = side_by_side(*searches)
        on_step()
        return _best(choices)
    each = None if weights is None else weights.numpy()

    def fit_mean() -> tuple[Rows, MeanModel]:
        unseen = unseen_rows(len(y)).numpy()
        return cross_fit(
            X, x.numpy(), y.numpy(), model, unseen=unseen, on_step=on_step, weights=each
        )

    def nest() -> Rows | None:
        if labels.folds is None:
            return None
        return nested_predictions(X, y.numpy(), model, len(labels.folds), each)

    if model is None:  # trees, which any thread may fit
        (predicted, fitted), nested, *choices = side_by_side(fit_mean, nest, *searches)
    else:
        both = side_by_side(lambda: (fit_mean(), nest()), *searches)
        ((predicted, fitted), nested), *choices = both
    on_step()
    alone, column = _best(choices), torch.from_numpy(predicted).to(x)
    errors = _squared_errors((column - y).square().mean(1).numpy())
    if model is None and not _comparable(errors, alone.squared_errors, HOPELESS):
        return alone
    beside, nonlinear = torch.cat([x, column], dim=1), _best(choices[:-1])
    groups = with_own(nonlinear.groups or groups, column.shape[1])
    search = partial(_nonlinear, beside, labels, groups, start=nonlinear.learnt, nested=nested)
    uses = [replace(fitted, as_mean=as_mean) for as_mean in (False, True)]
    choices += side_by_side(*(partial(search, mean=use) for use in uses))
    on_step()
    return _best(choices, advantage=ADVANTAGE if model is None else 0.0)


def _some_folds(X: Rows) -> list[tuple[Index, Index]] | None:
    """Folds to leave out; None where labels are many."""
    if len(X) > MAX_CROSS_VALIDATED:
        return None
    return folds_of(X) if len(X) <= MAX_ALL_FOLDS else folds_of(X)[:SOME_FOLDS]


def _squared_errors(squares: Rows) -> tuple[float, float]:
    """The mean without the few worst, which may be labels typed wrong, and that of all."""
    usual = np.sort(squares)[: len(squares) - len(squares) // LABELS_PER_EXTREME]
    return float(usual.mean()), float(squares.mean())


def _comparable(errors: tuple[float, float], best: tuple[float, float], max_ratio: float) -> bool:
    """Whether one of the two errors is at most so many times the best.

    One label that is typed wrong decides the mean of all; where functions are nearly exact, the few
    worst labels are the whole difference.
    """
    return any(error <= max_ratio * least for error, least in zip(errors, best, strict=True))


def _best(choices: list[Choice], advantage: float = ADVANTAGE) -> Choice:
    """The best likelihood among those whose squared error is about the smallest.

    A prior that is right at most labels and far off at some may have the better likelihood, by a
    long tail. Simpler candidates have an advantage, as scores are certain up to about 1/√n; not
    against a user's own model. Where likelihoods are about equal, errors decide.
    """
    usual, of_all = zip(*(choice.squared_errors for choice in choices), strict=True)
    least = min(usual), min(of_all)
    fair = [c for c in choices if _comparable(c.squared_errors, least, MAX_ERROR_RATIO)]
    step = advantage / math.sqrt(len(choices[0].x))

    def loss(choice: Choice) -> float:
        errors = np.log(np.maximum(choice.squared_errors, MIN_ERROR)).mean()
        return float(choice.score + step * choice.complexity + NATS_PER_ERROR * errors)

    return min(fair, key=loss)


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


def _learnt_anew(choice: Choice, x: Tensor, y: Tensor, weights: Tensor | None) -> LearntPrior:
    """The prior of fewer labels; the search begins at the answer for all of them."""
    if choice.linear_only:
        return learn_linear_prior(x, y, weights)
    prior = choice.learnt.prior
    return learn_ard_prior(
        x,
        y,
        groups=choice.groups,
        start=choice.learnt,
        mean_columns=prior.mean_columns,
        activation=prior.activation,
        weights=weights,
        steps=FOLD_STEPS,
    )


def _nonlinear(
    x: Tensor,
    labels: _Labels,
    groups: Groups,
    *,
    start: LearntPrior | str,
    mean: MeanModel | None = None,
    nested: Rows | None = None,
) -> Choice:
    """A prior by evidence; its search starts from an earlier answer, or with an activation.

    nested: the mean model's column without the labels of each fold.
    """
    learnt = learn_ard_prior(
        x,
        labels.y,
        groups=groups,
        start=None if isinstance(start, str) else start,
        mean_columns=labels.y.shape[1] if mean is not None and mean.as_mean else 0,
        activation=start if isinstance(start, str) else start.prior.activation,
        weights=labels.weights,
    )
    return labels.steadied(labels.scored(Choice(x, learnt, mean, groups), nested))


def _linear(x: Tensor, labels: _Labels) -> Choice:
    learnt = learn_linear_prior(x, labels.y, labels.weights)
    return labels.scored(Choice(x, learnt, linear_only=True))
