"""A fit in closed form whose labels are too many for one machine: they enter through sums.

A uniform sample of the rows decides what no sum can: scales, prior, landmarks, detector and noise.
All labels then condition the prior at the landmarks by  Σ φφᵀ  and  Σ φ(y − m),  which may be added
up anywhere, in any order. Some rows of the sample are predicted before they join the sums: from
these the scatter of new labels is learnt.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor

from gpn.core.priors.ard_evidence import LearntPrior
from gpn.core.task import Task
from gpn.estimators.base import as_seed
from gpn.estimators.closed_form.choice import choose, warn_of_edge
from gpn.estimators.regressor import NUMERIC, GPNRegressor
from gpn.estimators.scaling import Scale
from gpn.estimators.thresholds import Fit, unseen_labels
from gpn.methods.gpn import GPN, GPNConfig
from gpn.methods.gpn.fit_report import FitReport, UnseenLabels
from gpn.methods.gpn.fitting.closed_form import CHUNK_ROWS, MAX_LEFT_OUT
from gpn.methods.gpn.model.kernel_generator import FeatureSums
from gpn.methods.gpn.posterior import ClosedFormPosterior
from gpn.training.torch_state import in_threads

Array = NDArray[Any]


@dataclass(frozen=True)
class LabelSums:
    """What a worker needs to add up its labels: scales, and sums that are still empty."""

    x_scale: Scale
    y_scale: Scale
    empty: FeatureSums

    def __call__(self, X: Array, y: Array) -> FeatureSums:
        """The sums over these rows, in the units of the data."""
        x = torch.from_numpy(self.x_scale.apply(np.asarray(X, np.float64)))
        targets = torch.from_numpy(self.y_scale.apply(np.asarray(y, np.float64)[:, None]))
        chunks = list(zip(x.split(CHUNK_ROWS), targets.split(CHUNK_ROWS), strict=True))
        threads = min(torch.get_num_threads(), max(1, len(chunks)))
        shares = [chunks[number::threads] for number in range(threads)]
        parts = in_threads(lambda share: self.empty.emptied().add(share), shares)
        return reduce(FeatureSums.plus, parts)


@dataclass(frozen=True)
class PartitionedFit:
    """A regressor that knows all but the sums of its labels.

    task: the sample, scaled. unseen: its rows that are in no sum yet.
    """

    estimator: GPNRegressor
    task: Task
    learnt: LearntPrior
    unseen: Tensor
    sums: LabelSums
    seed: int

    @classmethod
    def begin(
        cls, estimator: GPNRegressor, X: Array, y: Array, order: Array, unseen: int, landmarks: int
    ) -> "PartitionedFit":
        """From a sample, in whose random `order` unseen rows come first, then landmarks."""
        X, y = estimator._validated(X, y, reset=True, **NUMERIC)
        targets = np.asarray(y, np.float64)[:, None]
        seed = as_seed(check_random_state(estimator.random_state))
        estimator.mean_, estimator._weights = None, None
        estimator.n_targets_, estimator._flat = 1, True
        estimator.y_scale_ = Scale.of(targets)
        scaled = estimator.y_scale_.apply(targets)
        pool = estimator._scaled_pool(X, None, scaled)
        estimator._fit_detector(X, pool, seed)
        task = Task(estimator._scaled(X), torch.from_numpy(scaled))
        learnt = choose(X, task.x_obs, task.y_obs, None, lambda: None).learnt
        rows = torch.from_numpy(order[unseen : unseen + landmarks])
        empty = FeatureSums(learnt.prior, task.x_obs[rows], 1, learnt.noise_std)
        sums = LabelSums(estimator.x_scale_, estimator.y_scale_, empty)
        return cls(estimator, task, learnt, torch.from_numpy(order[:unseen]), sums, seed)

    def finish(self, total: FeatureSums) -> GPNRegressor:
        """The fitted regressor, given the sums over all labels but the unseen ones."""
        x, y = self.task.x_obs, self.task.y_obs
        found = UnseenLabels(self.unseen, *total.moments(x[self.unseen]))
        total.add([(x[self.unseen], y[self.unseen])])
        is_unseen = torch.zeros(len(x), dtype=torch.bool)
        is_unseen[self.unseen] = True
        others = torch.arange(len(x))[~is_unseen][:MAX_LEFT_OUT]
        left_out = [total.leave_one_out(x[rows], y[rows]) for rows in others.split(CHUNK_ROWS)]
        report = FitReport(
            unseen=found,
            left_out=UnseenLabels(others, *map(torch.cat, zip(*left_out, strict=True))),
            explained_variance=total.explained_variance(x[self.unseen]),
            at_edge=self.learnt.at_edge,
        )
        warn_of_edge(self.learnt)
        prior, noise_std = self.learnt.prior, self.learnt.noise_std
        config = GPNConfig(generator="closed-form", prior=prior, noise_std=noise_std)
        generator = total.generator()
        self.estimator.posterior_ = ClosedFormPosterior(
            generator, self.task.signature, config, noise_std, report
        )
        score = self.estimator._ood_scores
        fit = Fit(GPN(config), self.estimator.posterior_, self.task, self.seed, score)
        self.estimator._finish(fit, unseen_labels, np.arange(0))
        return self.estimator
