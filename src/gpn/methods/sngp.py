"""Spectral-normalised neural Gaussian process (Liu, Lin, Padhy, Tran et al. 2020).

A residual network h with Lipschitz layers, hence roughly distance preserving, under a Gaussian
process with random Fourier features:

    h ← h + act(W h + b)  per layer,  W = V · min(1, c / σ(V))
    φ(x) = τ √(2/D) cos(Ω h(x) + b),  Ω_ij ~ N(0, 1 / (ℓ² width)),  b ~ U[0, 2π]
    f(x) = φ(x)·w,  w ~ N(0, I)

Training finds the network and the mode ŵ of the weights. One pass over the labels then gives the
Laplace posterior w ~ N(ŵ, P⁻¹):

    regression   P = I + ΦᵀΦ / σ_ε²
    classes      P_c = I + Σ_i p_ic (1 − p_ic) φ_i φ_iᵀ    (precision="class"), or one P with
                 max_c p_ic in the place of p_ic           (precision="shared")

`probabilities` can use the mean-field rule softmax(ŵ·φ / √(1 + λ φᵀP⁻¹φ)).

Differences from the original: the weights of a regression are their exact posterior mean given the
features; σ_ε is learnt by marginal likelihood; a convolution is normalised as a matrix (out × the
rest), as Miyato et al. (2018) do; ℓ is in units of √width, the same for every network.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils import parametrize

from gpn.core.config import (
    require_counts,
    require_one_of,
    require_positive,
    require_positive_if_given,
)
from gpn.core.losses import data_loss
from gpn.core.networks.layers import ACTIVATIONS, build_sequential, initialise
from gpn.core.networks.trunks import MLPTrunk, Trunk, require_plain_trunk
from gpn.core.posterior.base import MOMENT_DRAWS
from gpn.core.priors.cholesky import inverse_root
from gpn.core.priors.evidence import feature_noise_std
from gpn.core.task import Signature, Task
from gpn.core.types import Inputs, Outputs, Rng, as_generator
from gpn.methods.linear_gaussian import CHUNK_ROWS, Features, LinearGaussianPosterior
from gpn.methods.network_method import NetworkConfig, NetworkMethod, Train
from gpn.training.batches import LabelBatches
from gpn.training.config import TrainConfig
from gpn.training.state import Terms


@dataclass(frozen=True, kw_only=True)
class SNGPConfig(NetworkConfig):
    """Settings of an SNGP.

    spectral_bound
        c: no layer stretches a distance by more; inf switches the bound off.
    n_features, length_scale, prior_std
        D, ℓ and τ of the random features; τ is the prior standard deviation of f.
    noise_std
        σ_ε of a regression; None learns it by marginal likelihood.
    precision, mean_field
        For classes: "class" or "shared" precision; λ of the mean-field rule (π/8 in the
        original). None averages the softmax over draws.
    """

    spectral_bound: float = 0.95
    n_features: int = 1024
    length_scale: float = 0.25
    prior_std: float = 3.0
    noise_std: float | None = None
    precision: str = "class"
    mean_field: float | None = None
    trunk: Trunk = field(default_factory=MLPTrunk)
    train: TrainConfig = field(default_factory=lambda: TrainConfig(weight_decay=1e-2))

    def __post_init__(self) -> None:
        require_counts(self, "n_features")
        require_positive(self, "spectral_bound", "length_scale", "prior_std")
        require_positive_if_given(self, "noise_std", "mean_field")
        require_one_of(self, "precision", ("class", "shared"))


class SNGP(NetworkMethod[SNGPConfig, "SNGPPosterior"]):
    """The method: `SNGP(config).fit(task, rng=0)` returns a posterior."""

    config_class = SNGPConfig

    def _fit(self, task: Task, seeds: torch.Generator, train: Train) -> "SNGPPosterior":
        """Train the network and its weights, then compute the Laplace posterior of the weights."""
        config = self.config
        network = SNGPNetwork(config, task.signature, seeds)
        bound_layers(network.trunk, config.spectral_bound, seeds)
        network = network.to(task.x_obs)
        generator = as_generator(seeds, task.x_obs.device)
        batches = LabelBatches(len(task.x_obs), config.train.label_batch, generator)

        def loss_terms() -> Terms:
            """−log posterior of the weights per label; σ_ε² is the current error."""
            rows = batches.next()
            fitted = network(task.augmented(task.x_obs[rows], generator))
            data = data_loss(fitted[None], task.y_obs[rows]).mean()
            scale = 0.5 if task.is_classification else data.detach() / task.n_outputs
            prior = scale * network.weights.square().sum() / len(task.x_obs)
            return {"data": data, "weights": prior}

        train(network, loss_terms, streams=batches.streams)
        unbind_layers(network.trunk)
        laplace = _laplace(network.eval(), task, config)
        return SNGPPosterior(network, *laplace, task.signature, config)


class SNGPNetwork(nn.Module):
    """x → φ(x)·w: a residual trunk, its random Fourier features, one weight vector per output."""

    frequencies: Tensor
    phases: Tensor

    def __init__(self, config: SNGPConfig, signature: Signature, rng: torch.Generator) -> None:
        super().__init__()
        self.trunk = ResidualTrunk(config.trunk, signature.input_shape, rng)
        width, count = config.trunk.widths[0], config.n_features
        scale = 1 / (config.length_scale * math.sqrt(width))
        self.amplitude = config.prior_std * math.sqrt(2 / count)
        self.register_buffer("frequencies", scale * torch.randn(width, count, generator=rng))
        self.register_buffer("phases", 2 * math.pi * torch.rand(count, generator=rng))
        self.weights = nn.Parameter(torch.zeros(count, signature.n_outputs))

    def features(self, x: Inputs) -> Features:
        """φ(x); φ(x)·φ(x') approximates τ² exp(−‖h − h'‖² / (2 ℓ² width))."""
        return self.amplitude * (self.trunk(x) @ self.frequencies + self.phases).cos()

    def forward(self, x: Inputs) -> Outputs:
        return self.features(x) @ self.weights


class ResidualTrunk(nn.Module):
    """Any trunk's features, a linear map to its width, and one residual layer per width."""

    def __init__(self, trunk: Trunk, input_shape: tuple[int, ...], rng: torch.Generator) -> None:
        super().__init__()
        require_plain_trunk(trunk, "SNGP")
        width = trunk.widths[0]
        if any(other != width for other in trunk.widths):
            raise ValueError(
                f"residual layers must all have one width, got widths={trunk.widths}; "
                f"try widths={(width,) * len(trunk.widths)}."
            )
        self.features, size = trunk.features(input_shape, rng)
        self.project = initialise(nn.Linear(size, width, device="meta"), rng)
        self.layers = build_sequential(lambda: [nn.Linear(width, width) for _ in trunk.widths], rng)
        self.activation = ACTIVATIONS[trunk.activation]()

    def forward(self, x: Inputs) -> Float[Tensor, "n h"]:
        hidden = self.project(self.features(x))
        for layer in self.layers:
            hidden = hidden + self.activation(layer(hidden))
        return hidden


