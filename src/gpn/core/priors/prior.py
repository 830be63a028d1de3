"""The prior over functions: k random networks f(·; θ_j), θ_j ~ N(0, Σ_prior), on one axis."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from gpn.core.config import Config, require_one_of, require_sizes
from gpn.core.networks.layers import ACTIVATIONS, conv_features, conv_stack, mlp
from gpn.core.priors.kernel import EXPECTATIONS, mlp_kernel, mlp_variance
from gpn.core.types import Functions, Inputs, as_generator

CHUNK_ROWS = 1024
KERNEL_CHUNK_ROWS = 256


class Prior:
    """k frozen functions: `prior(x)[j] = f(x; θ_j)`.

    `weights` holds every parameter of `network` with the k draws stacked in front.
    """

    def __init__(
        self,
        network: nn.Module,
        weights: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.network = network.eval()
        self.weights = dict(weights)
        self.buffers = dict(network.named_buffers() if buffers is None else buffers)

    @property
    def n_anchors(self) -> int:
        return len(next(iter(self.weights.values())))

    def __call__(self, x: Inputs) -> Functions:
        return torch.cat([self._evaluate(chunk) for chunk in x.split(CHUNK_ROWS)], dim=1)

    def _evaluate(self, x: Inputs) -> Functions:
        def one(weights: dict[str, Tensor]) -> Tensor:
            return functional_call(self.network, (weights, self.buffers), (x,))

        return torch.vmap(one)(self.weights)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Prior":
        """The functions on `device`, with floating values as `dtype`."""

        def moved(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {
                name: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
                for name, tensor in tensors.items()
            }

        return Prior(self.network, moved(self.weights), moved(self.buffers))


class FixedFunctions(nn.Module):
    """Prior functions as a part of a network: their weights are buffers, which are not learnt."""

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        # in a tuple, so that torch does not register the network's own parameters
        self.network = (prior.network,)
        for name, tensor in prior.weights.items():
            self.register_buffer(name.replace(".", "/"), tensor)  # names must have no dots

    def forward(self, x: Inputs) -> Functions:
        weights = {name.replace("/", "."): tensor for name, tensor in self.named_buffers()}
        return Prior(self.network[0], weights)(x)


class PriorSpec(Config, ABC):
    """A distribution over functions, before any are drawn."""

    def sample(
        self, input_shape: tuple[int, ...], n_outputs: int, n: int, rng: torch.Generator | int
    ) -> Prior:
        """`n` functions; the same seed gives the same functions on every device."""
        network = self.network(input_shape, n_outputs).requires_grad_(False)  # noqa: FBT003
        generator = as_generator(rng)
        variances = self.variances(network)
        weights = {
            name: torch.randn(n, *parameter.shape, generator=generator) * variances[name] ** 0.5
            for name, parameter in network.named_parameters()
        }
        return Prior(network, weights)

    @abstractmethod
    def network(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """One network x → outputs; its parameter values are never used (meta is fine)."""

    @abstractmethod
    def variances(self, network: nn.Module) -> Mapping[str, float | Tensor]:
        """The variance of each of the network's parameters, by name: one number, or one each."""

    @property
    def has_kernel(self) -> bool:
        """Whether `kernel` has a closed form."""
        return False

    def kernel(self, left: Inputs, right: Float[Tensor, "m *d"]) -> Float[Tensor, "n m"]:
        """Cov[f(x), f(x')] for one output of an infinitely wide network."""
        raise NotImplementedError(
            f"the kernel of {type(self).__name__} has no closed form; "
            "an MLPPrior with tanh, erf or relu has one."
        )

    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        """Var[f(x)] for one output: the diagonal of the kernel, where it has a closed form."""
        return torch.cat([self.kernel(c, c).diagonal() for c in x.split(KERNEL_CHUNK_ROWS)])


