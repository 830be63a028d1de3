"""Gaussian processes of two classes, under the kernel of a prior network.

The prior is that of each logit; g is their difference, with covariance 2 K. Expectation propagation
(`core/priors/expectation_propagation.py`) makes Gaussian sites of the labels, given which the
posterior is that of a regression. With landmarks U (all labels, or some), L Lᵀ = K_UU, φ = L⁻¹ K_Ux
and weights w ~ N(m, S⁻¹) given the sites,

    g(x) = φ(x)·w + r(x),      Cov[r] = K − φᵀφ

Functions are drawn by Matheron's rule (Wilson et al. 2020): φ(x)·(w − L⁻¹ h(U)) is added to a prior
function h, which is a wide network.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.config import Config, require_counts, require_positive
from gpn.core.posterior.base import MOMENT_DRAWS, FunctionBatch, Posterior, require_draws
from gpn.core.priors.cholesky import cholesky
from gpn.core.priors.expectation_propagation import LabelFeatures, find_sites
from gpn.core.priors.prior import MLPPrior
from gpn.core.task import Signature, Task
from gpn.core.types import Draws, Inputs, Outputs, Rng, as_generator, normal

LANDMARK_JITTER = 1e-9  # of the prior's mean variance


@dataclass(frozen=True, kw_only=True)
class GPCConfig(Config):
    """Settings of a Gaussian process of two classes.

    prior
        The distribution of each logit; its kernel at infinite width.
    landmarks
        Most labels that are landmarks; of more labels so many are drawn.
    max_sweeps
        Most sweeps of expectation propagation over all labels.
    path_width
        Hidden units per layer of the prior functions in Matheron's rule.
    jitter
        Added to the diagonal when joint draws are made, as a share of its maximum.
    """

    prior: MLPPrior = field(default_factory=MLPPrior)
    landmarks: int = 2000
    max_sweeps: int = 60
    path_width: int = 1024
    jitter: float = 1e-8

    def __post_init__(self) -> None:
        require_counts(self, "landmarks", "max_sweeps", "path_width")
        require_positive(self, "jitter")
        if not self.prior.has_kernel:
            raise ValueError(
                f"prior must have a kernel in closed form, got activation "
                f"{self.prior.activation!r}; try tanh, erf or relu."
            )


class GPC:
    """The method: two classes in float64, at a cost cubic in the number of landmarks."""

    def __init__(self, config: GPCConfig | None = None) -> None:
        self.config = GPCConfig() if config is None else config

    def fit(self, task: Task, rng: Rng = None, *, progress: bool | None = None) -> "GPCPosterior":
        """Find the labels' sites; `rng` picks landmarks where there are more labels."""
        if not task.is_classification or task.n_outputs != 2:
            raise TypeError(
                "a Gaussian process of classes needs two classes, got "
                f"{f'{task.n_outputs} classes' if task.is_classification else 'a regression'}; "
                "use gpn or mcmc."
            )
        moved = task.to(task.x_obs.device, torch.float64)
        x, config = moved.x_obs, self.config
        order = torch.randperm(len(x), generator=as_generator(rng)).to(x.device)
        landmarks = x if len(x) <= config.landmarks else x[order[: config.landmarks]]
        features = LandmarkFeatures(config.prior, landmarks)
        labels = LabelFeatures(features(x), features.rest(x))
        sites = find_sites(labels, 2.0 * moved.y_obs.to(x) - 1, config.max_sweeps)
        if not sites.has_converged:
            warnings.warn(
                "expectation propagation should have converged, the posterior at a label still "
                f"changes by {sites.change:.2g} of its standard deviation; "
                f"try max_sweeps={2 * config.max_sweeps}.",
                stacklevel=2,
            )
        factor = labels.precision_factor(sites)
        weights = labels.mean_weights(sites, factor)
        return GPCPosterior(landmarks, weights, factor, task.signature, config)


