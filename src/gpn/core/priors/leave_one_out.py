"""How unknown a label's own row would be without that label: in closed form, without a second fit.

A label of noise σ_ε² at x adds 1/σ_ε² to the precision of f(x), c copies of the row add c/σ_ε².
With v the variance of f(x) given all labels, what it would be without those at x is

    v₋ = 1 / (1/v − c/σ_ε²) = v / (1 − c v/σ_ε²)

These are scores of known rows that no label was spent on; a threshold on new rows can stand there.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.types import Inputs


def loo_variance(variance: Float[Tensor, "n"], x: Inputs, noise_std: float) -> Float[Tensor, "n"]:
    """v₋ of each label, from its posterior `variance` v given all; copies of a row go together."""
    _, kinds, counts = x.flatten(1).unique(dim=0, return_inverse=True, return_counts=True)
    copies = counts[kinds].to(variance)
    kept = 1 - copies * variance / noise_std**2
    return variance / kept.clamp_min(torch.finfo(variance.dtype).eps)


def posterior_variance(gram: Float[Tensor, "n n"], noise_std: float) -> Float[Tensor, "n"]:
    """diag(K − K (K + σ_ε² I)⁻¹ K): the variance at labels, given all of them."""
    values, vectors = torch.linalg.eigh(gram.double())
    values, noise = values.clamp_min(0.0), noise_std**2
    return vectors.square() @ (values * noise / (values + noise))