@dataclass(frozen=True, kw_only=True)
class MLPPrior(PriorSpec):
    """A random MLP: weights ~ N(0, prior_variance / fan-in) and biases ~ N(0, bias_variance).

    The default is the paper's: two layers, tanh, variances 40 and 10; its outputs have a standard
    deviation of about 3. Inputs of any shape are flattened.
    """

    widths: tuple[int, ...] = (512,)
    prior_variance: tuple[float, ...] = (40.0, 10.0)
    bias_variance: tuple[float, ...] = (40.0, 0.0)
    activation: str = "tanh"

    def __post_init__(self) -> None:
        _check_layers(self, self.widths)

    def network(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        sizes = (torch.Size(input_shape).numel(), *self.widths, n_outputs)
        with torch.device("meta"):
            return nn.Sequential(nn.Flatten(), *mlp(sizes, self.activation))

    def variances(self, network: nn.Module) -> dict[str, float]:
        return _per_fan_in(network, self.prior_variance, self.bias_variance)

    @property
    def has_kernel(self) -> bool:
        return self.activation in EXPECTATIONS

    def kernel(self, left: Inputs, right: Float[Tensor, "m *d"]) -> Float[Tensor, "n m"]:
        if not self.has_kernel:
            return super().kernel(left, right)
        flat = left.flatten(1), right.flatten(1)
        return mlp_kernel(*flat, self.prior_variance, self.bias_variance, self.activation)

    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        if not self.has_kernel:
            return super().variance(x)
        flat = x.flatten(1)
        return mlp_variance(flat, self.prior_variance, self.bias_variance, self.activation)


@dataclass(frozen=True, kw_only=True)
class ConvPrior(PriorSpec):
    """A random convolutional network for images (channels, height, width).

    3×3 convolutions with stride 2, then one linear layer; variances per fan-in as in `MLPPrior`.
    """

    channels: tuple[int, ...] = (64,)
    prior_variance: tuple[float, ...] = (40.0, 10.0)
    bias_variance: tuple[float, ...] = (40.0, 0.0)
    activation: str = "tanh"

    def __post_init__(self) -> None:
        if not self.channels:
            raise ValueError("channels must name at least one convolution, got ().")
        _check_layers(self, self.channels)

    def network(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        features = conv_features(input_shape, self.channels)
        with torch.device("meta"):
            stack = conv_stack(input_shape, self.channels, self.activation)
            return nn.Sequential(*stack, nn.Linear(features, n_outputs))

    def variances(self, network: nn.Module) -> dict[str, float]:
        return _per_fan_in(network, self.prior_variance, self.bias_variance)


@dataclass(frozen=True, kw_only=True)
class ModulePrior(PriorSpec):
    """Your own network, with every parameter drawn from N(0, prior_variance) and its own buffers.

    `prior_variance` is one number, or one per parameter name. The module must map a batch of
    inputs to ``(n, o)``; it is copied.
    """

    module: nn.Module
    prior_variance: float | Mapping[str, float] = 1.0

    def __post_init__(self) -> None:
        variance = self.prior_variance
        values = list(variance.values()) if isinstance(variance, Mapping) else [variance]
        if not values or min(values) < 0:
            raise ValueError(f"prior_variance must not be negative, got {variance}.")

    def network(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        network = copy.deepcopy(self.module).cpu().float().eval()
        shape = tuple(network(torch.zeros(2, *input_shape)).shape)
        if shape != (2, n_outputs):
            raise ValueError(
                f"the prior's module must map 2 inputs to shape (2, {n_outputs}), got {shape}."
            )
        return network

    def variances(self, network: nn.Module) -> dict[str, float]:
        names = [name for name, _ in network.named_parameters()]
        if not isinstance(self.prior_variance, Mapping):
            return dict.fromkeys(names, self.prior_variance)
        if set(names) != set(self.prior_variance):
            raise ValueError(
                f"prior_variance must name every parameter, {names}, "
                f"got {list(self.prior_variance)}."
            )
        return dict(self.prior_variance)


def _per_fan_in(
    network: nn.Module, variance: tuple[float, ...], bias_variance: tuple[float, ...]
) -> dict[str, float]:
    """N(0, v/fan-in) for the weights of each layer in turn, N(0, v) for its biases."""
    layers = [
        (name, layer)
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv2d)
    ]
    by_name = {}
    for (name, layer), weight, bias in zip(layers, variance, bias_variance, strict=True):
        by_name[f"{name}.weight"] = weight / layer.weight[0].numel()
        by_name[f"{name}.bias"] = bias
    return by_name


def _check_layers(spec: Any, sizes: tuple[int, ...]) -> None:
    require_one_of(spec, "activation", tuple(ACTIVATIONS))
    require_sizes(sizes)
    n_layers = len(sizes) + 1
    for name in ("prior_variance", "bias_variance"):
        values = getattr(spec, name)
        if len(values) != n_layers or min(values) < 0:
            raise ValueError(
                f"{name} must have one non-negative number per layer, {n_layers} here, "
                f"got {values}."
            )
