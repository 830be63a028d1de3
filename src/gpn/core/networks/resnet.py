"""A residual network for small images, with batch norm."""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from gpn.core.networks.encodings import FittedEncoding
from gpn.core.networks.layers import ACTIVATIONS

Images = Float[Tensor, "n c h w"]
PATCH = 2
MAX_WHITENING_IMAGES = 1000
WHITENING_EPS = 5e-4


class Whitening(FittedEncoding):
    """A convolution of 2 × 2 pixels whose outputs are uncorrelated, and their negatives.

    The filters v_k / √(λ_k + ε) are eigenvectors of the covariance of patches (Jordan 2024). They
    are not trained, which saves the most costly backward pass; before `fit` they are single pixels.
    """

    weight: Tensor

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        size = in_channels * PATCH**2
        self.register_buffer("weight", torch.empty(2 * size, in_channels, PATCH, PATCH))

    def reset_parameters(self) -> None:
        self._set(torch.eye(self.weight[0].numel()))

    def fit(self, x: Images) -> None:
        """Whiten the patches of `x`, of its first 1,000 images."""
        patches = functional.unfold(x[:MAX_WHITENING_IMAGES], PATCH).movedim(1, 0).flatten(1)
        values, vectors = torch.linalg.eigh(patches.double().cov(correction=0).cpu())
        self._set((vectors / (values.clamp_min(0.0) + WHITENING_EPS).sqrt()).T)

    def forward(self, x: Images) -> Float[Tensor, "n k i j"]:
        return functional.conv2d(x, self.weight)

    def _set(self, filters: Float[Tensor, "f p"]) -> None:
        self.weight.copy_(torch.cat([filters, -filters]).reshape(self.weight.shape))


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

    The first convolution has `channels[0]` outputs; if `whiten`, it is a fixed `Whitening`, and all
    `channels` are those of stages. Each stage is a convolution to its number of channels, the
    largest of 2 × 2 pixels, and `blocks` residual blocks; the features are the largest value of
    each last channel, normalised like the rest: unbounded ones let the anchor term diverge.

    The features of new images are averages over views: if `mirror`, over the image and its mirror
    image; with a `shift`, over the image and two that are shifted by so many pixels along the
    diagonal and count half as much each.
    """

    def __init__(
        self,
        in_channels: int,
        channels: tuple[int, ...],
        blocks: int,
        activation: str,
        *,
        mirror: bool,
        shift: int = 0,
        whiten: bool = False,
    ) -> None:
        super().__init__()
        layers: list[nn.Module]
        if whiten:
            layers = [Whitening(in_channels), ACTIVATIONS[activation]()]
            channels = (2 * PATCH**2 * in_channels, *channels)
        else:
            layers = conv_norm(in_channels, channels[0], activation)
        for fan_in, fan_out in itertools.pairwise(channels):
            layers += conv_norm(fan_in, fan_out, activation, nn.MaxPool2d(2, ceil_mode=True))
            layers += [ResidualBlock(fan_out, activation) for _ in range(blocks)]
        self.layers = nn.Sequential(*layers)
        self.norm = nn.BatchNorm1d(channels[-1])
        self.mirror, self.shift = mirror, shift

    def forward(self, x: Images) -> Float[Tensor, "n k"]:
        if self.training:
            return self._features(x)
        centre = self._both_sides(x)
        if self.shift == 0:
            return centre
        first, last = (self._both_sides(view) for view in shifted(x, self.shift))
        return centre / 2 + (first + last) / 4

    def _both_sides(self, x: Images) -> Float[Tensor, "n k"]:
        if not self.mirror:
            return self._features(x)
        return (self._features(x) + self._features(x.flip(-1))) / 2

    def _features(self, x: Images) -> Float[Tensor, "n k"]:
        return self.norm(self.layers(x).amax((2, 3)))


def shifted(x: Images, by: int) -> tuple[Images, Images]:
    """The images shifted down and right, and up and left; edges repeat their last pixel."""
    padded = functional.pad(x, [by] * 4, mode="replicate")
    height, width = x.shape[2:]
    return padded[..., :height, :width], padded[..., 2 * by :, 2 * by :]


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
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | Whitening):
            layer.reset_parameters()
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
