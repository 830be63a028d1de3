"""A residual network for small images, with batch norm."""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpn.core.networks.layers import ACTIVATIONS

Images = Float[Tensor, "n c h w"]


class ResidualBlock(nn.Module):
    """x + act(norm(conv(act(norm(conv(x)))))), with as many channels out as in."""

    def __init__(self, channels: int, activation: str) -> None:
        super().__init__()
        layers = (conv_norm(channels, channels, activation) for _ in range(2))
        self.layers = nn.Sequential(*itertools.chain.from_iterable(layers))

    def forward(self, x: Images) -> Images:
        return x + self.layers(x)


class ResNet(nn.Module):
    """Features of images: a first convolution, then stages that halve the image.

    Each stage is a convolution to its number of channels, the largest of 2 × 2 pixels, and `blocks`
    residual blocks; the features are the largest value of each last channel, normalised like the
    rest: unbounded ones let the anchor term diverge. If `mirror`, the features of new images are
    the average over the image and its mirror image.
    """

    def __init__(
        self,
        in_channels: int,
        channels: tuple[int, ...],
        blocks: int,
        activation: str,
        *,
        mirror: bool,
    ) -> None:
        super().__init__()
        first, *stages = channels
        layers = conv_norm(in_channels, first, activation)
        for fan_in, fan_out in itertools.pairwise((first, *stages)):
            layers += conv_norm(fan_in, fan_out, activation, nn.MaxPool2d(2, ceil_mode=True))
            layers += [ResidualBlock(fan_out, activation) for _ in range(blocks)]
        self.layers = nn.Sequential(*layers)
        self.norm = nn.BatchNorm1d(channels[-1])
        self.mirror = mirror

    def forward(self, x: Images) -> Float[Tensor, "n k"]:
        if self.training or not self.mirror:
            return self._features(x)
        return (self._features(x) + self._features(x.flip(-1))) / 2

    def _features(self, x: Images) -> Float[Tensor, "n k"]:
        return self.norm(self.layers(x).amax((2, 3)))


def conv_norm(
    fan_in: int, fan_out: int, activation: str, pooling: nn.Module | None = None
) -> list[nn.Module]:
    """A 3 × 3 convolution, its pooling, batch norm and activation."""
    conv = nn.Conv2d(fan_in, fan_out, 3, padding=1, bias=False)
    pooled = [] if pooling is None else [pooling]
    return [conv, *pooled, nn.BatchNorm2d(fan_out), ACTIVATIONS[activation]()]


def initialise_resnet(network: ResNet, rng: torch.Generator) -> ResNet:
    """A meta network made real: weights ~ N(0, 2 / fan-in) for rectifiers, batch norm at rest."""
    network.to_empty(device="cpu")
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            std = (2 / layer.weight[0].numel()) ** 0.5
            nn.init.normal_(layer.weight, 0.0, std, generator=rng)
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.reset_parameters()
    return network
