"""The plain networks that priors and generators are built from."""

import copy
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from gpn.core.config import Config, require_one_of, require_sizes
from gpn.core.types import Inputs

M = TypeVar("M", bound=nn.Module)
ROWS_AT_ONCE = 1024


class Erf(nn.Module):
    """erf(x), whose infinitely wide network has the arc-sine kernel."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.erf(x)


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "erf": Erf,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def mlp(sizes: Sequence[int], activation: str, dropout: float = 0.0) -> list[nn.Module]:
    """Linear layers between `sizes`, each but the last with an activation and its dropout."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(fan_in, fan_out), *activated(activation, dropout)]
    return [*layers, nn.Linear(sizes[-2], sizes[-1])]


def activated(activation: str, dropout: float) -> list[nn.Module]:
    """What follows a hidden layer: its activation and, where there is some, its dropout."""
    return [ACTIVATIONS[activation](), *([nn.Dropout(dropout)] if dropout > 0 else [])]


def conv_stack(
    input_shape: tuple[int, ...],
    channels: Sequence[int],
    activation: str,
    halve_by: str = "stride",
) -> list[nn.Module]:
    """3×3 convolutions, each with its activation and half as large an image, then flat features."""
    stride = 2 if halve_by == "stride" else 1
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise((input_shape[0], *channels)):
        layers += [nn.Conv2d(fan_in, fan_out, 3, stride, padding=1), ACTIVATIONS[activation]()]
        layers += [nn.MaxPool2d(2, ceil_mode=True)] if halve_by == "max" else []
    return [*layers, nn.Flatten()]


def conv_features(input_shape: tuple[int, ...], channels: Sequence[int]) -> int:
    """How many features `conv_stack` leaves."""
    if len(input_shape) != 3:
        raise ValueError(
            "a convolutional network needs images, rows of shape (channels, height, width), "
            f"got {input_shape}; use an MLP for tables."
        )
    _, height, width = input_shape
    shrink = 2 ** len(channels)
    return channels[-1] * math.ceil(height / shrink) * math.ceil(width / shrink)


def fresh(make: Callable[[], list[nn.Module]], rng: torch.Generator) -> nn.Sequential:
    """The layers that `make` lists, with parameters drawn from `rng` and from nothing else.

    Building on the meta device keeps torch's own initialisation off the global random state.
    """
    with torch.device("meta"):
        module = nn.Sequential(*make())
    return initialise(module, rng)


def initialise(module: M, rng: torch.Generator) -> M:
    """A meta module made real: weights and biases ~ U[−1, 1] / √fan-in, as torch does."""
    module.to_empty(device="cpu")
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = layer.weight[0].numel() ** -0.5
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=rng)
    return module


class Trunk(Config, ABC):
    """What stands under a generator: features of x, then hidden layers of `widths`.

    In training, `dropout` is the share of hidden units that a step leaves out.
    """

    widths: tuple[int, ...]
    activation: str
    dropout: float

    @abstractmethod
    def features(self, input_shape: tuple[int, ...], rng: torch.Generator) -> tuple[nn.Module, int]:
        """A module from inputs to features ``(n, h)``, and h."""


@dataclass(frozen=True, kw_only=True)
class MLPTrunk(Trunk):
    """Hidden layers on x itself, with random waves of x or ramps of each number beside it.

    The `fourier` waves cos(w·x + c) let a small network follow a rough prior; their frequencies
    |w| spread evenly on a log scale over `fourier_range`. None stands for (0.5, 10), or in a GPN
    with spectral codes for frequencies up to those of the prior's own axes. `ramps` cuts the range
    of every number at that many quantiles, as trees would; a GPN takes them from its pool.
    """

    widths: tuple[int, ...] = (256, 256, 256)
    activation: str = "silu"
    dropout: float = 0.0
    fourier: int = 0
    fourier_range: tuple[float, float] | None = None
    ramps: int = 0

    def __post_init__(self) -> None:
        check_trunk(self)
        if min(self.fourier, self.ramps) < 0:
            raise ValueError(
                "fourier and ramps must not be negative, got "
                f"fourier={self.fourier} and ramps={self.ramps}; 0 is without."
            )
        if min(self.fourier, self.ramps) > 0:
            raise ValueError(
                f"a trunk has waves or ramps, got fourier={self.fourier} and ramps={self.ramps}; "
                "set one of them to 0."
            )

    def features(self, input_shape: tuple[int, ...], rng: torch.Generator) -> tuple[nn.Module, int]:
        dim = torch.Size(input_shape).numel()
        if self.ramps > 0:
            return Ramps(dim, self.ramps), dim * (1 + self.ramps)
        if self.fourier == 0:
            return nn.Flatten(), dim
        scales = self.fourier_range or (0.5, 10.0)
        return Waves(dim, self.fourier, scales, rng), dim + self.fourier


@dataclass(frozen=True, kw_only=True)
class ConvTrunk(Trunk):
    """Convolutions (3×3), then hidden linear layers: the paper's image networks.

    Each convolution halves the image: by its own "stride" of 2, or by the "max" of 2×2 pixels
    after it, which sees four times as much and costs that, too.
    """

    channels: tuple[int, ...] = (32, 64)
    widths: tuple[int, ...] = (512, 512, 512)
    activation: str = "relu"
    dropout: float = 0.0
    halve_by: str = "stride"

    def __post_init__(self) -> None:
        check_trunk(self)
        require_one_of(self, "halve_by", ("stride", "max"))
        if not self.channels:
            raise ValueError("channels must name at least one convolution, got ().")
        require_sizes(self.channels)

    def features(self, input_shape: tuple[int, ...], rng: torch.Generator) -> tuple[nn.Module, int]:
        size = conv_features(input_shape, self.channels)
        layers = partial(conv_stack, input_shape, self.channels, self.activation, self.halve_by)
        return fresh(layers, rng), size


