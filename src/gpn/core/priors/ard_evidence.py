"""A scale for each column, height, bias, linear part and noise, by marginal likelihood.

    θ* = argmax  log N(y; 0, K_θ + σ² I) + log p(θ)

over at most a thousand labels, by L-BFGS; p(θ) is wide, and decides what the labels leave open.
Its gradient in K,  (ααᵀ − K⁻¹)/2  with  α = K⁻¹y,  is passed back through the kernel.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from gpn.core.priors.ard import ARDPrior, ard_kernel
from gpn.core.priors.evidence import LOG_NOISE_MEAN
from gpn.core.types import Inputs, Outputs, as_generator

Parameters = NDArray[np.float64]

MAX_LABELS = 1000
LABELS_PER_SCALE, MAX_WIDE_LABELS = 12, 1500  # of wide tables, whose scales need more labels
MAX_FIRST_LABELS = 300  # the search begins on these, where a step costs a thirtieth
FIRST_STEPS, STEPS = 20, 12
SCALES_PER_STEP = 6  # and more steps
MAX_NARROW = 40  # columns
MAX_SCALES = 200  # wider rows, such as embeddings and pixels, have one scale
JITTER = 1e-6
MIN_NOISE_SHARE = 0.1
# mean and standard deviation of p(θ) for logarithms; a scale's mean grows with √d (Hvarfner 2024)
# p(θ) of scales is narrow for up to MAX_LABELS labels: a wide one follows the noise of some hundred
LOG_SCALE_STD, WIDE_LOG_SCALE_STD = 1.0, 3**0.5
LOG_HEIGHT, LOG_BIAS, LOG_LINEAR = (0.0, 3.0), (0.0, 1.5), (-1.0, 3.0)
LOG_NOISE = (LOG_NOISE_MEAN, 3.0)
# with scales only: the modes of BoTorch's priors, for inputs of unit variance
LONGER, LOG_SMALL_NOISE = 0.46, (-5.0, 1.0)
NAMES = ("height", "bias", "linear", "noise")
LOG_SCALE_RANGE = 9.0  # on both sides of the usual scale
LOG_RANGES = [(-10.0, 8.0), (-8.0, 6.0), (-12.0, 8.0), (-14.0, 1.5)]  # in the order of NAMES


@dataclass(frozen=True)
class LearntPrior:
    """A prior and a noise that explain the labels; `at_edge` names what the search's range cut."""

    prior: ARDPrior
    noise_std: float
    log_evidence: float  # per label, without p(θ)
    at_edge: tuple[str, ...] = ()


