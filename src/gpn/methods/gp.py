"""Exact Gaussian processes, with the kernel of the prior network or an RBF kernel.

With kernel K and noise σ_ε the posterior at rows x is N(μ, Σ) with

    μ = K_xo (K_oo + σ_ε² I)⁻¹ y,       Σ = K_xx − K_xo (K_oo + σ_ε² I)⁻¹ K_ox

`kernel="prior"` is the covariance of an infinitely wide prior network; `kernel="rbf"` is
τ² exp(−‖x − x'‖² / (2 ℓ²)). Hyperparameters that are None are learnt by marginal likelihood.

Functions are drawn by Matheron's rule (Wilson et al. 2020): the correction
K_xo (K_oo + σ_ε² I)⁻¹ (y + η − f(x_o)), η ~ N(0, σ_ε²), is added to a prior function f, which is a
very wide network or a sum of random Fourier features.
"""

import itertools
import math
import os
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.config import (
    Config,
    require_counts,
    require_one_of,
    require_positive,
    require_positive_if_given,
)
from gpn.core.posterior.base import MOMENT_DRAWS, FunctionBatch, require_draws
from gpn.core.posterior.gaussian import GaussianPosterior
from gpn.core.priors.cholesky import cholesky
from gpn.core.priors.evidence import gram_noise_std
from gpn.core.priors.prior import MLPPrior
from gpn.core.task import Signature, Task
from gpn.core.types import Draws, Inputs, Outputs, Rng, as_generator, normal

CHUNK_ROWS = 512


@dataclass(frozen=True, kw_only=True)
class GPConfig(Config):
    """Settings of an exact GP.

    kernel
        "prior" (the covariance of `prior` at infinite width) or "rbf".
    noise_std, length_scale, output_scale
        σ_ε, ℓ and τ; None learns it by marginal likelihood. The kernel "prior" ignores ℓ and τ.
    path_width
        Hidden units, or Fourier features, of the prior functions in Matheron's rule.
    jitter
        Added to the diagonal when joint draws are made, as a fraction of its maximum.
    """

    kernel: str = "prior"
    noise_std: float | None = 0.1
    length_scale: float | None = None
    output_scale: float | None = None
    prior: MLPPrior = field(default_factory=MLPPrior)
    path_width: int = 4096
    jitter: float = 1e-8

    def __post_init__(self) -> None:
        require_one_of(self, "kernel", ("prior", "rbf"))
        require_counts(self, "path_width")
        require_positive(self, "jitter")
        require_positive_if_given(self, "noise_std", "length_scale", "output_scale")


class GP:
    """The method: exact regression in float64, at a cost cubic in the number of labels."""

    def __init__(self, config: GPConfig | None = None) -> None:
        self.config = GPConfig() if config is None else config

    def fit(self, task: Task, rng: Rng = None, *, progress: bool | None = None) -> "GPPosterior":
        """Learn the hyperparameters that are None, then factor K_oo + σ_ε² I; `rng` is unused."""
        if task.is_classification:
            raise TypeError("an exact GP needs a regression task, got integer y (classes).")
        check_memory(len(task.x_obs), task.x_obs.device)
        moved = task.to(task.x_obs.device, torch.float64)
        config = learn_hyperparameters(self.config, moved.x_obs, moved.y_obs)
        return GPPosterior(moved.x_obs, moved.y_obs, task.signature, config)


def learn_hyperparameters(config: GPConfig, x: Inputs, y: Outputs) -> GPConfig:
    """`config` with every None replaced by the maximum of the marginal likelihood."""
    values = config.output_scale, config.length_scale, config.noise_std
    if config.kernel == "rbf" and None in values:
        return _fit_rbf(config, x, y)
    if config.noise_std is None:
        return config.replace(noise_std=gram_noise_std(covariance(config, x, x), y))
    return config


def _fit_rbf(config: GPConfig, x: Inputs, y: Outputs) -> GPConfig:
    """ℓ, τ and σ_ε by scikit-learn; values that are not None stay fixed."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    rows, targets = x.flatten(1).cpu(), y.cpu()
    size, distances = float(targets.square().mean().sqrt()) or 1.0, torch.pdist(rows[:1000])
    distance = float(distances.median()) or 1.0 if len(distances) else 1.0
    fitted = []
    with warnings.catch_warnings():
        # a hyperparameter at the end of its range is a valid answer
        warnings.simplefilter("ignore", ConvergenceWarning)
        for shrink, noise in itertools.product((1.0, 0.3), (0.1, 0.5)):  # several local maxima
            scale = kernels.ConstantKernel(*_start_and_bounds(config.output_scale, size, power=2))
            rbf = kernels.RBF(*_start_and_bounds(config.length_scale, shrink * distance))
            white = kernels.WhiteKernel(*_start_and_bounds(config.noise_std, noise * size, power=2))
            search = GaussianProcessRegressor(scale * rbf + white, alpha=1e-10)
            fitted.append(search.fit(rows.numpy(), targets.numpy()))
    best = max(fitted, key=lambda search: search.log_marginal_likelihood_value_).kernel_
    return config.replace(
        output_scale=math.sqrt(best.k1.k1.constant_value),
        length_scale=float(best.k1.k2.length_scale),
        noise_std=math.sqrt(best.k2.noise_level),
    )


def _start_and_bounds(value: float | None, guess: float, power: int = 1) -> tuple[float, Any]:
    """Arguments of a scikit-learn kernel: a fixed value, or a guess and its range."""
    if value is not None:
        return value**power, "fixed"
    return guess**power, ((1e-3 * guess) ** power, (1e3 * guess) ** power)


def check_memory(n_labels: int, device: torch.device) -> None:
    """Raise if three n × n matrices in float64 do not fit into the device's memory."""
    if device.type == "cuda":
        available = torch.cuda.mem_get_info(device)[1]
    elif hasattr(os, "sysconf"):
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    else:
        return
    needed = 3 * 8 * n_labels**2
    if needed > available:
        raise MemoryError(
            f"an exact GP must hold three n × n matrices, {needed / 2**30:.0f} GiB for "
            f"{n_labels} labels, got {available / 2**30:.0f} GiB of memory; fit at most "
            f"{math.isqrt(available // 24)} labels (task.subset(rows)), or use sngp or dkl."
        )


