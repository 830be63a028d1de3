"""The generator in closed form: a prior with a kernel, conditioned on labels by linear algebra.

With m(x) and K the prior's mean and kernel, and landmarks U,

    g(x, z) ~ N(m(x) + K_xU w,  K_xx − K_xU RᵀR K_Ux)

Few labels are the landmarks themselves, and the posterior is exact:

    R = C⁻¹,   w = RᵀR (y − m),   C Cᵀ = K_UU + σ² I

Many labels enter through sums over features φ(x) = L⁻¹ K_Ux of some landmarks, L Lᵀ = K_UU
(Titsias 2009). Far from landmarks and labels both return to the prior:

    R = Tᵀ L⁻¹,   w = L⁻ᵀ S⁻¹ Σ_i φ(x_i)(y_i − m(x_i)),   S = σ² I + Σ_i φφᵀ,   T Tᵀ = I − σ² S⁻¹

A label of weight c has the noise σ²/c: its diagonal of C Cᵀ, and its terms of the sums times c.
"""

import copy
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpn.core.priors.ard import ARDPrior, RandomFeatures
from gpn.core.priors.cholesky import cholesky, jittered_cholesky
from gpn.core.priors.laplace import laplace_root
from gpn.core.types import Codes, Functions, Inputs, Outputs, as_generator
from gpn.methods.gpn.model.generator import Generator

LANDMARK_JITTER = 1e-7  # of the prior's mean variance; without noise K_UU is nearly singular
FEATURE_SEED = 0
BAND = 128  # rows of a triangular root at a time: about half of the work, while products are large
Square = Float[Tensor, "m m"]
LabelWeights = Float[Tensor, "n"]


class KernelGenerator(Generator):
    """Functions of the conditioned prior.

    A code z = (z₁, z₂) draws one by Matheron's rule (Wilson et al. 2020): h are random features of
    the prior, so that h(x)·z₁ is a prior function, which the labels correct:

        g(x, z) = m(x) + h(x)·z₁ + K_xU (w − RᵀR h(U)·z₁ + Q z₂),   QQᵀ = RᵀR − RᵀR K_UU RᵀR
    """

    def __init__(
        self,
        prior: ARDPrior,
        landmarks: Inputs,
        weights: Float[Tensor, "m o"],
        root: Square,
        *,
        is_exact: bool,
        precision: Float[Tensor, "m"] | None = None,
    ) -> None:
        super().__init__()
        self.prior = prior
        self.is_exact = is_exact  # landmarks are the labels
        if precision is not None:  # of each label: of classes, and of weighted labels
            self.precision = nn.Parameter(precision, requires_grad=False)
        self.landmarks = nn.Parameter(landmarks, requires_grad=False)
        self.weights = nn.Parameter(weights, requires_grad=False)
        self.root = nn.Parameter(root, requires_grad=False)
        self.n_outputs = weights.shape[1]
        self.n_features = prior.width + len(prior.column_scales)
        self.code_dim = self.n_outputs * (self.n_features + len(landmarks))

    def _apply(self, *args: Any, **options: Any) -> "KernelGenerator":
        """Move to another device or dtype; what was computed before is computed anew there."""
        self._forget()
        return super()._apply(*args, **options)

    def __getstate__(self) -> dict[str, Any]:
        self._forget()
        return dict(self.__dict__)

    def _forget(self) -> None:
        for name in ("_features", "_landmark_features", "_spread", "_is_triangular"):
            self.__dict__.pop(name, None)

    @cached_property
    def _features(self) -> RandomFeatures:
        return RandomFeatures(self.prior, as_generator(FEATURE_SEED), self.landmarks)

    def mean(self, x: Inputs) -> Outputs:
        """m(x) + K_xU w."""
        cross = self.prior.kernel(x, self.landmarks)
        return self.prior.mean(x, self.n_outputs) + cross @ self.weights

    def moments(self, x: Inputs) -> tuple[Outputs, Outputs]:
        """Mean and variance over z ~ N(0, I), without features."""
        cross = self.prior.kernel(self.landmarks, x)
        mean = self.prior.mean(x, self.n_outputs) + cross.T @ self.weights
        variance = self.prior.variance(x) - self._told(cross)
        return mean, variance.clamp_min(0.0)[:, None].expand_as(mean)

    def _told(self, cross: Float[Tensor, "m n"]) -> Float[Tensor, "n"]:
        """‖R K_Ux‖², the variance that the labels take away.

        R has zeros above its diagonal where it is the inverse of a Cholesky factor: of a band of
        its rows, only the columns up to its last row count.
        """
        band = BAND if self._is_triangular else len(cross)
        total = cross.new_zeros(cross.shape[1])
        for start in range(0, len(cross), band):
            end = start + band if self._is_triangular else len(cross)
            told = self.root[start : start + band, :end] @ cross[:end]
            total += torch.einsum("mn,mn->n", told, told)
        return total

    @cached_property
    def _is_triangular(self) -> bool:
        return len(self.root) > BAND and bool((self.root.triu(1) == 0).all())

    def covariance(self, x: Inputs) -> Float[Tensor, "n n"]:
        """K_xx − K_xU RᵀR K_Ux, the same for each output."""
        half = self.root @ self.prior.kernel(self.landmarks, x)
        return self.prior.kernel(x, x) - half.T @ half

    def batch_covariance(self, x: Float[Tensor, "b q d"]) -> Float[Tensor, "b q q"]:
        """`covariance` within each batch of rows."""
        half = self.root @ self.prior.kernel(self.landmarks, x.flatten(0, 1))
        half = half.reshape(-1, *x.shape[:2])
        return self.prior.batch_kernel(x, x) - torch.einsum("mbq,mbr->bqr", half, half)

    def forward(self, x: Inputs, codes: Codes) -> Functions:
        draws = codes.to(x).reshape(len(codes), self.n_outputs, -1)
        first, second = draws.split([self.n_features, len(self.landmarks)], dim=-1)
        at_landmarks = torch.einsum("mf,sof->mso", self._landmark_features, first)
        correction = self.weights[:, None] + torch.einsum("mj,soj->mso", self._spread, second)
        correction = correction - self._pull(at_landmarks.flatten(1)).reshape(correction.shape)
        prior = torch.einsum("nf,sof->sno", self._features(x), first)
        cross = self.prior.kernel(x, self.landmarks)
        corrected = torch.einsum("nm,mso->sno", cross, correction)
        return prior + corrected + self.prior.mean(x, self.n_outputs)

    def paired(self, x: Inputs, codes: Float[Tensor, "n q"]) -> Outputs:
        rows = [self(row[None], code[None])[0] for row, code in zip(x, codes, strict=True)]
        return torch.cat(rows)

    def _pull(self, values: Tensor) -> Tensor:
        """RᵀR · values."""
        return self.root.T @ (self.root @ values)

    @cached_property
    def _landmark_features(self) -> Float[Tensor, "m F"]:
        return self._features(self.landmarks)

    @cached_property
    def _spread(self) -> Square:
        """Q = Rᵀ E with E Eᵀ = I − R K_UU Rᵀ."""
        held = self.root @ self.prior.kernel(self.landmarks, self.landmarks) @ self.root.T
        rest = torch.eye(len(held), dtype=held.dtype, device=held.device) - (held + held.T) / 2
        return self.root.T @ jittered_cholesky(rest, "the spread at the landmarks")[0]


