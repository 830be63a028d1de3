"""What a GPN believes at some points, as BoTorch wants it: draws from base samples z."""

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
    """g(x, z) at ``b × q`` points for m outputs, z ~ N(0, I), with or without noise on top.

    Base samples are z, followed by one number per point and output where there is noise: shape
    ``b × (code_dim [+ q·m])``. A z is a function: the same at all points and in all batches, and
    `rsample` draws one for the whole batch.
    """

    def __init__(self, shape: Size, code_dim: int, like: Tensor, noise: Tensor | None) -> None:
        self.shape = shape  # b × q × m
        self.code_dim = code_dim
        self.noise_variance = noise
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
        one = Size([1] * len(self.batch_shape) + [self.code_dim])
        values = self.functions(torch.randn(draws + one, **like))
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

    def _scalar_noise(self, weights: Tensor) -> Tensor | None:
        noise = self.noise_variance
        return None if noise is None else (noise * weights.square()).sum(-1, keepdim=True)


class AffineCodePosterior(CodePosterior):
    """Of an affine generator: b(x) + A(x) z, a Gaussian with its moments in closed form."""

    def __init__(self, centre: Tensor, slopes: Tensor, noise: Tensor | None) -> None:
        super().__init__(centre.shape, slopes.shape[-1], centre, noise)
        self.centre = centre  # b × q × m
        self.slopes = slopes  # b × q × m × code_dim

    @property
    def mean(self) -> Tensor:
        return self.centre

    @property
    def variance(self) -> Tensor:
        own = self.slopes.square().sum(-1)
        return own if self.noise_variance is None else own + self.noise_variance

    @property
    def distribution(self) -> MultivariateNormal:
        """The joint law of all points and outputs, for transforms that work on moments."""
        flat = self.slopes.flatten(-3, -2)
        covariance = flat @ flat.mT
        if self.noise_variance is not None:
            noise = self.noise_variance.expand(self.shape).flatten(-2)
            covariance = covariance + torch.diag_embed(noise)
        lazy = to_linear_operator(covariance)  # factored with care, if at all: its rank may be low
        if self.shape[-1] == 1:
            return MultivariateNormal(self.centre[..., 0], lazy)
        return MultitaskMultivariateNormal(self.centre, lazy)

    def functions(self, codes: Tensor) -> Tensor:
        samples = codes.shape[: codes.ndim - 1 - len(self.batch_shape)]
        for axis in range(len(samples), codes.ndim - 1):  # a sampler expands one z over the batch
            codes = codes.narrow(axis, 0, 1) if codes.stride(axis) == 0 else codes
        if codes.shape[len(samples) : -1].numel() == 1:
            moved = codes.reshape(-1, self.code_dim) @ self.slopes.flatten(0, -2).mT
        else:
            own = codes.expand(samples + self.batch_shape + Size([-1]))
            own = own.reshape(-1, self.batch_shape.numel(), self.code_dim)
            slopes = self.slopes.reshape(own.shape[1], -1, self.code_dim)
            moved = torch.einsum("sbc,bkc->sbk", own, slopes)
        return self.centre + moved.reshape(samples + self.shape)

    def scalarized(self, weights: Tensor, offset: float) -> "AffineCodePosterior":
        slopes = torch.einsum("...mc,m->...c", self.slopes, weights)[..., None, :]
        centre = (offset + self.centre @ weights)[..., None]
        return AffineCodePosterior(centre, slopes, self._scalar_noise(weights))


class ConcatCodePosterior(CodePosterior):
    """Of the paper's generator, or any other: moments over a fixed set of codes."""

    def __init__(
        self,
        generator: Generator,
        points: Tensor,
        weights: Tensor,
        offset: Tensor,
        noise: Tensor | None,
    ) -> None:
        shape = points.shape[:-1] + offset.shape
        super().__init__(shape, generator.code_dim, offset, noise)
        self.generator, self.points = generator, points
        self.weights, self.offset = weights, offset

    def functions(self, codes: Tensor) -> Tensor:
        samples = codes.shape[: codes.ndim - 1 - len(self.batch_shape)]
        rows = self.points.expand(samples + self.points.shape)
        own = codes[..., None, :].expand(*rows.shape[:-1], -1).to(rows)
        values = self.generator.paired(rows.flatten(0, -2), own.flatten(0, -2))
        return values.reshape(*rows.shape[:-1], -1).to(self.offset) @ self.weights + self.offset

    @cached_property
    def _draws(self) -> Tensor:
        one = (MOMENT_CODES, *[1] * len(self.batch_shape), self.code_dim)
        return self.functions(normal(one, as_generator(0, self.device), self.offset))

    @property
    def mean(self) -> Tensor:
        return self._draws.mean(0)

    @property
    def variance(self) -> Tensor:
        own = self._draws.var(0)
        return own if self.noise_variance is None else own + self.noise_variance

    def scalarized(self, weights: Tensor, offset: float) -> "ConcatCodePosterior":
        linear = (self.weights @ weights)[:, None], (offset + self.offset @ weights)[None]
        noise = self._scalar_noise(weights)
        return ConcatCodePosterior(self.generator, self.points, *linear, noise)


def _sampler(posterior: CodePosterior, sample_shape: Size, *, seed: int | None = None) -> MCSampler:
    """Quasi-random z as long as there are Sobol sequences of their dimension."""
    few = posterior.base_sample_shape[-1] <= SobolEngine.MAXDIM
    return (SobolQMCNormalSampler if few else IIDNormalSampler)(sample_shape, seed=seed)


for kind in (AffineCodePosterior, ConcatCodePosterior):
    GetSampler.register(kind)(_sampler)