def learn_ard_prior(
    x: Inputs,
    y: Outputs,
    *,
    groups: Sequence[int] | None = None,
    start: LearntPrior | None = None,
    mean_columns: int = 0,
    scales_only: bool = False,
    activation: str = "erf",
    weights: Float[Tensor, "n"] | None = None,
    steps: int = STEPS,
) -> LearntPrior:
    """The prior of the largest evidence for labels of about unit variance.

    Columns of one group share a scale (`groups` has a number per column): those of one category.
    A search may `start` from an earlier answer, also one for fewer columns, and then takes `steps`.
    With `scales_only`
    only scales and noise are free, as in BoTorch's `SingleTaskGP`: for very few labels. A label of
    weight c has the noise σ²/c.
    """
    x, y = x.flatten(1).double(), y.double()
    each = x.new_ones(len(x)) if weights is None else weights.to(x)
    if mean_columns:
        y = y - x[:, -mean_columns:]
    if not bool((y != y[0]).any()):
        return usual_prior(x.shape[1], mean_columns)
    order = torch.randperm(len(x), generator=as_generator(0)).to(x.device)
    is_wide = scales_only or len(x) > MAX_LABELS
    scale_std = WIDE_LOG_SCALE_STD if is_wide else LOG_SCALE_STD
    options = _Options(
        _groups(groups, x.shape[1]), mean_columns, scales_only, activation, scale_std
    )
    n_scales = int(options.groups.max()) + 1
    has_many_columns = n_scales > MAX_NARROW and start is None
    wide_labels = min(max(LABELS_PER_SCALE * n_scales, MAX_LABELS), MAX_WIDE_LABELS)
    order = order[: wide_labels if has_many_columns else MAX_LABELS]
    search = _Search(x[order], y[order], options, each[order])
    point = search.start(start)
    if scales_only:
        return search.answer(search.best_of(point, FIRST_STEPS + 2 * STEPS))
    if start is not None:
        return search.answer(search.run(point, steps))
    last_steps = STEPS + (n_scales // SCALES_PER_STEP if has_many_columns else 0)
    if len(x) > 1.5 * MAX_FIRST_LABELS:
        few = order[:MAX_FIRST_LABELS]
        point = _Search(x[few], y[few], options, each[few]).run(point, FIRST_STEPS)
        return search.answer(search.run(point, last_steps))
    return search.answer(search.run(point, FIRST_STEPS + last_steps))


def usual_prior(n_columns: int, mean_columns: int = 0) -> LearntPrior:
    """What p(θ) expects, for labels that say nothing: one of them, or all of one value."""
    scales = (math.exp(usual_log_scale(n_columns)),) * n_columns
    height, bias, linear = (math.exp(mean) for mean, _ in (LOG_HEIGHT, LOG_BIAS, LOG_LINEAR))
    prior = ARDPrior(
        column_scales=scales, height=height, bias=bias, linear=linear, mean_columns=mean_columns
    )
    return LearntPrior(prior, math.exp(LOG_NOISE_MEAN / 2), math.nan)


def usual_log_scale(n_columns: int) -> float:
    return 0.5 * math.log(n_columns / 5)


def _groups(groups: Sequence[int] | None, n_columns: int) -> Tensor:
    """The number of each column's scale."""
    if n_columns > MAX_SCALES:
        return torch.zeros(n_columns, dtype=torch.long)
    if groups is None:
        return torch.arange(n_columns)
    return torch.tensor(groups).unique(return_inverse=True)[1]


@dataclass(frozen=True)
class _Options:
    """What a search may change: a scale for each group of columns, and more unless scales only."""

    groups: Tensor
    mean_columns: int
    scales_only: bool
    activation: str
    scale_std: float  # of p(θ) for logarithms of scales


class _Search:
    """−log p(y, θ) / n, and its gradient, on some labels."""

    def __init__(
        self, x: Inputs, y: Outputs, options: "_Options", weights: Float[Tensor, "n"]
    ) -> None:
        self.x, self.y, self.options, self.groups = x, y, options, options.groups
        self.n_scales = int(self.groups.max()) + 1
        self.noise = torch.diag(1 / weights)
        longer, noise = (LONGER, LOG_SMALL_NOISE) if options.scales_only else (0.0, LOG_NOISE)
        self.usual_scale = usual_log_scale(x.shape[1]) + longer
        means = [self.usual_scale] * self.n_scales
        means += [mean for mean, _ in (LOG_HEIGHT, LOG_BIAS, LOG_LINEAR, noise)]
        stds = [options.scale_std] * self.n_scales
        stds += [std for _, std in (LOG_HEIGHT, LOG_BIAS, LOG_LINEAR, noise)]
        self.means = torch.tensor(means, dtype=torch.float64, device=x.device)
        self.stds = torch.tensor(stds, dtype=torch.float64, device=x.device)

    def start(self, earlier: LearntPrior | None) -> Parameters:
        """A usual prior with little noise, or an earlier answer."""
        point = self.means.clone()
        point[-1] = math.log(0.1)
        if earlier is not None:
            prior = earlier.prior
            known = torch.tensor(prior.column_scales, dtype=torch.float64).log()
            for column, scale in enumerate(known[: len(self.groups)]):
                point[self.groups[column]] = scale
            others = prior.height, prior.bias, max(prior.linear, 1e-5), earlier.noise_std**2
            point[self.n_scales :] = torch.tensor(others, dtype=torch.float64).log()
        return np.clip(point.cpu().numpy(), *np.array(self.bounds()).T)

    def bounds(self) -> list[tuple[float, float]]:
        scale = self.usual_scale - LOG_SCALE_RANGE, self.usual_scale + LOG_SCALE_RANGE
        height, bias, linear, noise = LOG_RANGES
        if self.options.scales_only:
            height, linear = (0.0, 0.0), (linear[0], linear[0])
        if self.options.mean_columns:  # errors of another model are no smooth function of the rows
            least = math.log(MIN_NOISE_SHARE * float(self.y.square().mean()) + 1e-12)
            noise = min(max(noise[0], least), noise[1]), noise[1]
        return [scale] * self.n_scales + [height, bias, linear, noise]

    def run(self, point: Parameters, steps: int) -> Parameters:
        options = {"maxiter": steps, "maxfun": steps + steps // 2}
        found = minimize(
            self._loss, point, jac=True, method="L-BFGS-B", bounds=self.bounds(), options=options
        )
        return found.x

    def best_of(self, point: Parameters, steps: int) -> Parameters:
        """The better answer of two searches: few labels leave room for short and long scales."""
        longer = point.copy()
        longer[: self.n_scales] += 1.0
        found = [self.run(start, steps) for start in (point, longer)]
        return min(found, key=lambda each: self._loss(each)[0])

    def _loss(self, point: Parameters) -> tuple[float, Parameters]:
        theta = torch.tensor(point, device=self.x.device, requires_grad=True)
        gram = self._gram(theta)
        evidence, gradient = log_evidence_and_gradient(gram.detach(), self.y)
        if not math.isfinite(evidence):
            return 1e10, np.zeros_like(point)
        gram.backward(-gradient / len(self.y))
        from_prior = (theta.detach() - self.means) / self.stds
        loss = (0.5 * float(from_prior.square().sum()) - evidence) / len(self.y)
        assert theta.grad is not None
        slope = theta.grad + from_prior / self.stds / len(self.y)
        return loss, slope.cpu().numpy()

    def _gram(self, theta: Tensor) -> Float[Tensor, "n n"]:
        scales = theta[: self.n_scales].exp()[self.groups]
        height, bias, linear, noise = theta[self.n_scales :].exp()
        a = self.x / scales
        gram = ard_kernel(a, a, height, bias, linear, self.options.activation)
        return gram + (noise + JITTER) * self.noise

    def answer(self, point: Parameters) -> LearntPrior:
        theta = torch.tensor(point, device=self.x.device)
        scales = theta[: self.n_scales].exp()[self.groups].tolist()
        height, bias, linear, noise = theta[self.n_scales :].exp().tolist()
        prior = ARDPrior(
            column_scales=tuple(scales),
            height=height,
            bias=bias,
            linear=linear,
            mean_columns=self.options.mean_columns,
            activation=self.options.activation,
        )
        evidence, _ = log_evidence_and_gradient(self._gram(theta), self.y)
        bounds = np.array(self.bounds()[self.n_scales :])
        is_free = bounds[:, 0] < bounds[:, 1]
        upper = is_free & np.isclose(point[self.n_scales :], bounds[:, 1])
        edge = tuple(name for name, cut in zip(NAMES, upper, strict=True) if cut)
        return LearntPrior(prior, noise**0.5, evidence / len(self.y), edge)


def log_evidence_and_gradient(
    gram: Float[Tensor, "n n"], y: Float[Tensor, "n o"]
) -> tuple[float, Float[Tensor, "n n"]]:
    """Σ_o log N(y_o; 0, K) and its gradient in K, (Σ_o α_o α_oᵀ − o K⁻¹) / 2; −∞ where K is not
    positive definite."""
    factor, info = torch.linalg.cholesky_ex(gram)
    if bool(info):
        return -math.inf, gram
    inverse = torch.cholesky_inverse(factor)
    alpha = inverse @ y
    volume = 2 * factor.diagonal().log().sum() + len(y) * math.log(2 * math.pi)
    evidence = -0.5 * float((y * alpha).sum() + y.shape[1] * volume)
    return evidence, 0.5 * (alpha @ alpha.T - y.shape[1] * inverse)