class LandmarkFeatures:
    """φ(x) = L⁻¹ K_Ux of the difference of two logits, and what it leaves out."""

    def __init__(self, prior: MLPPrior, landmarks: Inputs) -> None:
        self.prior, self.landmarks = prior, landmarks
        gram = self.kernel(landmarks, landmarks)
        gram.diagonal().add_(LANDMARK_JITTER * float(gram.diagonal().mean()))
        self.factor = cholesky(gram, "the covariance of the landmarks")

    def __call__(self, x: Inputs) -> Float[Tensor, "m n"]:
        return self.whiten(self.kernel(self.landmarks, x))

    def kernel(self, left: Inputs, right: Float[Tensor, "m *d"]) -> Float[Tensor, "n m"]:
        """Cov[g(x), g(x')]."""
        return 2 * self.prior.kernel(left, right)

    def whiten(self, values: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
        """L⁻¹ · values."""
        return torch.linalg.solve_triangular(self.factor, values, upper=False)

    def rest(self, x: Inputs) -> Float[Tensor, "n"]:
        """Var[r]."""
        explained = self(x).square().sum(0)
        return (2 * self.prior.variance(x) - explained).clamp_min(0.0)


class GPCPosterior(Posterior):
    """The Gaussian posterior of g, as the logits −g/2 and g/2."""

    def __init__(
        self,
        landmarks: Inputs,
        weights: Float[Tensor, "m"],
        factor: Float[Tensor, "m m"],
        signature: Signature,
        config: GPCConfig,
    ) -> None:
        super().__init__(signature, landmarks.device, landmarks.dtype)
        self.config, self.weights, self.factor = config, weights, factor.contiguous()
        self.features = LandmarkFeatures(config.prior, landmarks)

    @torch.no_grad()
    def moments(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> tuple[Outputs, Outputs]:
        """Mean and variance of each logit, in closed form."""
        rows = self._rows(x)
        features = self.features(rows)
        left = torch.linalg.solve_triangular(self.factor, features, upper=False).square().sum(0)
        explained = features.square().sum(0)
        rest = (2 * self.config.prior.variance(rows) - explained).clamp_min(0.0)
        variance = ((rest + left) / 4)[:, None].expand(-1, 2)
        return _as_logits(features.T @ self.weights), variance

    @torch.no_grad()
    def covariance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "o n n"]:
        return (self._difference_covariance(self._rows(x)) / 4).expand(2, -1, -1)

    @torch.no_grad()
    def sample(self, x: Any, n: int = 100, rng: Rng = None) -> Draws:
        """Exact joint draws at the rows of `x`, by the Cholesky factor of their covariance."""
        rows, generator = self._rows(x), as_generator(rng, self.device)
        if len(rows) == 0:
            return rows.new_zeros(require_draws(n), 0, 2)
        matrix = self._difference_covariance(rows)
        matrix.diagonal().add_(self.config.jitter * float(matrix.diagonal().max()))
        factor = cholesky(matrix, "the covariance at the rows")
        noise = normal((require_draws(n), len(rows)), generator, rows)
        return _as_logits(self.features(rows).T @ self.weights + noise @ factor.T)

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        prior, landmarks = self._prior_functions(n, rng), self.features.landmarks
        noise = normal((len(self.weights), n), rng, self.weights)
        weights = self.weights[:, None] + torch.linalg.solve_triangular(
            self.factor.T, noise, upper=True
        )
        shift = weights - self.features.whiten(prior(landmarks).T)
        return lambda x: _as_logits(prior(x) + (self.features(x).T @ shift).T)

    def tensors(self) -> dict[str, Tensor]:
        landmarks = self.features.landmarks
        return {"landmarks": landmarks, "weights": self.weights, "factor": self.factor}

    @classmethod
    def restore(
        cls, config: GPCConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "GPCPosterior":
        landmarks, weights = tensors["landmarks"].clone(), tensors["weights"].clone()
        return cls(landmarks, weights, tensors["factor"], signature, config)

    def _difference_covariance(self, rows: Inputs) -> Float[Tensor, "n n"]:
        """K − φᵀφ + φᵀ S⁻¹ φ."""
        features = self.features(rows)
        half = torch.linalg.solve_triangular(self.factor, features, upper=False)
        given_landmarks = self.features.kernel(rows, rows).addmm_(features.T, features, alpha=-1)
        return given_landmarks.addmm_(half.T, half)

    def _prior_functions(self, n: int, rng: torch.Generator) -> Any:
        """n functions of the prior of g: wide networks of one output, times √2."""
        widths = (self.config.path_width,) * len(self.config.prior.widths)
        wide = self.config.prior.replace(widths=widths)
        functions = wide.sample(self.signature.input_shape, 1, n, rng)
        functions = functions.to(self.device, self.dtype)
        return lambda x: 2**0.5 * functions(x)[..., 0]


def _as_logits(difference: Float[Tensor, "*n"]) -> Float[Tensor, "*n 2"]:
    return torch.stack([-difference / 2, difference / 2], dim=-1)