class SpectralBound(nn.Module):
    """V → V · min(1, c / σ(V)); each training step updates σ(V) by one power iteration.

    torch's `spectral_norm` always divides by σ; a bound does not change layers below it.
    """

    left: Tensor
    right: Tensor

    def __init__(self, weight: Tensor, bound: float, rng: torch.Generator) -> None:
        super().__init__()
        self.bound = bound
        matrix = weight.detach().flatten(1)
        start = torch.randn(matrix.shape[1], generator=rng, dtype=matrix.dtype)
        self.register_buffer("left", torch.zeros_like(matrix[:, 0]))
        self.register_buffer("right", normalize(start, dim=0))
        self.iterate(weight.detach(), 15)

    @torch.no_grad()
    def iterate(self, weight: Tensor, steps: int) -> None:
        """left ← V right / ‖·‖, right ← Vᵀ left / ‖·‖."""
        matrix = weight.flatten(1)
        for _ in range(steps):
            self.left.copy_(normalize(matrix @ self.right, dim=0))
            self.right.copy_(normalize(matrix.T @ self.left, dim=0))

    def forward(self, weight: Tensor) -> Tensor:
        if self.training:
            self.iterate(weight, 1)
        norm: Float[Tensor, ""] = self.left.clone() @ weight.flatten(1) @ self.right.clone()
        return weight * (self.bound / norm.clamp_min(1e-12)).clamp_max(1.0)


def bound_layers(module: nn.Module, bound: float, rng: torch.Generator) -> None:
    """Bound the spectral norm of every trained linear and convolutional layer."""
    if math.isinf(bound):
        return
    for layer in list(module.modules()):
        if isinstance(layer, nn.Linear | nn.Conv2d) and layer.weight.requires_grad:
            parametrization = SpectralBound(layer.weight, bound, rng)
            parametrize.register_parametrization(layer, "weight", parametrization)


