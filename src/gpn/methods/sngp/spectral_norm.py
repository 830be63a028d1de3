"""Spectral normalisation with a bound: no layer of SNGP's trunk stretches a distance by more."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils import parametrize

Layer = nn.Linear | nn.Conv2d


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
    for layer in [layer for layer in module.modules() if isinstance(layer, Layer)]:
        if layer.weight.requires_grad:
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
