"""The plain networks that priors and generators are built from."""

import copy
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from gpn.core.config import Config, require_one_of, require_sizes
from gpn.core.input_features import Frozen, Ramps, Waves

M = TypeVar("M", bound=nn.Module)


class Erf(nn.Module):
    """erf(x), whose infinitely wide network has the arc-sine kernel."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.erf(x)


class Dropout(nn.Dropout):
    """torch's own; on a CPU, where that draws a number for each unit, one number decides for four.

    The share of units left out is rounded to 2⁻¹⁶ there.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        if x.device.type != "cpu":
            return super().forward(x)
        left_out = min(round(self.p * 2**16), 2**16 - 1)
        drawn = torch.randint(-(2**63), 2**63 - 1, (-(-x.numel() // 4),)).view(torch.int16)
        kept = drawn[: x.numel()].view(x.shape) >= left_out - 2**15
        return x * kept.to(x.dtype).mul_(1 / (1 - left_out * 2**-16))


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
    return [ACTIVATIONS[activation](), *([Dropout(dropout)] if dropout > 0 else [])]


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
        if not isinstance(self.module, nn.Module):
            raise TypeError(
                "a trunk's module must be a torch.nn.Module from rows to features, got "
                f"{type(self.module).__name__}."
            )

    @property
    def is_frozen(self) -> bool:
        asked = [parameter.requires_grad for parameter in self.module.parameters()]
        return bool(asked) and not any(asked) if self.frozen is None else self.frozen

    def features(self, input_shape: tuple[int, ...], rng: torch.Generator) -> tuple[nn.Module, int]:
        module = copy.deepcopy(self.module).cpu().float()
        width = _width(module.eval(), input_shape)
        return Frozen(module, width) if self.is_frozen else module.train(), width


def _width(module: nn.Module, input_shape: tuple[int, ...]) -> int:
    """How many features the module makes of a row, by a trial of two."""
    try:
        with torch.no_grad():
            shape = tuple(module(torch.zeros(2, *input_shape)).shape)
    except Exception as error:
        raise ValueError(
            f"the trunk's module must take rows of shape {input_shape}, two of them as a tensor of "
            f"shape {(2, *input_shape)}, got {type(error).__name__} from it ({error!s:.300}); "
            "adapt its first layer, or reshape X."
        ) from error
    if len(shape) != 2 or shape[0] != 2:
        raise ValueError(
            f"the trunk's module must map 2 inputs to features of shape (2, h), got {shape}; "
            "end it with nn.Flatten()."
        )
    return int(shape[1])


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
