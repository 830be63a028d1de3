"""Which rows to label next: a greedy choice, each given those picked before it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpn.core.checks import require_count, require_shapes

Root = Float[Tensor, "o s n"]


def reduce_variance(root: Root, count: int, noise_variance: float = 0.0) -> Int[Tensor, "count"]:
    """Rows whose labels would lower the summed variance of all rows most, one after the other.

    With C = LᵀL (`posterior.covariance_root`) a label at i leaves  C − C_·i C_i· / (C_ii + σ²),  so
    that the gain is  Σ_j C_ji² / (C_ii + σ²),  summed over outputs. C is conditioned on each pick.
    """
    require_shapes(root=(root, "o s n"))
    if not noise_variance >= 0:
        raise ValueError(f"the noise of labels must not be negative, got {noise_variance=}.")
    noise = max(noise_variance, 1e-6 * float(root.square().sum(1).mean()))
    free = torch.ones(root.shape[2], dtype=torch.bool, device=root.device)
    picked: list[int] = []
    for _ in range(min(require_count("the number of rows to pick", count), root.shape[2])):
        row = int(_gains(root, noise).masked_fill(~free, -1.0).argmax())
        free[row] = False
        picked.append(row)
        root = _conditioned(root, row, noise)
    return torch.tensor(picked, dtype=torch.long)


def _gains(root: Root, noise: float) -> Float[Tensor, "n"]:
    """Σ_j C_ji² / (C_ii + σ²) = ‖Lᵀ(L c_i)‖² / …, without the n × n matrix."""
    small = root @ root.mT
    lengths = (root * (small @ root)).sum(1)
    return (lengths / (root.square().sum(1) + noise)).sum(0)


def _conditioned(root: Root, row: int, noise: float) -> Root:
    """The root of the covariance given a label at `row`: (I − t vvᵀ) L."""
    v = root[:, :, row]
    length = v.square().sum(1, keepdim=True)
    shrink = (1 - (noise / (length + noise)).sqrt()) / length.clamp_min(1e-300)
    return root - (shrink * v)[:, :, None] * torch.einsum("os,osn->on", v, root)[:, None, :]