def condition_exactly(
    prior: ARDPrior, x: Inputs, y: Outputs, noise_std: float, weights: LabelWeights | None = None
) -> KernelGenerator:
    """The exact posterior given labels of noise σ²/c: landmarks are the labels."""
    precision = None if weights is None else weights / noise_std**2
    if precision is None:
        root = exact_root(prior, x, noise_std)
    else:
        root = laplace_root(prior.kernel(x, x), precision)
    gap = y - prior.mean(x, y.shape[1])
    pull = root.T @ (root @ gap)
    return KernelGenerator(prior, x, pull, root, is_exact=True, precision=precision)


def exact_root(prior: ARDPrior, x: Inputs, noise_std: float) -> Square:
    """R = C⁻¹ with C Cᵀ = K + σ² I."""
    gram = prior.kernel(x, x)
    gram.diagonal().add_(noise_std**2)
    factor = cholesky(gram, "the covariance of the labels")
    identity = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
    return torch.linalg.solve_triangular(factor, identity, upper=False)


class FeatureSums:
    """Σ φφᵀ and Σ φ(y − m), added up chunk by chunk: memory does not grow with the labels."""

    def __init__(
        self, prior: ARDPrior, landmarks: Inputs, n_outputs: int, noise_std: float
    ) -> None:
        self.prior, self.landmarks, self.noise_std = prior, landmarks, noise_std
        gram = prior.kernel(landmarks, landmarks)
        gram.diagonal().add_(LANDMARK_JITTER * float(gram.diagonal().mean()))
        self.factor = cholesky(gram, "the covariance of the landmarks")
        self.squares = torch.zeros_like(gram)
        self.products = gram.new_zeros(len(gram), n_outputs)

    def add(self, chunks: Iterable[tuple[Tensor, ...]]) -> "FeatureSums":
        """Chunks, of any sizes, are rows, labels and, where these have them, weights."""
        for x, y, *weights in chunks:
            features = self._features(x)
            weighted = features * weights[0] if weights else features
            self._add_squares(weighted, features)
            self.products += weighted @ (y - self.prior.mean(x, y.shape[1]))
        return self

    def _add_squares(self, weighted: Float[Tensor, "m n"], features: Float[Tensor, "m n"]) -> None:
        """Add Σ c φφᵀ: a band of rows up to its diagonal, which are the columns above it, too."""
        for start in range(0, len(features), BAND):
            end = start + BAND
            block = weighted[start:end] @ features[:end].T
            self.squares[start:end, :end] += block
            self.squares[:start, start:end] += block[:, :start].T

    def emptied(self) -> "FeatureSums":
        """The same features, and sums over no labels."""
        other = copy.copy(self)
        other.squares = torch.zeros_like(self.squares)
        other.products = torch.zeros_like(self.products)
        return other

    def plus(self, other: "FeatureSums") -> "FeatureSums":
        """The sums over the labels of both; the features must be the same."""
        both = copy.copy(self)
        both.squares = self.squares + other.squares
        both.products = self.products + other.products
        return both

    def moments(self, x: Inputs) -> tuple[Outputs, Outputs]:
        """Mean and variance given the labels so far, at a few rows."""
        features, precision = self._features(x), self._precision()
        weights = torch.cholesky_solve(self.products, precision)
        mean = self.prior.mean(x, weights.shape[1]) + features.T @ weights
        left = torch.linalg.solve_triangular(precision, features, upper=False).square().sum(0)
        variance = self.prior.variance(x) - features.square().sum(0) + self.noise_std**2 * left
        return mean, variance.clamp_min(0.0)[:, None].expand_as(mean)

    def leave_one_out(
        self, x: Inputs, y: Outputs, weights: LabelWeights | None = None
    ) -> tuple[Outputs, Outputs]:
        """Mean and variance at labels that were added, each given all others.

        With the leverage h = c φᵀ S⁻¹ φ of a label of weight c its residual is  (y − mean)/(1 − h)
        and its features' variance  σ² φᵀ S⁻¹ φ/(1 − h).
        """
        features, precision = self._features(x), self._precision()
        solved = torch.cholesky_solve(self.products, precision)
        held = torch.linalg.solve_triangular(precision, features, upper=False).square().sum(0)
        rest = (1 - (held if weights is None else weights * held)).clamp_min(1e-6)
        gap = y - self.prior.mean(x, y.shape[1]) - features.T @ solved
        missed = (self.prior.variance(x) - features.square().sum(0)).clamp_min(0.0)
        variance = missed + self.noise_std**2 * held / rest
        return y - gap / rest[:, None], variance[:, None].expand_as(y)

    def generator(self) -> KernelGenerator:
        """The posterior given the labels so far."""
        identity = torch.eye(len(self.squares), dtype=self.squares.dtype).to(self.squares)
        precision = self._precision()
        weights = torch.cholesky_solve(self.products, precision)
        inverse = torch.linalg.solve_triangular(precision, identity, upper=False)
        held = identity - self.noise_std**2 * (inverse.T @ inverse)
        root, _ = jittered_cholesky(held, "what the labels tell of the features")  # T
        solved = torch.linalg.solve_triangular(self.factor.T, weights, upper=True)
        half = torch.linalg.solve_triangular(self.factor, root.T, upper=False, left=False)
        return KernelGenerator(self.prior, self.landmarks, solved, half, is_exact=False)

    def explained_variance(self, x: Inputs) -> float:
        """The share of the prior's variance at rows that the landmarks hold."""
        return float(self._features(x).square().sum() / self.prior.variance(x).sum())

    def _features(self, x: Inputs) -> Float[Tensor, "m n"]:
        cross = self.prior.kernel(self.landmarks, x)
        return torch.linalg.solve_triangular(self.factor, cross, upper=False)

    def _precision(self) -> Square:
        """The Cholesky factor of S."""
        precision = self.squares.clone()
        precision.diagonal().add_(self.noise_std**2)
        return cholesky(precision, "the precision of the features")


def leave_one_out(
    generator: KernelGenerator, y: Outputs, noise_std: float, weights: LabelWeights | None = None
) -> tuple[Outputs, Outputs]:
    """Mean and variance of the function at each label, given all others (exact posteriors only).

    With B = RᵀR the label is predicted by  y − (B(y − m))_i / B_ii,  with variance  1/B_ii.
    """
    precision = generator.root.square().sum(0)[:, None]
    mean = y - generator.weights / precision
    noise = noise_std**2 if weights is None else noise_std**2 / weights[:, None]
    variance = (1 / precision - noise).clamp_min(0.0)
    return mean, variance.expand_as(mean)
