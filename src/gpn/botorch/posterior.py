"""The posterior of a GPN at given points, for BoTorch: draws from base samples z."""

from abc import abstractmethod
from functools import cached_property
from typing import Any

import torch
from botorch.posteriors.posterior import Posterior
from botorch.sampling.base import MCSampler
from botorch.sampling.get_sampler import GetSampler
from botorch.sampling.normal import IIDNormalSampler, SobolQMCNormalSampler
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator import to_linear_operator
from torch import Size, Tensor
from torch.quasirandom import SobolEngine

from gpn.core.types import as_generator, normal
from gpn.methods.gpn.model.generator import Generator

MOMENT_CODES = 256


class CodePosterior(Posterior):
    """g(x, z) at ``b × q`` points for m outputs, z ~ N(0, I), with or without label noise.

    Base samples are z, followed by one number per point and output where there is noise: shape
    ``b × (code_dim [+ q·m])``. A z is one function, the same at all points and in all batches;
    `rsample` draws one z for the whole batch.
    """

    def __init__(
        self, shape: Size, code_dim: int, like: Tensor, noise_variance: Tensor | None
    ) -> None:
        self.shape = shape  # b × q × m
        self.code_dim = code_dim
        self.noise_variance = noise_variance
        self._like = like

    @abstractmethod
    def functions(self, codes: Tensor) -> Tensor:
        """The functions of codes ``... × b × code_dim`` at the points: ``... × b × q × m``."""

    @abstractmethod
    def scalarized(self, weights: Tensor, offset: float) -> "CodePosterior":
        """offset + Σ_m weights_m · output_m, for the same z."""

    @property
    def device(self) -> torch.device:
        return self._like.device

    @property
    def dtype(self) -> torch.dtype:
        return self._like.dtype

    @property
    def batch_shape(self) -> Size:
        return self.shape[:-2]

    @property
    def event_shape(self) -> Size:
        return self.shape[-2:]

    @property
    def base_sample_shape(self) -> Size:
        noise = 0 if self.noise_variance is None else self.event_shape.numel()
        return self.batch_shape + Size([self.code_dim + noise])

    @property
    def batch_range(self) -> tuple[int, int]:
        return (0, -1)

    def _extended_shape(self, sample_shape: Size = Size()) -> Size:  # noqa: B008
        return sample_shape + self.shape

    def rsample(self, sample_shape: Size | None = None) -> Tensor:
        draws = Size([1]) if sample_shape is None else sample_shape
        like: dict[str, Any] = {"device": self.device, "dtype": self.dtype}
        one_code = Size([1] * len(self.batch_shape) + [self.code_dim])
        values = self.functions(torch.randn(draws + one_code, **like))
        return self._noisy(values, torch.randn(values.shape, **like))

    def rsample_from_base_samples(self, sample_shape: Size, base_samples: Tensor) -> Tensor:
        wanted = sample_shape + self.base_sample_shape
        if base_samples.shape != wanted:
            raise ValueError(
                "base samples must have the shape sample_shape × base_sample_shape, "
                f"{tuple(wanted)}, got {tuple(base_samples.shape)}."
            )
        values = self.functions(base_samples[..., : self.code_dim])
        return self._noisy(values, base_samples[..., self.code_dim :])

    def _noisy(self, values: Tensor, standard: Tensor) -> Tensor:
        if self.noise_variance is None:
            return values
        return values + self.noise_variance.sqrt() * standard.reshape(values.shape)

    def _with_noise(self, variance: Tensor) -> Tensor:
        return variance if self.noise_variance is None else variance + self.noise_variance

    def _scalar_noise(self, weights: Tensor) -> Tensor | None:
        noise = self.noise_variance
        return None if noise is None else (noise * weights.square()).sum(-1, keepdim=True)


