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
        blocks = [self._evaluate(rows) for rows in x.split(CHUNK_ROWS)]
        return torch.cat(blocks, dim=1)

    def _evaluate(self, x: Inputs) -> Functions:
        def one(weights: dict[str, Tensor]) -> Tensor:
            return functional_call(self.network, (weights, self.buffers), (x,))

        return torch.vmap(one)(self.weights)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Prior":
        def moved(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            kept = {n: t.dtype if not t.is_floating_point() else dtype for n, t in tensors.items()}
            return {name: tensor.to(device, kept[name]) for name, tensor in tensors.items()}

        return Prior(self.network, moved(self.weights), moved(self.buffers))


class PriorSpec(Config, ABC):
    """A law over functions, before any are drawn."""

    def sample(
        self, input_shape: tuple[int, ...], n_outputs: int, n: int, rng: torch.Generator | int
    ) -> Prior:
        """`n` functions of this law; the same seed gives the same functions on every device."""
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
        """One network x → outputs; its own parameter values are never used (meta is fine)."""

    @abstractmethod
    def variances(self, network: nn.Module) -> dict[str, float]:
        """The variance of each of the network's parameters, by name."""

    @property
    def has_kernel(self) -> bool:
        """Whether `kernel` is known in closed form."""
        return False

    def kernel(self, left: Inputs, right: Float[Tensor, "m *d"]) -> Float[Tensor, "n m"]:
        """Cov[f(x), f(x')] for one output of an infinitely wide network of this law."""
        raise NotImplementedError(
            f"the kernel of {type(self).__name__} has no closed form; "
            "an MLPPrior with tanh, erf or relu has one."
        )

    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        """Var[f(x)] for one output, where the kernel is known: its diagonal."""
        parts = [self.kernel(part, part).diagonal() for part in x.split(256)]
        return torch.cat(parts)


@dataclass(frozen=True, kw_only=True)
class MLPPrior(PriorSpec):
    """A random MLP: each layer's weights ~ N(0, prior_variance / fan-in), biases as given.

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
        law = self.prior_variance, self.bias_variance, self.activation
        return mlp_variance(x.flatten(1), *law)


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
    """Your own network, every parameter drawn from N(0, prior_variance); buffers stay as they are.

    `prior_variance` is one number, or one per parameter name. The module must map a batch of
    inputs to ``(n, o)`` and is not changed.
    """

    module: nn.Module
    prior_variance: float | Mapping[str, float] = 1.0

    def __post_init__(self) -> None:
        given = self.prior_variance
        values = list(given.values()) if isinstance(given, Mapping) else [given]
        if not values or min(values) < 0:
            raise ValueError(f"prior_variance must not be negative, got {given}.")

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
    layers = [(name, part) for name, part in network.named_modules() if _has_weights(part)]
    by_name = {}
    for (name, layer), weight, bias in zip(layers, variance, bias_variance, strict=True):
        by_name[f"{name}.weight"] = weight / layer.weight[0].numel()
        by_name[f"{name}.bias"] = bias
    return by_name


def _has_weights(part: nn.Module) -> bool:
    return isinstance(part, nn.Linear | nn.Conv2d)


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
