"""Which rows to label next: a greedy choice, each given those picked before it.

A label at row i leaves the covariance  C − C_·i C_i· / (C_ii + σ²),  so that the summed variance
falls by the gain  Σ_j C_ji² / (C_ii + σ²),  summed over outputs. C is conditioned on each pick.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpn.core.checks import require_count, require_shapes

Root = Float[Tensor, "o s n"]


def reduce_variance(root: Root, count: int, noise_variance: float = 0.0) -> Int[Tensor, "count"]:
    """Rows whose labels would lower the summed variance of all rows most, one after the other.

    By a root with C = LᵀL (`posterior.covariance_root`) of fewer lines than rows.
    """
    require_shapes(root=(root, "o s n"))
    noise = _positive_noise(noise_variance, root.square().sum(1))
    free = torch.ones(root.shape[2], dtype=torch.bool, device=root.device)
    picked: list[int] = []
    for _ in range(min(require_count("the number of rows to pick", count), root.shape[2])):
        row = int(_gains(root, noise).masked_fill(~free, -1.0).argmax())
        free[row] = False
        picked.append(row)
        root = _conditioned(root, row, noise)
    return torch.tensor(picked, dtype=torch.long)


def reduce_exact_variance(
    covariance: Float[Tensor, "o n n"],
    count: int,
    noise_variance: float = 0.0,
    random_rows: torch.Generator | None = None,
) -> Int[Tensor, "count"]:
    """The same by the covariance itself.

    A covariance from a few hundred draws is no substitute: its spurious correlations, of
    1/√draws with each of thousands of rows, outweigh the true ones.

    With `random_rows` every second row is a random one: where functions are rougher than the
    covariance says, the rows that it prefers say little about all others.
    """
    require_shapes(covariance=(covariance, "o n n"))
    noise = _positive_noise(noise_variance, covariance.diagonal(dim1=1, dim2=2))
    left, n = covariance.clone(), covariance.shape[-1]
    free = torch.ones(n, dtype=torch.bool, device=covariance.device)
    picked: list[int] = []
    for _ in range(min(require_count("the number of rows to pick", count), n)):
        if random_rows is not None and len(picked) % 2 == 1:
            row = int(torch.multinomial(free.double().cpu(), 1, generator=random_rows))
        else:
            squares = torch.linalg.vector_norm(left, dim=1).square()
            gains = (squares / (left.diagonal(dim1=1, dim2=2) + noise)).sum(0)
            row = int(gains.masked_fill(~free, -1.0).argmax())
        free[row] = False
        picked.append(row)
        for matrix in left:
            column = matrix[:, row].clone()
            matrix.addr_(column, column, alpha=-1 / (float(column[row]) + noise))
    return torch.tensor(picked, dtype=torch.long)


def _positive_noise(noise_variance: float, variance: Tensor) -> float:
    """The noise of labels, a millionth of the rows' mean variance at least."""
    if not noise_variance >= 0:
        raise ValueError(f"the noise of labels must not be negative, got {noise_variance=}.")
    return max(noise_variance, 1e-6 * float(variance.mean()))


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
