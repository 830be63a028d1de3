"""The terms of the objective, one pure function each.

A term that compares functions returns one number per function, shape ``(k,)``: the mean over rows
of the sum over outputs. Their mean over k is the Monte-Carlo objective. Where the k functions are
the 1 + q columns [b, A] of an affine generator, their *sum* is the exact expectation over z:

    E_z ‖(t + T z) − (b + A z)‖² = ‖t − b‖² + ‖T − A‖²_F        z ~ N(0, I)
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from gpn.core.types import Codes, Functions, Labels

PerFunction = Float[Tensor, "k"]


def data_loss(
    fitted: Functions, y_obs: Tensor, noise: Float[Tensor, "#k n o"] | None = None
) -> PerFunction:
    """Squared error against y + η for targets ``(n, o)``, cross-entropy for class numbers."""
    if y_obs.ndim == 1:
        return cross_entropy(fitted, y_obs)
    return squared_error(fitted, y_obs[None] if noise is None else y_obs[None] + noise)


def squared_error(fitted: Functions, targets: Float[Tensor, "#k n o"]) -> PerFunction:
    """(1/N) Σ_i ‖y_i − g(x_i, z_j)‖²; `targets` may differ between functions."""
    return _gap(fitted, targets).square().sum(-1).mean(-1)


def cross_entropy(fitted: Functions, labels: Labels, smoothing: float = 0.0) -> PerFunction:
    """−(1/N) Σ_i log softmax(g(x_i, z_j))[y_i]; `smoothing` spreads that share over all classes."""
    repeated = labels.expand(len(fitted), -1)
    losses = functional.cross_entropy(
        fitted.movedim(-1, 1), repeated, reduction="none", label_smoothing=smoothing
    )
    return losses.mean(-1)


def anchor_gap(generated: Functions, anchors: Functions) -> PerFunction:
    """(1/M) Σ_m ‖δ_j(x'_m)‖² with δ_j = g(·, z_j) − f(·; θ_j): rows taken as independent."""
    return squared_error(generated, anchors)


def joint_gap(
    generated: Functions, anchors: Functions, cholesky: Float[Tensor, "n n"]
) -> PerFunction:
    """δ_jᵀ Σ_Ŷ⁻¹ δ_j, summed over outputs, with Σ_Ŷ = L Lᵀ given by its factor L."""
    gaps = _gap(generated, anchors).movedim(1, 0)
    flat = gaps.reshape(len(gaps), -1).to(cholesky.dtype)
    whitened = torch.linalg.solve_triangular(cholesky, flat, upper=False)
    per_output = whitened.square().sum(0).reshape(gaps.shape[1:])
    return per_output.sum(-1).to(torch.promote_types(generated.dtype, torch.float32))


def code_kl(codes: Codes) -> Float[Tensor, ""]:
    """KL(N(z̄, s_z) ‖ N(0, I)), with the mean and variance of each code dimension over the codes."""
    mean, variance = codes.mean(0), codes.var(0, correction=0)
    return 0.5 * (variance + mean.square() - 1 - variance.log()).sum()


def _gap(fitted: Functions, targets: Float[Tensor, "#k n o"]) -> Functions:
    """The difference in float32 at least: bfloat16 has three digits, too few for a difference."""
    if fitted.dtype == targets.dtype == torch.bfloat16:
        return fitted.float() - targets
    return fitted - targets