def covariance(
    config: GPConfig, left: Inputs, right: Float[Tensor, "m *d"]
) -> Float[Tensor, "n m"]:
    """K: the prior covariance Cov[f(x), f(x')]."""
    if config.kernel == "prior":
        return config.prior.kernel(left, right)
    scale = config.length_scale or 1.0
    a, b = left.flatten(1) / scale, right.flatten(1) / scale
    squared = a.square().sum(1)[:, None] + b.square().sum(1)[None] - 2 * a @ b.T
    return (config.output_scale or 1.0) ** 2 * (-0.5 * squared.clamp_min(0.0)).exp()


def prior_functions(
    config: GPConfig, signature: Signature, n: int, rng: torch.Generator
) -> FunctionBatch:
    """`n` functions of the prior process, on the device of `rng`."""
    shape, n_outputs, width = signature.input_shape, signature.n_outputs, config.path_width
    if config.kernel == "prior":
        wide = config.prior.replace(widths=(width,) * len(config.prior.widths))
        return wide.sample(shape, n_outputs, n, rng).to(rng.device, torch.float64)
    like = torch.zeros((), dtype=torch.float64, device=rng.device)
    frequencies = normal((torch.Size(shape).numel(), width), rng, like)
    frequencies = frequencies / (config.length_scale or 1.0)
    phases = 2 * math.pi * torch.rand(width, generator=rng, device=rng.device).double()
    weights = normal((n, width, n_outputs), rng, like)
    amplitude = (config.output_scale or 1.0) * math.sqrt(2 / width)
    return lambda x: amplitude * (x.flatten(1) @ frequencies + phases).cos() @ weights


class GPPosterior(GaussianPosterior):
    """The closed-form posterior: exact moments, for which the number of draws does not matter.

    `config` holds the learnt hyperparameters.
    """

    def __init__(
        self, x_obs: Inputs, y_obs: Outputs, signature: Signature, config: GPConfig
    ) -> None:
        noise_std = config.noise_std or 0.0
        super().__init__(signature, x_obs.device, x_obs.dtype, noise_std)
        self.config, self.x_obs, self.y_obs = config, x_obs, y_obs
        gram = covariance(config, x_obs, x_obs)
        gram.diagonal().add_(noise_std**2)
        self.cholesky = cholesky(gram, "the covariance of the labels")
        self.alpha = torch.cholesky_solve(y_obs, self.cholesky)

    def moments(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> tuple[Outputs, Outputs]:
        return self.mean(x), self.variance(x)

    def mean(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        return covariance(self.config, self._rows(x), self.x_obs) @ self.alpha

    def variance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        chunks = self._rows(x).split(CHUNK_ROWS)
        variance = torch.cat([self._covariance(chunk).diagonal() for chunk in chunks])
        return variance.clamp_min(0.0)[:, None].expand(-1, self.n_outputs)

    def covariance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "o n n"]:
        return self._covariance(self._rows(x)).expand(self.n_outputs, -1, -1)

    @torch.no_grad()
    def sample(self, x: Any, n: int = 100, rng: Rng = None) -> Draws:
        """Exact joint draws at the rows of `x`, by the Cholesky factor of their covariance."""
        rows, generator = self._rows(x), as_generator(rng, self.device)
        if len(rows) == 0:
            return rows.new_zeros(require_draws(n), 0, self.n_outputs)
        matrix = self._covariance(rows)
        matrix.diagonal().add_(self.config.jitter * float(matrix.diagonal().max()))
        noise = normal((require_draws(n), len(rows), self.n_outputs), generator, rows)
        return self.mean(rows) + cholesky(matrix, "the covariance at the rows") @ noise

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        prior = prior_functions(self.config, self.signature, n, rng)
        noise = normal((n, *self.y_obs.shape), rng, self.y_obs) * (self.config.noise_std or 0.0)
        gap = self.y_obs + noise - prior(self.x_obs)
        correction = torch.cholesky_solve(gap.movedim(0, 1).flatten(1), self.cholesky)

        def batch(x: Inputs) -> Draws:
            shift = covariance(self.config, x, self.x_obs) @ correction
            return prior(x) + shift.reshape(len(x), n, self.n_outputs).movedim(1, 0)

        return batch

    def tensors(self) -> dict[str, Tensor]:
        """The labels; `config` holds everything else."""
        return {"x_obs": self.x_obs, "y_obs": self.y_obs}

    @classmethod
    def restore(
        cls, config: GPConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "GPPosterior":
        return cls(tensors["x_obs"].clone(), tensors["y_obs"].clone(), signature, config)

    def _covariance(self, rows: Inputs) -> Float[Tensor, "n n"]:
        cross = covariance(self.config, self.x_obs, rows)
        half = torch.linalg.solve_triangular(self.cholesky, cross, upper=False)
        return covariance(self.config, rows, rows) - half.T @ half
