"""One whole number per row: the same for rows with the same values, wherever they lie."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

ROWS_AT_ONCE = 4096
LARGEST = 2**62


def row_keys(rows: Float[Tensor, "n *d"]) -> Int[Tensor, "n"]:
    """Σ_j c_j bits_j modulo 2⁶⁴ with random odd c: that of whole numbers is exact in any order.

    Two different rows share a key about once in 2⁶⁴ pairs.
    """
    parts = [_keys(part) for part in rows.flatten(1).split(ROWS_AT_ONCE)]
    return torch.cat(parts)


def _keys(rows: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
    bits = (rows + 0.0).contiguous().view(torch.int32).long()  # −0 + 0 is 0
    random = torch.Generator().manual_seed(0)
    factors = torch.randint(LARGEST, (bits.shape[1],), generator=random) * 2 + 1
    return (bits * factors.to(bits.device)).sum(1)
