"""A prior for classes of tables: scales, height, bias and linear part by Laplace's evidence.

    θ* = argmax  log p(y | K_θ) + log p(θ)

over at most 300 labels, by L-BFGS. Three kinds of prior: a scale that all columns share; a scale
for each column, near the shared one unless the labels say otherwise; and linear functions with an
intercept, which is Bayesian logistic regression.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from gpn.core.priors.ard import ARDPrior, ard_kernel
from gpn.core.priors.ard_evidence import MAX_SCALES
from gpn.core.priors.cholesky import NotPositiveDefinite
from gpn.core.priors.laplace import log_evidence_and_gradient
from gpn.core.types import Inputs, Labels, Outputs, as_generator

Parameters = NDArray[np.float64]

MAX_LABELS = 300
STEPS = 15
KINDS = ("shared", "columns", "linear")
# mean and standard deviation of p(θ) for logarithms, and the ranges of the search
LOG_SCALE_STD, LOG_COLUMN_STD = 3**0.5, 1.0
LOG_HEIGHT, LOG_BIAS, LOG_LINEAR = (2.0, 3.0), (0.0, 1.5), (1.0, 3.0)
LOG_SCALE_RANGE = 9.0
LOG_RANGES = [(-10.0, 12.0), (-8.0, 6.0), (-12.0, 12.0)]
LOG_INTERCEPT_RANGE = (-5.0, 8.0)
FLAT = 7.0  # a scale e⁷ times the usual one leaves a constant of the network


def learn_class_prior(
    x: Inputs,
    y: Labels,
    mean: Outputs,
    *,
    kind: str = "columns",
    start: ARDPrior | None = None,
    mean_columns: int = 0,
    steps: int = STEPS,
) -> ARDPrior:
    """The prior of the largest evidence; `mean` ``(n, o)`` are the prior's means of the logits.

    A "columns" prior must `start` from a shared one, whose scale its own stay near; the others may
    start from an earlier answer of their kind.
    """
    order = torch.randperm(len(x), generator=as_generator(0))[:MAX_LABELS].to(x.device)
    search = _Search(x[order].double(), y[order], mean[order].double(), kind, start)
    return replace(search.run(steps), mean_columns=mean_columns)


def usual_class_prior(n_columns: int, mean_columns: int = 0) -> ARDPrior:
    """What p(θ) expects, for labels that say nothing."""
    height, bias, linear = (math.exp(mean) for mean, _ in (LOG_HEIGHT, LOG_BIAS, LOG_LINEAR))
    scales = (math.exp(_usual_log_scale(n_columns)),) * n_columns
    return ARDPrior(
        column_scales=scales, height=height, bias=bias, linear=linear, mean_columns=mean_columns
    )


def _usual_log_scale(n_columns: int) -> float:
    return 0.5 * math.log(n_columns / 5)


class _Search:
    """−log p(y, θ) / n and its gradient; θ are logarithms of scales, height, bias and linear."""

    def __init__(
        self, x: Inputs, y: Labels, mean: Outputs, kind: str, start: ARDPrior | None
    ) -> None:
        self.x, self.y, self.mean, self.kind = x, y, mean, kind
        self.weights: Outputs | None = None  # of the last mode, where the next search begins
        n_columns = x.shape[1]
        own = kind == "columns" and n_columns <= MAX_SCALES
        self.groups = torch.arange(n_columns) if own else torch.zeros(n_columns, dtype=torch.long)
        usual = _usual_log_scale(n_columns)
        centre, spread, linear = usual, LOG_SCALE_STD, LOG_LINEAR[0]
        if kind == "linear":
            centre, linear = usual + FLAT, LOG_LINEAR[0] + 2 * (usual + FLAT)
        elif kind == "columns" and start is not None:
            centre, spread = _log_mean(start), LOG_COLUMN_STD
        n_scales = int(self.groups.max()) + 1
        means = [centre] * n_scales + [LOG_HEIGHT[0], LOG_BIAS[0], linear]
        stds = [spread] * n_scales + [LOG_HEIGHT[1], LOG_BIAS[1], LOG_LINEAR[1]]
        self.n_scales, self.usual, self.centre = n_scales, usual, centre
        self.means = torch.tensor(means, dtype=torch.float64)
        self.stds = torch.tensor(stds, dtype=torch.float64)
        self.first = self._point(start)

    def bounds(self) -> list[tuple[float, float]]:
        if self.kind == "linear":
            linear = float(self.means[-1])
            reach = linear + LOG_RANGES[2][0], linear + LOG_RANGES[2][1]
            return [(self.centre, self.centre), LOG_INTERCEPT_RANGE, (0.0, 0.0), reach]
        scale = self.usual - LOG_SCALE_RANGE, self.usual + LOG_SCALE_RANGE
        return [scale] * self.n_scales + LOG_RANGES

    def run(self, steps: int) -> ARDPrior:
        options: dict[str, Any] = {"maxiter": steps, "maxfun": steps + steps // 2}
        found = minimize(
            self._loss,
            self.first,
            jac=True,
            method="L-BFGS-B",
            bounds=self.bounds(),
            options=options,
        )
        return self._prior(torch.tensor(found.x))

    def _point(self, start: ARDPrior | None) -> Parameters:
        """θ of an earlier prior, or the mean of p(θ)."""
        point = self.means.clone()
        if start is not None:
            scales = torch.tensor(start.column_scales, dtype=torch.float64).log()
            for column, scale in enumerate(scales[: len(self.groups)]):
                point[self.groups[column]] = scale
            others = start.height, start.bias, max(start.linear, 1e-8)
            point[self.n_scales :] = torch.tensor(others, dtype=torch.float64).log()
        return np.clip(point.numpy(), *np.array(self.bounds()).T)

    def _loss(self, point: Parameters) -> tuple[float, Parameters]:
        theta = torch.tensor(point, requires_grad=True)
        gram = self._gram(theta)
        try:
            evidence, gradient, self.weights = log_evidence_and_gradient(
                gram.detach(), self.y, self.mean, self.weights
            )
        except NotPositiveDefinite:
            return 1e10, np.zeros_like(point)
        gram.backward(-gradient / len(self.y))
        from_prior = (theta.detach() - self.means) / self.stds
        loss = (0.5 * float(from_prior.square().sum()) - evidence) / len(self.y)
        assert theta.grad is not None
        return loss, (theta.grad + from_prior / self.stds / len(self.y)).numpy()

    def _gram(self, theta: Tensor) -> Tensor:
        inner = theta.to(self.x.device)
        height, bias, linear = inner[self.n_scales :].exp()
        a = self.x / inner[: self.n_scales].exp()[self.groups.to(self.x.device)]
        return ard_kernel(a, a, height, bias, linear, "erf")

    def _prior(self, theta: Tensor) -> ARDPrior:
        height, bias, linear = theta[self.n_scales :].exp().tolist()
        scales = theta[: self.n_scales].exp()[self.groups].tolist()
        return ARDPrior(column_scales=tuple(scales), height=height, bias=bias, linear=linear)


def _log_mean(prior: ARDPrior) -> float:
    """The mean logarithm of the scales."""
    return float(np.log(prior.column_scales).mean())
