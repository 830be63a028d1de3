"""One whole number per row: the same for rows with the same values, wherever they lie."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

NUMBERS_AT_ONCE = 2**24
LARGEST = 2**62


def row_keys(rows: Float[Tensor, "n *d"]) -> Int[Tensor, "n"]:
    """Σ_j c_j bits_j modulo 2⁶⁴ with random odd c: that of whole numbers is exact in any order.

    Two different rows share a key about once in 2⁶⁴ pairs; of round numbers, whose bits end in
    zeros, once in 2⁴⁰.
    """
    flat = rows.flatten(1)
    at_once = max(1, NUMBERS_AT_ONCE // max(1, flat.shape[1]))
    return torch.cat([_keys(part) for part in flat.split(at_once)])


def _keys(rows: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
    bits = (rows + 0.0).contiguous().view(torch.int32).long()  # −0 + 0 is 0
    random = torch.Generator().manual_seed(0)
    factors = torch.randint(LARGEST, (bits.shape[1],), generator=random) * 2 + 1
    return (bits * factors.to(bits.device)).sum(1)