@dataclass(frozen=True, kw_only=True)
class ModuleTrunk(Trunk):
    """Your own module from x to features ``(n, h)``, then hidden layers of `widths`.

    A copy of the module is trained together with the rest, or used as it is if `frozen`: in eval
    mode, and in a GPN once for every row before training begins. None freezes a module of which
    no parameter asks for a gradient.
    """

    module: nn.Module
    widths: tuple[int, ...] = (256,)
    activation: str = "silu"
    dropout: float = 0.0
    frozen: bool | None = None

    def __post_init__(self) -> None:
        check_trunk(self)

    @property
    def is_frozen(self) -> bool:
        asked = [parameter.requires_grad for parameter in self.module.parameters()]
        return bool(asked) and not any(asked) if self.frozen is None else self.frozen

    def features(self, input_shape: tuple[int, ...], rng: torch.Generator) -> tuple[nn.Module, int]:
        module = copy.deepcopy(self.module).cpu().float()
        with torch.no_grad():
            shape = tuple(module.eval()(torch.zeros(2, *input_shape)).shape)
        if len(shape) != 2 or shape[0] != 2:
            raise ValueError(
                f"the trunk's module must map 2 inputs to features of shape (2, h), got {shape}; "
                "end it with nn.Flatten()."
            )
        return Frozen(module, shape[1]) if self.is_frozen else module.train(), shape[1]


class Frozen(nn.Module):
    """(φ(x) − shift) / scale of a module φ that nothing changes: neither gradients nor `train()`.

    `fit` brings each feature to mean 0 and standard deviation 1, as priors expect their inputs.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, module: nn.Module, size: int) -> None:
        super().__init__()
        self.module = module.requires_grad_(False)  # noqa: FBT003
        self.register_buffer("shift", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.train()

    def train(self, mode: bool = True) -> "Frozen":  # noqa: FBT001
        """Stay in eval mode: dropout is off, and batch norm keeps the statistics that it has."""
        return super().train(False)  # noqa: FBT003

    @torch.no_grad()
    def fit(self, x: Inputs) -> Tensor:
        """Take the scale of these rows, and give their features, computed some rows at a time.

        A feature that never changes becomes 0.
        """
        features = torch.cat([self.module(part) for part in x.split(ROWS_AT_ONCE)])
        spread = features.std(0, correction=0)
        self.shift.copy_(features.mean(0))
        self.scale.copy_(torch.where(spread > 1e-6 * features.abs().amax(0), spread, 1.0))
        return (features - self.shift) / self.scale

    @torch.no_grad()
    def forward(self, x: Inputs) -> Tensor:
        return (self.module(x) - self.shift) / self.scale


class Waves(nn.Module):
    """x with `count` random waves cos(w·x + c) beside it."""

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


class Ramps(nn.Module):
    """x with piecewise linear codes of each number beside it (Gorishniy et al. 2022).

    Ramp b rises from −1 to 1 between quantiles b and b + 1 of its number; before `fit` those are
    the quantiles of a standard normal law.
    """

    starts: Tensor
    widths: Tensor

    def __init__(self, dim: int, count: int) -> None:
        super().__init__()
        inner = torch.linspace(0, 1, count + 1)[1:-1]
        cuts = torch.cat([torch.tensor([-3.0]), torch.special.ndtri(inner), torch.tensor([3.0])])
        self.register_buffer("starts", cuts[:-1].expand(dim, -1).clone())
        self.register_buffer("widths", cuts.diff().expand(dim, -1).clone())

    def fit(self, x: Inputs) -> None:
        """Cut each number at its quantiles among the rows; equal cuts become a step."""
        levels = torch.linspace(0, 1, self.starts.shape[1] + 1, dtype=torch.float64)
        cuts = torch.from_numpy(np.quantile(x.flatten(1).double().cpu().numpy(), levels, axis=0)).T
        self.starts.copy_(cuts[:, :-1])
        self.widths.copy_(cuts.diff().clamp_min(1e-6))

    def forward(self, x: Inputs) -> Tensor:
        flat = x.flatten(1)
        ramps = ((flat[:, :, None] - self.starts) / self.widths).clamp(0.0, 1.0)
        return torch.cat([flat, (2 * ramps - 1).flatten(1)], dim=1)


def fit_features(features: nn.Module, rows: Callable[[], Inputs]) -> None:
    """Let features that depend on the data, if these are such, see some rows."""
    if isinstance(features, Ramps):
        features.fit(rows())


def refuse_extras(trunk: Trunk, who: str) -> None:
    """Raise where a trunk asks for dropout, or for ramps, that `who` would not apply."""
    if isinstance(trunk, MLPTrunk) and trunk.ramps > 0:
        raise ValueError(f"{who} needs a trunk without ramps, got ramps={trunk.ramps}; use 0.")
    if trunk.dropout > 0:
        raise ValueError(
            f"{who} needs a trunk without dropout, got dropout={trunk.dropout}; use 0."
        )


def check_trunk(trunk: Trunk) -> None:
    require_one_of(trunk, "activation", tuple(ACTIVATIONS))
    if not trunk.widths:
        raise ValueError("widths must name at least one hidden layer, got ().")
    require_sizes(trunk.widths)
    if not 0 <= trunk.dropout < 1:
        raise ValueError(f"dropout must lie in [0, 1), got {trunk.dropout}; 0 is without.")