@torch.no_grad()
def unbind_layers(module: nn.Module) -> None:
    """Write the bounded weights into plain layers, once the power iteration has converged."""
    for layer in [layer for layer in module.modules() if parametrize.is_parametrized(layer)]:
        parametrization: Any = layer.parametrizations["weight"]  # type: ignore[index]
        parametrization[0].iterate(parametrization.original, 100)
        layer.eval()
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)


@torch.no_grad()
def _laplace(
    network: SNGPNetwork, task: Task, config: SNGPConfig
) -> tuple[Tensor, Tensor, float | None]:
    """The weights' mean (f, o), a root R of their covariance R Rᵀ (o or 1, f, f), and σ_ε."""
    chunks, dtype = task.x_obs.split(CHUNK_ROWS), task.x_obs.dtype
    if task.is_classification:
        precision = _class_precision(network, chunks, shared=config.precision == "shared")
        root = inverse_root(precision, "the precision of the weights")
        return network.weights.detach(), root.to(dtype), None
    features = torch.cat([network.features(chunk) for chunk in chunks])
    mean, root, noise_std = regression_head(features, task.y_obs, config.noise_std)
    return mean.to(dtype), root.to(dtype)[None], noise_std


def _class_precision(
    network: SNGPNetwork, chunks: tuple[Tensor, ...], *, shared: bool
) -> Float[Tensor, "c f f"]:
    """I + Σ_i p (1 − p) φ_i φ_iᵀ: one matrix per class, or one matrix with the largest p."""
    count, n_classes = network.weights.shape
    total = torch.eye(count, dtype=torch.float64, device=network.weights.device)
    total = total.repeat(1 if shared else n_classes, 1, 1)
    for chunk in chunks:
        features = network.features(chunk).double()
        probabilities = (features @ network.weights.double()).softmax(-1)
        if shared:
            probabilities = probabilities.amax(-1, keepdim=True)
        curvature = (probabilities * (1 - probabilities)).T
        for precision, weight in zip(total, curvature, strict=True):
            precision.addmm_(features.T * weight, features)
    return total


def regression_head(
    features: Features, targets: Outputs, noise_std: float | None = None
) -> tuple[Float[Tensor, "f o"], Float[Tensor, "f f"], float]:
    """Bayesian linear regression on the features, prior N(0, I): mean, covariance root, σ_ε.

        P = I + ΦᵀΦ / σ²,   ŵ = P⁻¹ Φᵀy / σ²

    A noise_std of None maximises the marginal likelihood, where σ² = ‖y − Φŵ‖² / (N − tr(I − P⁻¹))
    (MacKay 1992): squared residuals over labels minus the effective number of weights.
    """
    wide, y = features.double(), targets.double()
    noise = feature_noise_std(wide, y) if noise_std is None else noise_std
    values, vectors = torch.linalg.eigh(wide.T @ wide)
    total = values.clamp_min(0.0) + noise**2
    mean = vectors @ ((vectors.T @ (wide.T @ y)) / total[:, None])
    return mean, vectors * (noise / total.sqrt()), noise


class SNGPPosterior(LinearGaussianPosterior):
    """Functions x → φ(x)·w with w ~ N(ŵ, P⁻¹)."""

    network: SNGPNetwork
    config: SNGPConfig

    def features(self, x: Inputs) -> Features:
        return self.network.features(x)

    def probabilities(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "n o"]:
        """The mean softmax of the draws, or the mean-field rule if `mean_field` is set."""
        if self.config.mean_field is None or not self.signature.is_classification:
            return super().probabilities(x, n, rng)
        mean, variance = self.moments(x)
        return (mean / (1 + self.config.mean_field * variance).sqrt()).softmax(-1)

    def tensors(self) -> dict[str, Tensor]:
        network = self.network.state_dict(prefix="network.")
        noise_std = torch.tensor(self.noise_std or 0.0, dtype=torch.float64)
        return {**network, "weights": self.weights, "root": self.root, "noise_std": noise_std}

    @classmethod
    def restore(
        cls, config: SNGPConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "SNGPPosterior":
        weights, prefix = tensors["weights"], "network."
        network = SNGPNetwork(config, signature, as_generator(0)).to(weights)
        state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        network.load_state_dict(state)
        noise_std = float(tensors["noise_std"]) or None
        return cls(network, weights, tensors["root"], noise_std, signature, config)
