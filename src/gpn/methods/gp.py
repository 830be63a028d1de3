"""Exact Gaussian processes: the truth where labels are few, with the prior's own kernel or an RBF.

With kernel K and noise σ_ε the posterior at rows x is N(μ, Σ) with

    μ = K_xo (K_oo + σ_ε² I)⁻¹ y,       Σ = K_xx − K_xo (K_oo + σ_ε² I)⁻¹ K_ox

`kernel="prior"` is the process that an infinitely wide prior network is; `kernel="rbf"` is
τ² exp(−‖x − x'‖² / (2 ℓ²)). What is None (ℓ, τ, σ_ε) is learnt by marginal likelihood.

Single functions are drawn by Matheron's rule (Wilson et al. 2020): a prior function f, here a very
wide network or many random waves, is corrected by K_xo (K_oo + σ_ε² I)⁻¹ (y + η − f(x_o)) with
η ~ N(0, σ_ε²).
"""

import itertools
import math
import os
import warnings
from abc import ABC, abstractmethod
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

Square = Float[Tensor, "n n"]


@dataclass(frozen=True, kw_only=True)
class GPConfig(Config):
    """The kernel, the noise of the labels, and the width of drawn functions.

    kernel
        "prior": the covariance of `prior`, infinitely wide. "rbf": see `length_scale` (ℓ) and
        `output_scale` (τ).
    noise_std, length_scale, output_scale
        None learns each by marginal likelihood; the last two matter for "rbf" alone.
    path_width
        Hidden units, or waves, of the prior functions under Matheron's rule.
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
    """The method: exact regression in float64, cubic in the number of labels."""

    def __init__(self, config: GPConfig | None = None) -> None:
        self.config = GPConfig() if config is None else config

    def fit(self, task: Task, rng: Rng = None, *, progress: bool | None = None) -> "GPPosterior":
        """Learn what is None, then factor K_oo + σ_ε² I; nothing here is random."""
        if task.is_classification:
            raise TypeError("an exact GP needs a regression task, got integer y (classes).")
        check_memory(len(task.x_obs), task.x_obs.device)
        moved = task.to(task.x_obs.device, torch.float64)
        config = learnt(self.config, moved.x_obs, moved.y_obs)
        return GPPosterior(moved.x_obs, moved.y_obs, task.signature, config)


def learnt(config: GPConfig, x: Inputs, y: Outputs) -> GPConfig:
    """`config` with every None filled in by marginal likelihood."""
    if config.kernel == "rbf" and None in _rbf_settings(config):
        return config.replace(**_fit_rbf(config, x, y))
    if config.noise_std is None:
        return config.replace(noise_std=gram_noise_std(_kernel(config)(x, x), y))
    return config


def _rbf_settings(config: GPConfig) -> tuple[float | None, float | None, float | None]:
    return config.output_scale, config.length_scale, config.noise_std


def _fit_rbf(config: GPConfig, x: Inputs, y: Outputs) -> dict[str, float]:
    """ℓ, τ and σ_ε by scikit-learn's marginal likelihood; the given ones stay as they are."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF as RandomFourierFeatures
    from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel

    output_scale, length_scale, noise_std = _rbf_settings(config)
    rows, targets = x.flatten(1).cpu(), y.cpu()
    size, far = float(targets.square().mean().sqrt()) or 1.0, _typical_distance(rows)
    searches = []
    for shrink, noise in itertools.product((1.0, 0.3), (0.1, 0.5)):  # the evidence has many hills
        kernel = ConstantKernel(*_around(output_scale, size, power=2)) * RandomFourierFeatures(
            *_around(length_scale, shrink * far)
        ) + WhiteKernel(*_around(noise_std, noise * size, power=2))
        searches.append(GaussianProcessRegressor(kernel, alpha=1e-10))
    with warnings.catch_warnings():
        # a hyper-parameter at the end of its range is an answer, not a failure
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = [search.fit(rows.numpy(), targets.numpy()) for search in searches]
    found = max(fitted, key=lambda search: search.log_marginal_likelihood_value_).kernel_
    return {
        "output_scale": math.sqrt(found.k1.k1.constant_value),
        "length_scale": float(found.k1.k2.length_scale),
        "noise_std": math.sqrt(found.k2.noise_level),
    }


def _around(given: float | None, guess: float, power: int = 1) -> tuple[float, Any]:
    """A start and bounds for scikit-learn: the given value held fixed, or a guess and its range."""
    if given is not None:
        return given**power, "fixed"
    return guess**power, ((1e-3 * guess) ** power, (1e3 * guess) ** power)


def _typical_distance(rows: Float[Tensor, "n d"]) -> float:
    """The median distance between labels (of the first thousand)."""
    distances = torch.pdist(rows[:1000])
    return float(distances.median()) or 1.0 if len(distances) else 1.0


def check_memory(n_labels: int, device: torch.device) -> None:
    """Raise if three n × n matrices in float64 cannot fit the device's memory."""
    if device.type == "cuda":
        there = torch.cuda.mem_get_info(device)[1]
    elif hasattr(os, "sysconf"):
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    else:
        return
    needed = 3 * 8 * n_labels**2
    if needed > there:
        raise MemoryError(
            f"an exact GP must hold three n × n matrices, {needed / 2**30:.0f} GiB for "
            f"{n_labels} labels, got {there / 2**30:.0f} GiB of memory; fit at most "
            f"{math.isqrt(there // 24)} labels (task.subset(rows)), or use sngp or dkl."
        )


class Kernel(ABC):
    """A covariance, and functions that have it."""

    @abstractmethod
    def __call__(self, left: Inputs, right: Float[Tensor, "m *d"]) -> Float[Tensor, "n m"]:
        """Cov[f(x), f(x')]."""

    @abstractmethod
    def paths(self, signature: Signature, n: int, rng: torch.Generator) -> FunctionBatch:
        """`n` functions of the prior process, on the device of `rng`."""


