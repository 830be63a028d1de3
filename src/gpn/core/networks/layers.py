"""The plain layers that priors and generators are built from."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


class Erf(nn.Module):
    """erf(x), whose infinitely wide network has the arc-sine kernel."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.erf(x)


class Dropout(nn.Dropout):
    """torch's dropout; on a CPU, one random number decides for four units.

    The dropped share is rounded to 2⁻¹⁶ there. It saves 16 % of an MLP's fit: 11.1 ms per step
    where `nn.Dropout` takes 13.1 (81 columns, widths (512, 512), batch 320, one thread).
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        if x.device.type != "cpu":
            return super().forward(x)
        dropped = min(round(self.p * 2**16), 2**16 - 1)
        random = torch.randint(-(2**63), 2**63 - 1, (-(-x.numel() // 4),)).view(torch.int16)
        mask = random[: x.numel()].view(x.shape) >= dropped - 2**15
        return x * mask.to(x.dtype).mul_(1 / (1 - dropped * 2**-16))


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "erf": Erf,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def mlp(sizes: Sequence[int], activation: str, dropout: float = 0.0) -> list[nn.Module]:
    """Linear layers between `sizes`, each but the last followed by activation and dropout."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(fan_in, fan_out), *activation_layers(activation, dropout)]
    return [*layers, nn.Linear(sizes[-2], sizes[-1])]


def activation_layers(activation: str, dropout: float) -> list[nn.Module]:
    """The layers after a hidden linear layer: its activation and, if there is any, its dropout."""
    return [ACTIVATIONS[activation](), *([Dropout(dropout)] if dropout > 0 else [])]


def conv_stack(
    input_shape: tuple[int, ...],
    channels: Sequence[int],
    activation: str,
    halve_by: str = "stride",
) -> list[nn.Module]:
    """3×3 convolutions with activations, each of which halves the image, then flat features."""
    stride = 2 if halve_by == "stride" else 1
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise((input_shape[0], *channels)):
        layers += [nn.Conv2d(fan_in, fan_out, 3, stride, padding=1), ACTIVATIONS[activation]()]
        layers += [nn.MaxPool2d(2, ceil_mode=True)] if halve_by == "max" else []
    return [*layers, nn.Flatten()]


def conv_features(input_shape: tuple[int, ...], channels: Sequence[int]) -> int:
    """The number of features that `conv_stack` makes."""
    if len(input_shape) != 3:
        raise ValueError(
            "a convolutional network needs images, rows of shape (channels, height, width), "
            f"got {input_shape}; use an MLP for tables."
        )
    _, height, width = input_shape
    shrink = 2 ** len(channels)
    return channels[-1] * math.ceil(height / shrink) * math.ceil(width / shrink)


def build_sequential(make: Callable[[], list[nn.Module]], rng: torch.Generator) -> nn.Sequential:
    """The layers that `make` lists, with parameters drawn from `rng` alone.

    They are built on the meta device, so that torch's initialisation does not touch the global
    random state.
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
