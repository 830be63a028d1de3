"""The variance at each label without that label, in closed form: no second fit is needed.

A label of noise σ_ε² at x adds 1/σ_ε² to the precision of f(x), and c labels there add c/σ_ε².
With v the variance of f(x) given all labels, the variance without those at x is

    v₋ = 1 / (1/v − c/σ_ε²) = v / (1 − c v/σ_ε²)

It is the uncertainty at new rows like the labeled ones, and sets a threshold without held-out
labels.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.types import Inputs


def loo_variance(
    variance: Float[Tensor, "n"],
    x: Inputs,
    noise_std: float,
    weights: Float[Tensor, "n"] | None = None,
) -> Float[Tensor, "n"]:
    """v₋ at each label, from the variance v given all; duplicate rows are left out together.

    Labels of one row count as often as their weights say.
    """
    _, row = x.flatten(1).unique(dim=0, return_inverse=True)
    each = torch.ones_like(variance) if weights is None else weights.to(variance)
    copies = torch.zeros_like(variance).index_add(0, row, each)[row]
    remaining = 1 - copies * variance / noise_std**2
    return variance / remaining.clamp_min(torch.finfo(variance.dtype).eps)


def posterior_variance(gram: Float[Tensor, "n n"], noise_std: float) -> Float[Tensor, "n"]:
    """diag(K − K (K + σ_ε² I)⁻¹ K): the variance at the labels, given all of them."""
    values, vectors = torch.linalg.eigh(gram.double())
    values, noise = values.clamp_min(0.0), noise_std**2
    return vectors.square() @ (values * noise / (values + noise))
