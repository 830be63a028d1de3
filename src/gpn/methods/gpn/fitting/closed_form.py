"""The fit in closed form: labels condition the prior, nothing is trained."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gpn.core.priors.ard import ARDPrior
from gpn.core.priors.ard_evidence import learn_ard_prior
from gpn.core.priors.class_evidence import learn_class_prior
from gpn.core.task import Task
from gpn.core.types import as_generator
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.fit_report import FitReport, UnseenLabels
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.model.class_generator import (
    condition_on_classes,
    condition_on_classes_by_landmarks,
    tempered,
)
from gpn.methods.gpn.model.kernel_generator import (
    FeatureSums,
    KernelGenerator,
    LabelWeights,
    condition_exactly,
    leave_one_out,
)
from gpn.methods.gpn.posterior import ClosedFormPosterior

MAX_EXACT_LABELS = 5000
LANDMARKS = 3000
MAX_UNSEEN = 2000  # of many labels, so many are predicted before they are learnt
MAX_LEFT_OUT = 8000  # and so many are left out one by one afterwards
CHUNK_ROWS = 4096
MAX_EXACT_CLASS_LABELS = 2000
CLASS_LANDMARKS = 1000
COLD = 0.1  # where the prior is by evidence: Laplace's Gaussian is too wide for logits


def fit_closed_form(
    context: FitContext, weights: LabelWeights | None = None
) -> ClosedFormPosterior:
    """The posterior given all labels, and how it predicts labels that it has not seen."""
    if context.task.is_classification:
        if weights is not None:
            raise ValueError("weights must be None for classes, got some; repeat rows instead.")
        return _fit_classes(context)
    if weights is not None:
        weights = weights.to(context.device, torch.float64)
    config, task = context.config, context.task.to(context.device, torch.float64)
    prior, noise_std = config.prior, config.noise_std
    at_edge: tuple[str, ...] = ()
    if not isinstance(prior, ARDPrior):
        learnt = learn_ard_prior(task.x_obs, task.y_obs, weights=weights)
        prior, noise_std, at_edge = learnt.prior, noise_std or learnt.noise_std, learnt.at_edge
    elif not noise_std:
        raise ValueError("a given ARDPrior needs noise_std=..., got None; leave both to the fit.")
    few = len(task.x_obs) <= MAX_EXACT_LABELS
    fit = _exact if few else _with_landmarks
    generator, report = fit(prior, task, noise_std, weights)
    report = replace(report, at_edge=at_edge)
    found = GPNConfig(generator="closed-form", prior=prior, noise_std=noise_std)
    return ClosedFormPosterior(generator, task.signature, found, noise_std, report)


Fitted = tuple[KernelGenerator, FitReport]


def unseen_rows(n_labels: int) -> Tensor:
    """Of many labels, those that are predicted before they are learnt; of few, none."""
    if n_labels <= MAX_EXACT_LABELS:
        return torch.arange(0)
    return _order(n_labels)[: min(MAX_UNSEEN, n_labels // 10)]


def _order(n_labels: int) -> Tensor:
    """Unseen labels first, landmarks last: the same at every call."""
    return torch.randperm(n_labels, generator=as_generator(0))


def _exact(prior: ARDPrior, task: Task, noise_std: float, weights: LabelWeights | None) -> Fitted:
    """Labels are the landmarks; each is predicted by all others."""
    generator = condition_exactly(prior, task.x_obs, task.y_obs, noise_std, weights)
    rows = torch.arange(len(task.x_obs), device=task.x_obs.device)
    unseen = UnseenLabels(rows, *leave_one_out(generator, task.y_obs, noise_std, weights))
    return generator, FitReport(unseen=unseen)


def _with_landmarks(
    prior: ARDPrior, task: Task, noise_std: float, weights: LabelWeights | None
) -> Fitted:
    """Some labels are landmarks; some others are predicted before they join the sums."""
    order = _order(len(task.x_obs)).to(task.x_obs.device)
    unseen = unseen_rows(len(order)).to(order.device)
    landmarks = task.x_obs[order[-LANDMARKS:]]
    sums = FeatureSums(prior, landmarks, task.n_outputs, noise_std)
    known = (task.x_obs, task.y_obs) if weights is None else (task.x_obs, task.y_obs, weights)

    def labels(rows: Tensor) -> Any:
        return tuple(each[rows] for each in known)

    sums.add(map(labels, order[len(unseen) :].split(CHUNK_ROWS)))
    found = UnseenLabels(unseen, *sums.moments(task.x_obs[unseen]))
    sums.add([labels(unseen)])
    others = order[len(unseen) : len(unseen) + MAX_LEFT_OUT]
    left_out = [sums.leave_one_out(*labels(rows)) for rows in others.split(CHUNK_ROWS)]
    report = FitReport(
        unseen=found,
        left_out=UnseenLabels(others, *map(torch.cat, zip(*left_out, strict=True))),
        explained_variance=sums.explained_variance(task.x_obs[unseen]),
    )
    return sums.generator(), report


def _fit_classes(context: FitContext) -> ClosedFormPosterior:
    """Logits given all labels, and those of each label given the others."""
    config, task = context.config, context.task.to(context.device, torch.float64)
    x, y, n_classes = task.x_obs, task.y_obs, task.n_outputs
    prior, temperature = config.prior, config.temperature
    if not isinstance(prior, ARDPrior):
        mean = x.new_zeros(len(x), n_classes)
        shared = learn_class_prior(x, y, mean, kind="shared")
        temperature = temperature or COLD
        prior = tempered(learn_class_prior(x, y, mean, start=shared), temperature)
    temperature = temperature or 1.0
    if len(x) <= MAX_EXACT_CLASS_LABELS:
        found = condition_on_classes(prior, x, y, n_classes, temperature)
    else:
        order = torch.randperm(len(x), generator=as_generator(context.seeds)).to(x.device)
        landmarks = x[order[:CLASS_LANDMARKS]]
        found = condition_on_classes_by_landmarks(prior, x, y, n_classes, temperature, landmarks)
    mean, variance = found.left_out_mean, found.left_out_variance[:, None]
    rows = torch.arange(len(x), device=x.device)
    report = FitReport(unseen=UnseenLabels(rows, mean, variance.expand_as(mean)))
    settled = GPNConfig(generator="closed-form", prior=prior, temperature=temperature)
    return ClosedFormPosterior(found.generator, task.signature, settled, None, report)
