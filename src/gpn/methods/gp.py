"""The exact Gaussian process of the prior: the truth where labels are few.

An infinitely wide prior network is a Gaussian process with kernel K; with noise σ_ε its posterior
at rows x is N(μ, Σ) with

    μ = K_xo (K_oo + σ_ε² I)⁻¹ y,       Σ = K_xx − K_xo (K_oo + σ_ε² I)⁻¹ K_ox

Single functions are drawn by Matheron's rule (Wilson et al. 2020): a prior function f, here a very
wide network, is corrected by K_xo (K_oo + σ_ε² I)⁻¹ (y + η − f(x_o)) with η ~ N(0, σ_ε²).
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.config import Config, require_positive
from gpn.core.posterior import MOMENT_DRAWS, FunctionBatch, Posterior
from gpn.core.prior import MLPPrior
from gpn.core.task import Task
from gpn.core.types import Draws, Inputs, Outputs, Rng, as_generator, normal


@dataclass(frozen=True, kw_only=True)
class GPConfig(Config):
    """The prior whose kernel is used, the noise of the labels, and the width of drawn functions."""

    noise_std: float = 0.1
    prior: MLPPrior = field(default_factory=MLPPrior)
    path_width: int = 4096
    jitter: float = 1e-8

    def __post_init__(self) -> None:
        require_positive(self, "noise_std", "path_width", "jitter")


class GP:
    """The method: exact regression in float64, cubic in the number of labels."""

    def __init__(self, config: GPConfig | None = None) -> None:
        self.config = GPConfig() if config is None else config

    def fit(self, task: Task, rng: Rng = None, *, progress: bool | None = None) -> "GPPosterior":
        """Factor K_oo + σ_ε² I; nothing is random and nothing takes long enough to show."""
        if task.is_classification:
            raise TypeError("an exact GP needs a regression task, got integer y (classes).")
        return GPPosterior(task.to(task.x_obs.device, torch.float64), self.config)


class GPPosterior(Posterior):
    """The closed-form posterior; its moments are exact, whatever number of draws is asked for."""

    def __init__(self, task: Task, config: GPConfig) -> None:
        super().__init__(task.signature, task.x_obs.device, task.x_obs.dtype)
        self.config = config
        self.x_obs, self.y_obs = task.x_obs, task.y_obs
        gram = config.prior.kernel(self.x_obs, self.x_obs)
        noise = torch.full((len(gram),), config.noise_std**2, device=self.device, dtype=self.dtype)
        self.cholesky = torch.linalg.cholesky(gram + noise.diag())
        self.alpha = torch.cholesky_solve(self.y_obs, self.cholesky)

    def mean(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        return self.config.prior.kernel(self._rows(x), self.x_obs) @ self.alpha

    def variance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        parts = [self._matrix(part).diagonal() for part in self._rows(x).split(512)]
        return torch.cat(parts)[:, None].expand(-1, self.n_outputs)

    def covariance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "o n n"]:
        return self._matrix(self._rows(x)).expand(self.n_outputs, -1, -1)

    def sample(self, x: Any, n: int = 100, rng: Rng = None) -> Draws:
        """Exact joint draws at the rows of `x`, by a Cholesky factor of their covariance."""
        rows, generator = self._rows(x), as_generator(rng, self.device)
        matrix = self._matrix(rows)
        matrix.diagonal().add_(self.config.jitter * float(matrix.diagonal().max()))
        noise = normal((n, len(rows), self.n_outputs), generator, rows)
        return self.mean(rows) + torch.linalg.cholesky(matrix) @ noise

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        wide = self.config.prior.replace(
            widths=(self.config.path_width,) * len(self.config.prior.widths)
        )
        path = wide.sample(self.signature.input_shape, self.n_outputs, n, rng).to(
            self.device, self.dtype
        )
        noise = normal((n, *self.y_obs.shape), rng, self.y_obs) * self.config.noise_std
        gap = self.y_obs + noise - path(self.x_obs)
        correction = torch.cholesky_solve(gap.movedim(0, 1).flatten(1), self.cholesky)

        def batch(x: Inputs) -> Draws:
            shift = self.config.prior.kernel(x, self.x_obs) @ correction
            return path(x) + shift.reshape(len(x), n, self.n_outputs).movedim(1, 0)

        return batch

    def _matrix(self, rows: Inputs) -> Float[Tensor, "n n"]:
        kernel = self.config.prior.kernel
        half = torch.linalg.solve_triangular(self.cholesky, kernel(self.x_obs, rows), upper=False)
        return kernel(rows, rows) - half.T @ half
