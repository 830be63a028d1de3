"""Trunks: features of x, then hidden layers."""

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from gpn.core.config import Config, require_counts, require_one_of, require_sizes
from gpn.core.networks.encodings import Divided, PiecewiseLinearEncoding, RandomFourierFeatures
from gpn.core.networks.frozen import FrozenFeatures
from gpn.core.networks.layers import ACTIVATIONS, build_sequential, conv_features, conv_stack
from gpn.core.networks.resnet import PATCH, ResNet, initialise_resnet


class Trunk(Config, ABC):
    """The lower part of a network: features of x, then hidden layers of `widths`.

    `dropout` is the share of hidden units that a training step drops.
    """

    needs_hidden: ClassVar[bool] = True
    widths: tuple[int, ...]
    activation: str
    dropout: float

    def __post_init__(self) -> None:
        require_one_of(self, "activation", tuple(ACTIVATIONS))
        if self.needs_hidden and not self.widths:
            raise ValueError("widths must name at least one hidden layer, got ().")
        require_sizes(self.widths)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}; 0 is without.")

    @abstractmethod
    def features(self, input_shape: tuple[int, ...], rng: torch.Generator) -> tuple[nn.Module, int]:
        """A module from inputs to features ``(n, h)``, and h."""


@dataclass(frozen=True, kw_only=True)
class MLPTrunk(Trunk):
    """Hidden layers on x, and on an encoding of x: `fourier` features or `ramps`, not both.

    The `fourier` random cosines cos(w·x + c) let a small network follow a rough prior; their
    frequencies |w| are log-uniform on `fourier_range`. None stands for (0.5, 10), or in a GPN with
    spectral codes for frequencies up to those of the prior's axes. `ramps` cuts the range of every
    column at that many quantiles, as trees do; a GPN takes the quantiles of its pool.
    `column_scales` divide the columns first, so that those that matter are the wide ones.
    """

    widths: tuple[int, ...] = (256, 256, 256)
    activation: str = "silu"
    dropout: float = 0.0
    fourier: int = 0
    fourier_range: tuple[float, float] | None = None
    ramps: int = 0
    column_scales: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.fourier, self.ramps) < 0:
            raise ValueError(
                "fourier and ramps must not be negative, got "
                f"fourier={self.fourier} and ramps={self.ramps}; 0 is without."
            )
        if min(self.fourier, self.ramps) > 0:
            raise ValueError(
                "a trunk must have Fourier features or ramps, not both, got "
                f"fourier={self.fourier} and ramps={self.ramps}; set one of them to 0."
            )
        if not all(0 < scale < math.inf for scale in self.column_scales or ()):
            raise ValueError(
                f"column_scales must be positive numbers, got {self.column_scales!r:.200}."
            )

    def features(self, input_shape: tuple[int, ...], rng: torch.Generator) -> tuple[nn.Module, int]:
        dim = torch.Size(input_shape).numel()
        encoding, size = self._encoding(dim, rng)
        if self.column_scales is None:
            return encoding, size
        if len(self.column_scales) != dim:
            raise ValueError(
                f"column_scales must be a number for each of {dim} columns, got "
                f"{len(self.column_scales)}."
            )
        return nn.Sequential(Divided(self.column_scales), encoding), size

    def _encoding(self, dim: int, rng: torch.Generator) -> tuple[nn.Module, int]:
        if self.ramps > 0:
            return PiecewiseLinearEncoding(dim, self.ramps), dim * (1 + self.ramps)
        if self.fourier == 0:
            return nn.Flatten(), dim
        scales = self.fourier_range or (0.5, 10.0)
        return RandomFourierFeatures(dim, self.fourier, scales, rng), dim + self.fourier


@dataclass(frozen=True, kw_only=True)
class ConvTrunk(Trunk):
    """Convolutions (3×3), then hidden linear layers: the paper's image networks.

    Each convolution halves the image: by a "stride" of 2, or by the "max" of 2×2 pixels after it,
    which sees and costs four times as much.
    """

    channels: tuple[int, ...] = (32, 64)
    widths: tuple[int, ...] = (512, 512, 512)
    activation: str = "relu"
    dropout: float = 0.0
    halve_by: str = "stride"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, "halve_by", ("stride", "max"))
        if not self.channels:
            raise ValueError("channels must name at least one convolution, got ().")
        require_sizes(self.channels)

    def features(self, input_shape: tuple[int, ...], rng: torch.Generator) -> tuple[nn.Module, int]:
        size = conv_features(input_shape, self.channels)
        layers = partial(conv_stack, input_shape, self.channels, self.activation, self.halve_by)
        return build_sequential(layers, rng), size


