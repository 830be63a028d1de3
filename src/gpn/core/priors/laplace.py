"""Classes under a prior with a kernel: the Gaussian about the most probable logits (Laplace).

Each of o classes has a function with mean m and covariance K, and P(class) is their softmax. With
Y the labels as rows of 0 and 1, the mode of the posterior and the precision of the labels are

    F = M + K A,   A = Y − P,   P = softmax(F);      W_i = diag(p_i) − p_i p_iᵀ

The Gaussian's covariance has one precision per row, which all classes share: the mean of the o − 1
eigenvalues of W_i that are not zero, exact for two classes.

    w_i = Σ_c p_ic (1 − p_ic) / (o − 1),      Cov = K − K (K + diag(1/w))⁻¹ K
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.priors.cholesky import cholesky
from gpn.core.types import Labels, Outputs

MIN_PRECISION = 1e-10
NEWTON_STEPS, CG_STEPS, HALVINGS = 30, 12, 14
CG_TOLERANCE = 1e-3
TOLERANCE = 1e-6  # of the log posterior, per label

Vector = Float[Tensor, "n"]
Solver = Callable[[Outputs], Outputs]


class Covariance(ABC):
    """K between labels, in full or through features."""

    @abstractmethod
    def times(self, values: Outputs) -> Outputs:
        """K · values."""

    @abstractmethod
    def solver(self, precision: Vector) -> Solver:
        """Values → (I + diag(w) K)⁻¹ values."""

    @abstractmethod
    def label_variance(self, precision: Vector) -> Vector:
        """The diagonal of K − K (K + diag(1/w))⁻¹ K."""


@dataclass(frozen=True)
class FullCovariance(Covariance):
    """K as a matrix."""

    gram: Float[Tensor, "n n"]

    def times(self, values: Outputs) -> Outputs:
        return self.gram @ values

    def solver(self, precision: Vector) -> Solver:
        """(I + W K)⁻¹ = I − W^½ (I + W^½ K W^½)⁻¹ W^½ K."""
        scale = precision.sqrt()[:, None]
        factor = whitened_factor(self.gram, precision)
        return lambda values: (
            values - scale * torch.cholesky_solve(scale * (self.gram @ values), factor)
        )

    def label_variance(self, precision: Vector) -> Vector:
        half = laplace_root(self.gram, precision) @ self.gram
        return (self.gram.diagonal() - half.square().sum(0)).clamp_min(0.0)


@dataclass(frozen=True)
class FeatureCovariance(Covariance):
    """K = ΦᵀΦ with features Φ of each label as columns; never formed."""

    features: Float[Tensor, "m n"]

    def times(self, values: Outputs) -> Outputs:
        return self.features.T @ (self.features @ values)

    def solver(self, precision: Vector) -> Solver:
        """(I + W ΦᵀΦ)⁻¹ = I − W Φᵀ S⁻¹ Φ,  S = I + Φ W Φᵀ."""
        factor = self.factor(precision)
        return lambda values: (
            values
            - precision[:, None]
            * (self.features.T @ torch.cholesky_solve(self.features @ values, factor))
        )

    def label_variance(self, precision: Vector) -> Vector:
        factor = self.factor(precision)
        return torch.linalg.solve_triangular(factor, self.features, upper=False).square().sum(0)

    def factor(self, precision: Vector) -> Float[Tensor, "m m"]:
        """The Cholesky factor of S."""
        matrix = (self.features * precision) @ self.features.T
        matrix.diagonal().add_(1.0)
        return cholesky(matrix, "the precision of the features")


@dataclass(frozen=True)
class Mode:
    """The most probable logits F = M + K A at the labels, and the precision w of each label."""

    weights: Outputs  # A
    logits: Outputs
    precision: Vector
    log_posterior: float  # log p(y | F) − tr(AᵀKA)/2


def find_mode(
    covariance: Covariance, y: Labels, mean: Outputs, start: Outputs | None = None
) -> Mode:
    """By Newton's method, from weights A = `start`; each step solves for all classes together.

    The step (K⁻¹ + W)⁻¹(Y − P − A) comes from conjugate gradients, whose preconditioner has the
    precision w in place of W. For two classes these agree, and one iteration is enough.
    """
    rows = torch.arange(len(y), device=y.device)
    one_hot = torch.zeros_like(mean)
    one_hot[rows, y] = 1.0

    def log_posterior(weights: Outputs, rest: Outputs) -> float:
        fit = torch.log_softmax(mean + rest, 1)[rows, y].sum()
        return float(fit - 0.5 * (weights * rest).sum())

    weights, rest = torch.zeros_like(mean), torch.zeros_like(mean)
    best = log_posterior(weights, rest)
    if start is not None:
        moved = covariance.times(start)
        if (value := log_posterior(start, moved)) > best:
            weights, rest, best = start, moved, value
    for _ in range(NEWTON_STEPS):
        p = torch.softmax(mean + rest, 1)
        step = _newton_step(covariance, p, one_hot - p - weights)
        share, value = 1.0, -float("inf")
        for _ in range(HALVINGS):
            value = log_posterior(weights + share * step[0], rest + share * step[1])
            if value > best:
                break
            share /= 2
        if not value > best:
            break
        weights, rest = weights + share * step[0], rest + share * step[1]
        gain, best = value - best, value
        if gain < TOLERANCE * len(y):
            break
    p = torch.softmax(mean + rest, 1)
    return Mode(weights, mean + rest, shared_precision(p), best)


def _newton_step(covariance: Covariance, p: Outputs, residual: Outputs) -> tuple[Outputs, Outputs]:
    """Δ with (K⁻¹ + W) K Δ = residual, and K Δ, by preconditioned conjugate gradients."""
    solve = covariance.solver(shared_precision(p))
    step, moved = torch.zeros_like(p), torch.zeros_like(p)
    along, along_moved = torch.zeros_like(p), torch.zeros_like(p)
    before, first = 1.0, 0.0
    for number in range(1 if p.shape[1] == 2 else CG_STEPS):
        solved = solve(residual)
        solved_moved = covariance.times(solved)
        size = float((residual * solved_moved).sum())
        first = first or size
        if (size <= CG_TOLERANCE * first and number > 0) or size <= 0:
            break
        ratio = size / before if number > 0 else 0.0
        along, along_moved = solved + ratio * along, solved_moved + ratio * along_moved
        curved = along + p * along_moved - p * (p * along_moved).sum(1, keepdim=True)
        length = size / float((along_moved * curved).sum())
        step, moved = step + length * along, moved + length * along_moved
        residual, before = residual - length * curved, size
    return step, moved


def shared_precision(p: Outputs) -> Vector:
    """w, of the class probabilities at each label."""
    return ((p * (1 - p)).sum(1) / (p.shape[1] - 1)).clamp_min(MIN_PRECISION)


def whitened_factor(gram: Float[Tensor, "n n"], precision: Vector) -> Float[Tensor, "n n"]:
    """C with C Cᵀ = I + W^½ K W^½."""
    scale = precision.sqrt()
    matrix = gram * scale[:, None] * scale
    matrix.diagonal().add_(1.0)
    return cholesky(matrix, "the covariance of the labels")


def laplace_root(gram: Float[Tensor, "n n"], precision: Vector) -> Float[Tensor, "n n"]:
    """R with RᵀR = (K + diag(1/w))⁻¹:  R = C⁻¹ W^½."""
    factor = whitened_factor(gram, precision)
    return torch.linalg.solve_triangular(factor, torch.diag(precision.sqrt()), upper=False)


def leave_one_out_logits(mode: Mode, variance: Vector) -> tuple[Outputs, Vector]:
    """Mean and variance of the logits at each label, given all others.

    The label adds the precision w to 1/v, and A to the slope of the log posterior. Without it

        v₋ = v / (1 − w v),      F₋ = F − v₋ A
    """
    remaining = (1 - mode.precision * variance).clamp_min(1e-6)
    without = variance / remaining
    return mode.logits - without[:, None] * mode.weights, without


def log_evidence_and_gradient(
    gram: Float[Tensor, "n n"], y: Labels, mean: Outputs, start: Outputs | None = None
) -> tuple[float, Float[Tensor, "n n"], Outputs]:
    """Laplace's log p(y | K), its gradient in K, and the weights A of the mode.

        log p(y | F) − tr(AᵀKA)/2 − (o − 1)/2 · log det(I + W^½ K W^½)

    The gradient has what K does at a fixed mode, and what it does by moving the mode, which changes
    w (Rasmussen and Williams 2006, section 5.5); for more than two classes that part is taken
    with w in place of W.
    """
    mode = find_mode(FullCovariance(gram), y, mean, start)
    p, free = torch.softmax(mode.logits, 1), mean.shape[1] - 1
    factor = whitened_factor(gram, mode.precision)
    root = torch.linalg.solve_triangular(factor, torch.diag(mode.precision.sqrt()), upper=False)
    held = root.T @ root
    evidence = mode.log_posterior - free * float(factor.diagonal().log().sum())
    variance = (gram.diagonal() - (root @ gram).square().sum(0)).clamp_min(0.0)
    slope = p * (1 - 2 * p)
    slope = (slope - p * slope.sum(1, keepdim=True)) / free  # of w in the logits
    pulled = -0.5 * free * variance[:, None] * slope
    pulled = pulled - held @ (gram @ pulled)
    moved = pulled @ mode.weights.T
    gradient = 0.5 * (mode.weights @ mode.weights.T - free * held + moved + moved.T)
    return evidence, gradient, mode.weights
