"""The Gaussian process of an infinitely wide prior network: its covariance, layer by layer.

The input of a hidden unit, u = w·x + c, is Gaussian, so a layer maps a covariance K to

    K' = v · E[φ(u) φ(u')] + v_bias,        (u, u') ~ N(0, K)

and the expectation has a closed form for erf (arc-sine), ReLU (arc-cosine) and tanh.
"""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

# (Cov[u, u'], Var[u], Var[u']), shapes that broadcast, to E[φ(u) φ(u')], entry by entry
Entries = Float[Tensor, "..."]
Expectation = Callable[[Entries, Entries, Entries], Entries]

# Gauss quadrature for Kolmogorov's distribution (tests/theory/test_kernel.py derives it)
KOLMOGOROV_NODES = (
    *(0.4802495871659744, 0.6964366410056391, 0.994254459605051),
    *(1.3764110250492927, 1.838221608651141, 2.412921683257322),
)
CACHED_NUMBERS = 2**17  # of a chunk of a kernel, which stays in a core's cache from layer to layer
KOLMOGOROV_WEIGHTS = (
    *(0.09254474724483519, 0.42135677579134684, 0.3724900451435152),
    *(0.10483526446563918, 0.008660137818597903, 0.00011302953606488132),
)


def erf_expectation(cross: Entries, left: Entries, right: Entries) -> Entries:
    """E[erf(u) erf(u')] = (2/π) asin(2 K / √((1 + 2 K_uu)(1 + 2 K_vv))) (Williams 1997)."""
    return _arcsine(cross, left + 0.5, right + 0.5)


def relu_expectation(cross: Entries, left: Entries, right: Entries) -> Entries:
    """E[relu(u) relu(u')] = √(K_uu K_vv) (sin t + (π − t) cos t) / 2π (Cho and Saul 2009)."""
    lengths = left.sqrt(), right.sqrt()
    first, second = (length.clamp_min(1e-15).reciprocal() for length in lengths)
    cosine = (cross * first * second).clamp(-1.0, 1.0 - 1e-12)  # acos has no slope at 1
    sine = (1 - cosine.square()).sqrt()
    size = torch.addcmul(sine, math.pi - cosine.acos(), cosine)
    return size * (lengths[0] / (2 * math.pi)) * lengths[1]


def tanh_expectation(cross: Entries, left: Entries, right: Entries) -> Entries:
    """E[tanh(u) tanh(u')], because tanh is a scale mixture of erf.

    The logistic distribution is a normal one whose scale is twice a Kolmogorov variable T (Andrews
    and Mallows 1974), hence tanh(u) = E[erf(u / (√2 T))] and

        E[tanh(u) tanh(u')] = (2/π) Σ_ij w_i w_j asin(K / √((t_i² + K_uu)(t_j² + K_vv)))

    with Gauss nodes t and weights w for T: six of them reproduce tanh within 1.5e-5.
    """
    rule = list(zip(KOLMOGOROV_NODES, KOLMOGOROV_WEIGHTS, strict=True))
    total = torch.zeros_like(cross)
    for node_left, weight_left in rule:
        half = cross * (left + node_left**2).rsqrt()
        for node_right, weight_right in rule:
            # rounding exceeds 1 where K is so large that t² is lost in it
            term = (half * (right + node_right**2).rsqrt()).clamp_(-1.0, 1.0).asin_()
            total.add_(term, alpha=weight_left * weight_right * 2 / math.pi)
    return total


def _arcsine(cross: Entries, left: Entries, right: Entries) -> Entries:
    return (2 / math.pi) * (cross / (left * right).sqrt()).clamp(-1.0, 1.0).asin()


EXPECTATIONS: dict[str, Expectation] = {
    "erf": erf_expectation,
    "relu": relu_expectation,
    "tanh": tanh_expectation,
}


def mlp_kernel(
    left: Float[Tensor, "n d"],
    right: Float[Tensor, "m d"],
    variances: Sequence[float],
    bias_variances: Sequence[float],
    activation: str,
) -> Float[Tensor, "n m"]:
    """Cov[f(x), f(x')] of an infinitely wide MLP with one weight variance per fan-in and layer."""
    rows = max(1, CACHED_NUMBERS // max(1, len(right)))
    if rows < len(left) and left.device.type == "cpu" and not _needs_gradients(left, right):
        rest = right, variances, bias_variances, activation
        return torch.cat([mlp_kernel(chunk, *rest) for chunk in left.split(rows)])
    expectation = EXPECTATIONS[activation]
    cross, on_left, on_right = _linear(left, right, variances[0], bias_variances[0])
    for variance, bias in zip(variances[1:], bias_variances[1:], strict=True):
        cross = variance * expectation(cross, on_left, on_right)
        cross = cross + bias if bias else cross
        on_left = variance * expectation(on_left, on_left, on_left) + bias
        on_right = variance * expectation(on_right, on_right, on_right) + bias
    return cross


def _needs_gradients(*rows: Tensor) -> bool:
    return torch.is_grad_enabled() and any(part.requires_grad for part in rows)


def mlp_variance(
    x: Float[Tensor, "n d"],
    variances: Sequence[float],
    bias_variances: Sequence[float],
    activation: str,
) -> Float[Tensor, "n"]:
    """Var[f(x)]: the diagonal of `mlp_kernel`, without the matrix."""
    total = variances[0] / x.shape[1] * x.square().sum(1) + bias_variances[0]
    for variance, bias in zip(variances[1:], bias_variances[1:], strict=True):
        total = variance * EXPECTATIONS[activation](total, total, total) + bias
    return total


def _linear(
    left: Float[Tensor, "n d"], right: Float[Tensor, "m d"], variance: float, bias: float
) -> tuple[Float[Tensor, "n m"], Float[Tensor, "n 1"], Float[Tensor, "1 m"]]:
    """The first layer: K = v x·x'/d + v_bias, with both diagonals."""
    scale = variance / left.shape[1]
    cross = scale * (left @ right.T) + bias
    on_left = scale * left.square().sum(1)[:, None] + bias
    on_right = scale * right.square().sum(1)[None, :] + bias
    return cross, on_left, on_right