@dataclass(frozen=True, kw_only=True)
class ResNetTrunk(Trunk):
    """A residual network with batch norm, then hidden linear layers: photographs, 32 × 32 or so.

    `channels` are those of the first convolution and of each stage, and each stage halves the image
    and has `blocks` residual blocks. If `whiten`, the first convolution is a fixed one of 2 × 2
    pixels that whitens them, and all `channels` are those of stages. New images are seen in several
    views, whose features are averaged: if `mirror`, from both sides; set it to False where left and
    right matter, as in digits. With a `shift`, moved by so many pixels along the diagonal, too.
    `widths` may be empty: outputs then are linear in the features.
    """

    needs_hidden = False
    added: ClassVar[dict[str, Any]] = {"shift": 0, "whiten": False}

    channels: tuple[int, ...] = (128, 384, 512)
    blocks: int = 1
    widths: tuple[int, ...] = (512,)
    activation: str = "gelu"
    dropout: float = 0.0
    mirror: bool = True
    shift: int = 1
    whiten: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_counts(self, "blocks")
        if not (isinstance(self.shift, int) and self.shift >= 0):
            raise ValueError(
                f"shift must be a number of pixels, got {self.shift!r}; 0 does not shift."
            )
        if len(self.channels) < 2:
            raise ValueError(
                "channels must name a first convolution and one stage at least, got "
                f"{self.channels}; try (64, 128, 256, 512)."
            )
        require_sizes(self.channels)

    def features(self, input_shape: tuple[int, ...], rng: torch.Generator) -> tuple[nn.Module, int]:
        conv_features(input_shape, self.channels[1:])  # raises unless rows are images
        if self.whiten and min(input_shape[1:]) < PATCH:
            raise ValueError(
                f"images must have {PATCH} × {PATCH} pixels at least to be whitened, got "
                f"{input_shape}; use whiten=False."
            )
        with torch.device("meta"):
            network = ResNet(
                input_shape[0],
                self.channels,
                self.blocks,
                self.activation,
                mirror=self.mirror,
                shift=self.shift,
                whiten=self.whiten,
            )
        return initialise_resnet(network, rng), self.channels[-1]


@dataclass(frozen=True, kw_only=True)
class ModuleTrunk(Trunk):
    """Your own module from x to features ``(n, h)``, then hidden layers of `widths`.

    A copy of the module is trained with the rest. If `frozen`, it is used as it is: in eval mode,
    and in a GPN once for every row before training begins. None freezes a module none of whose
    parameters requires a gradient.
    """

    module: nn.Module
    widths: tuple[int, ...] = (256,)
    activation: str = "silu"
    dropout: float = 0.0
    frozen: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.module, nn.Module):
            raise TypeError(
                "a trunk's module must be a torch.nn.Module from rows to features, got "
                f"{type(self.module).__name__}."
            )

    @property
    def is_frozen(self) -> bool:
        gradients = [parameter.requires_grad for parameter in self.module.parameters()]
        return bool(gradients) and not any(gradients) if self.frozen is None else self.frozen

    def features(self, input_shape: tuple[int, ...], rng: torch.Generator) -> tuple[nn.Module, int]:
        module = copy.deepcopy(self.module).cpu().float()
        size = _count_features(module.eval(), input_shape)
        return FrozenFeatures(module, size) if self.is_frozen else module.train(), size


def _count_features(module: nn.Module, input_shape: tuple[int, ...]) -> int:
    """The number of features that the module makes of a row, by a trial with two rows."""
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


def require_plain_trunk(trunk: Trunk, method: str) -> None:
    """Raise where a trunk has dropout or ramps, which the `method` would not apply."""
    if isinstance(trunk, MLPTrunk) and trunk.ramps > 0:
        raise ValueError(f"{method} needs a trunk without ramps, got ramps={trunk.ramps}; use 0.")
    if trunk.dropout > 0:
        raise ValueError(
            f"{method} needs a trunk without dropout, got dropout={trunk.dropout}; use 0."
        )
