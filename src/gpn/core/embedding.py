"""The codes: one learnt point z_j per stored anchor."""

import torch
from torch import Tensor, nn

from gpn.core.types import Codes, normal


class Embedding(nn.Module):
    """k codes z_j ∈ R^q, started at N(0, I) and learnt with the generator."""

    def __init__(self, n_anchors: int, code_dim: int, rng: torch.Generator) -> None:
        super().__init__()
        if n_anchors <= code_dim:
            raise ValueError(
                "n_anchors must exceed code_dim so that the codes can spread, got "
                f"{n_anchors=} and {code_dim=}; try n_anchors={10 * code_dim}."
            )
        self.codes = nn.Parameter(torch.randn(n_anchors, code_dim, generator=rng))

    def noisy(self, code_noise: float, rng: torch.Generator) -> Codes:
        """z_j + ε with ε ~ N(0, code_noise² I), drawn anew at each step."""
        noise: Tensor = normal(tuple(self.codes.shape), rng, self.codes)
        return self.codes + code_noise * noise
