"""Encodings of x that a network sees in addition to x."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from gpn.core.types import Inputs


class FittedEncoding(nn.Module, ABC):
    """An encoding that depends on data, and is not trained."""

    @abstractmethod
    def fit(self, x: Inputs) -> None:
        """Find what it needs from rows."""


class Divided(nn.Module):
    """Columns divided by their scales."""

    scales: Tensor

    def __init__(self, scales: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("scales", torch.tensor(scales, dtype=torch.float64), persistent=False)

    def forward(self, x: Inputs) -> Tensor:
        return x.flatten(1) / self.scales.to(x)


class RandomFourierFeatures(nn.Module):
    """[x, cos(xW + c)]: x and `count` random cosines, with frequencies |w| between `scales`."""

    frequencies: Tensor
    phases: Tensor

    def __init__(
        self, dim: int, count: int, scales: tuple[float, float], rng: torch.Generator
    ) -> None:
        super().__init__()
        low, high = scales
        scale = low * (high / low) ** torch.rand(count, generator=rng)
        directions = torch.randn(dim, count, generator=rng) / dim**0.5
        self.register_buffer("frequencies", scale * directions)
        self.register_buffer("phases", 2 * math.pi * torch.rand(count, generator=rng))

    def forward(self, x: Inputs) -> Tensor:
        flat = x.flatten(1)
        return torch.cat([flat, (flat @ self.frequencies + self.phases).cos()], dim=1)


class PiecewiseLinearEncoding(FittedEncoding):
    """x and `count` ramps of each of its numbers (Gorishniy et al. 2022).

    Ramp b rises from −1 to 1 between quantiles b and b + 1 of its column; before `fit` these are
    the quantiles of N(0, 1).
    """

    starts: Tensor
    widths: Tensor
    low: Tensor

    def __init__(self, dim: int, count: int) -> None:
        super().__init__()
        inner = torch.linspace(0, 1, count + 1)[1:-1]
        cuts = torch.cat([torch.tensor([-3.0]), torch.special.ndtri(inner), torch.tensor([3.0])])
        self.register_buffer("starts", cuts[:-1].expand(dim, -1).clone())
        self.register_buffer("widths", cuts.diff().expand(dim, -1).clone())
        self.register_buffer("low", torch.tensor(-1.0), persistent=False)

    def fit(self, x: Inputs) -> None:
        """Cut each column at its quantiles in `x`; equal cuts become a step."""
        levels = torch.linspace(0, 1, self.starts.shape[1] + 1, dtype=torch.float64)
        cuts = torch.from_numpy(np.quantile(x.flatten(1).double().cpu().numpy(), levels, axis=0)).T
        self.starts.copy_(cuts[:, :-1])
        self.widths.copy_(cuts.diff().clamp_min(1e-6))

    def forward(self, x: Inputs) -> Tensor:
        flat = x.flatten(1)
        rise = torch.addcdiv(self.low, flat[:, :, None] - self.starts, self.widths, value=2)
        return torch.cat([flat, rise.clamp(-1.0, 1.0).flatten(1)], dim=1)


def fit_features(features: nn.Module, rows: Callable[[], Inputs]) -> None:
    """Fit encodings that depend on data to `rows()`; other features need no rows."""
    for module in features.modules():
        if isinstance(module, FittedEncoding):
            module.fit(rows())