class AffineCodePosterior(CodePosterior):
    """An affine generator's b(x) + A(x) z: a Gaussian with moments in closed form."""

    def __init__(self, mean: Tensor, loadings: Tensor, noise_variance: Tensor | None) -> None:
        super().__init__(mean.shape, loadings.shape[-1], mean, noise_variance)
        self.loadings = loadings  # b × q × m × code_dim

    @property
    def mean(self) -> Tensor:
        return self._like

    @property
    def variance(self) -> Tensor:
        return self._with_noise(self.loadings.square().sum(-1))

    @property
    def distribution(self) -> MultivariateNormal:
        """The joint distribution of points and outputs, for transforms that work on moments."""
        flat = self.loadings.flatten(-3, -2)
        covariance = flat @ flat.mT
        if self.noise_variance is not None:
            noise = self.noise_variance.expand(self.shape).flatten(-2)
            covariance = covariance + torch.diag_embed(noise)
        lazy = to_linear_operator(covariance)  # not factored here: its rank may be low
        if self.shape[-1] == 1:
            return MultivariateNormal(self.mean[..., 0], lazy)
        return MultitaskMultivariateNormal(self.mean, lazy)

    def functions(self, codes: Tensor) -> Tensor:
        samples = codes.shape[: codes.ndim - 1 - len(self.batch_shape)]
        for axis in range(len(samples), codes.ndim - 1):  # a sampler expands one z over the batch
            codes = codes.narrow(axis, 0, 1) if codes.stride(axis) == 0 else codes
        if codes.shape[len(samples) : -1].numel() == 1:
            deviations = codes.reshape(-1, self.code_dim) @ self.loadings.flatten(0, -2).mT
        else:
            n_batches = self.batch_shape.numel()
            codes = codes.expand(samples + self.batch_shape + Size([-1]))
            codes = codes.reshape(-1, n_batches, self.code_dim)
            loadings = self.loadings.reshape(n_batches, -1, self.code_dim)
            deviations = torch.einsum("sbc,bkc->sbk", codes, loadings)
        return self.mean + deviations.reshape(samples + self.shape)

    def scalarized(self, weights: Tensor, offset: float) -> "AffineCodePosterior":
        mean = (offset + self.mean @ weights)[..., None]
        loadings = torch.einsum("...mc,m->...c", self.loadings, weights)[..., None, :]
        return AffineCodePosterior(mean, loadings, self._scalar_noise(weights))


class ConcatCodePosterior(CodePosterior):
    """Of the paper's generator, or any other: moments over a fixed set of codes."""

    def __init__(
        self,
        generator: Generator,
        points: Tensor,
        weights: Tensor,
        offset: Tensor,
        noise_variance: Tensor | None,
    ) -> None:
        shape = points.shape[:-1] + offset.shape
        super().__init__(shape, generator.code_dim, offset, noise_variance)
        self.generator, self.points = generator, points
        self.weights, self.offset = weights, offset

    def functions(self, codes: Tensor) -> Tensor:
        samples = codes.shape[: codes.ndim - 1 - len(self.batch_shape)]
        rows = self.points.expand(samples + self.points.shape)
        codes = codes[..., None, :].expand(*rows.shape[:-1], -1).to(rows)
        values = self.generator.paired(rows.flatten(0, -2), codes.flatten(0, -2))
        return values.reshape(*rows.shape[:-1], -1).to(self.offset) @ self.weights + self.offset

    @cached_property
    def _draws(self) -> Tensor:
        shape = (MOMENT_CODES, *[1] * len(self.batch_shape), self.code_dim)
        return self.functions(normal(shape, as_generator(0, self.device), self.offset))

    @property
    def mean(self) -> Tensor:
        return self._draws.mean(0)

    @property
    def variance(self) -> Tensor:
        return self._with_noise(self._draws.var(0))

    def scalarized(self, weights: Tensor, offset: float) -> "ConcatCodePosterior":
        linear = (self.weights @ weights)[:, None], (offset + self.offset @ weights)[None]
        noise = self._scalar_noise(weights)
        return ConcatCodePosterior(self.generator, self.points, *linear, noise)


def _sampler(posterior: CodePosterior, sample_shape: Size, *, seed: int | None = None) -> MCSampler:
    """Quasi-random z, where Sobol sequences of that dimension exist."""
    few = posterior.base_sample_shape[-1] <= SobolEngine.MAXDIM
    return (SobolQMCNormalSampler if few else IIDNormalSampler)(sample_shape, seed=seed)


for kind in (AffineCodePosterior, ConcatCodePosterior):
    GetSampler.register(kind)(_sampler)
