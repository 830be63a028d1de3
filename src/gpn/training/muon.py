"""Muon: steps whose matrices are orthogonal, for convolutions with batch norm (Jordan 2024).

    M ← μ M + G,     W ← √n W / ‖W‖ − η/5 U Vᵀ      with U S Vᵀ = G + μ M

for the weights W of a convolution, a line for each of its n outputs. Batch norm undoes the length
of W, so that η/5 is the size of a step relative to the weights, whatever the layer. Other
parameters have Nesterov's steps of SGD, with the learning rate η.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

ITERATIONS = 5
COEFFICIENTS = 3.4445, -4.7750, 2.0315
RELATIVE_STEP = 0.2  # of a kernel, as a share of the learning rate


class Muon(torch.optim.Optimizer):
    """Orthogonal steps for four-dimensional weights, Nesterov's for the rest."""

    def __init__(self, groups: list[dict[str, Any]], lr: float, momentum: float) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            trained = [weight for weight in group["params"] if weight.grad is not None]
            kernels = [weight for weight in trained if weight.ndim == 4]
            others = [weight for weight in trained if weight.ndim != 4]
            self._step_kernels(kernels, group)
            self._step_others(others, group)

    def _step_kernels(self, kernels: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [weight.grad for weight in kernels if weight.grad is not None]
        directions = self._directions(kernels, gradients, group["momentum"])
        for weight, direction in zip(kernels, directions, strict=True):
            weight.mul_(len(weight) ** 0.5 / weight.norm().clamp_min(1e-12))
            update = orthogonalised(direction.flatten(1)).view(weight.shape)
            weight.sub_(update.to(weight.dtype), alpha=RELATIVE_STEP * group["lr"])

    def _step_others(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        if not weights:
            return
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        if group["weight_decay"] > 0:
            gradients = list(torch._foreach_add(gradients, weights, alpha=group["weight_decay"]))
        directions = self._directions(weights, gradients, group["momentum"])
        torch._foreach_add_(weights, directions, alpha=-group["lr"])

    def _directions(
        self, weights: list[Tensor], gradients: list[Tensor], momentum: float
    ) -> list[Tensor]:
        """G + μ M, with the momentum M ← μ M + G."""
        if not weights:
            return []
        for weight in weights:
            if "momentum_buffer" not in self.state[weight]:
                self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        buffers = [self.state[weight]["momentum_buffer"] for weight in weights]
        torch._foreach_mul_(buffers, momentum)
        torch._foreach_add_(buffers, gradients)
        return list(torch._foreach_add(gradients, buffers, alpha=momentum))


def orthogonalised(matrix: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    """About U Vᵀ of `matrix` = U S Vᵀ, by five iterations of an odd polynomial.

    X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X brings singular values near 1 (between 0.7 and 1.2).
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16() if matrix.device.type == "cuda" else matrix
    x = x.T if is_tall else x
    x = x / x.norm().clamp_min(1e-12)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x