@dataclass(frozen=True)
class PriorKernel(Kernel):
    """The kernel of an infinitely wide network; its functions are very wide networks."""

    prior: MLPPrior
    path_width: int

    def __call__(self, left: Inputs, right: Float[Tensor, "m *d"]) -> Float[Tensor, "n m"]:
        return self.prior.kernel(left, right)

    def paths(self, signature: Signature, n: int, rng: torch.Generator) -> FunctionBatch:
        wide = self.prior.replace(widths=(self.path_width,) * len(self.prior.widths))
        path = wide.sample(signature.input_shape, signature.n_outputs, n, rng)
        return path.to(rng.device, torch.float64)


@dataclass(frozen=True)
class RBF(Kernel):
    """τ² exp(−‖x − x'‖² / (2 ℓ²)); its functions are sums of random waves (Rahimi and Recht)."""

    output_scale: float
    length_scale: float
    n_waves: int

    def __call__(self, left: Inputs, right: Float[Tensor, "m *d"]) -> Float[Tensor, "n m"]:
        a, b = left.flatten(1) / self.length_scale, right.flatten(1) / self.length_scale
        squared = a.square().sum(1)[:, None] + b.square().sum(1)[None] - 2 * a @ b.T
        return self.output_scale**2 * (-0.5 * squared.clamp_min(0.0)).exp()

    def paths(self, signature: Signature, n: int, rng: torch.Generator) -> FunctionBatch:
        like = torch.zeros((), dtype=torch.float64, device=rng.device)
        dim = torch.Size(signature.input_shape).numel()
        frequencies = normal((dim, self.n_waves), rng, like) / self.length_scale
        phases = 2 * math.pi * torch.rand(self.n_waves, generator=rng, device=rng.device).double()
        weights = normal((n, self.n_waves, signature.n_outputs), rng, like)
        amplitude = self.output_scale * math.sqrt(2 / self.n_waves)

        def waves(x: Inputs) -> Draws:
            return amplitude * (x.flatten(1) @ frequencies + phases).cos() @ weights

        return waves


def _kernel(config: GPConfig) -> Kernel:
    if config.kernel == "prior":
        return PriorKernel(config.prior, config.path_width)
    return RBF(config.output_scale or 1.0, config.length_scale or 1.0, config.path_width)


class GPPosterior(GaussianPosterior):
    """The closed-form posterior; its moments are exact, whatever number of draws is asked for.

    `config` holds the learnt values where the fit was given None.
    """

    def __init__(
        self, x_obs: Inputs, y_obs: Outputs, signature: Signature, config: GPConfig
    ) -> None:
        noise_std = config.noise_std or 0.0
        super().__init__(signature, x_obs.device, x_obs.dtype, noise_std)
        self.config, self.kernel = config, _kernel(config)
        self.x_obs, self.y_obs = x_obs, y_obs
        gram = self.kernel(x_obs, x_obs)
        gram.diagonal().add_(noise_std**2)
        self.cholesky = cholesky(gram, "the covariance of the labels")
        self.alpha = torch.cholesky_solve(y_obs, self.cholesky)

    def moments(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> tuple[Outputs, Outputs]:
        return self.mean(x), self.variance(x)

    def mean(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        return self.kernel(self._rows(x), self.x_obs) @ self.alpha

    def variance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        parts = [self._matrix(part).diagonal() for part in self._rows(x).split(512)]
        return torch.cat(parts).clamp_min(0.0)[:, None].expand(-1, self.n_outputs)

    def covariance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "o n n"]:
        return self._matrix(self._rows(x)).expand(self.n_outputs, -1, -1)

    @torch.no_grad()
    def sample(self, x: Any, n: int = 100, rng: Rng = None) -> Draws:
        """Exact joint draws at the rows of `x`, by a Cholesky factor of their covariance."""
        rows, generator = self._rows(x), as_generator(rng, self.device)
        if len(rows) == 0:
            return rows.new_zeros(require_draws(n), 0, self.n_outputs)
        matrix = self._matrix(rows)
        matrix.diagonal().add_(self.config.jitter * float(matrix.diagonal().max()))
        noise = normal((require_draws(n), len(rows), self.n_outputs), generator, rows)
        return self.mean(rows) + cholesky(matrix, "the covariance at the rows") @ noise

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        path = self.kernel.paths(self.signature, n, rng)
        noise = normal((n, *self.y_obs.shape), rng, self.y_obs) * (self.config.noise_std or 0.0)
        gap = self.y_obs + noise - path(self.x_obs)
        correction = torch.cholesky_solve(gap.movedim(0, 1).flatten(1), self.cholesky)

        def batch(x: Inputs) -> Draws:
            shift = self.kernel(x, self.x_obs) @ correction
            return path(x) + shift.reshape(len(x), n, self.n_outputs).movedim(1, 0)

        return batch

    def tensors(self) -> dict[str, Tensor]:
        """The labels; the factor follows from them, and what was learnt is in `config`."""
        return {"x_obs": self.x_obs, "y_obs": self.y_obs}

    @classmethod
    def restore(
        cls, config: GPConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "GPPosterior":
        """The posterior whose `config` and `tensors()` these are."""
        return cls(tensors["x_obs"].clone(), tensors["y_obs"].clone(), signature, config)

    def _matrix(self, rows: Inputs) -> Square:
        cross = self.kernel(self.x_obs, rows)
        half = torch.linalg.solve_triangular(self.cholesky, cross, upper=False)
        return self.kernel(rows, rows) - half.T @ half
