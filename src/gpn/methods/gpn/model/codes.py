"""The codes: one learnt point z_j per stored anchor."""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class CodeMoments:
    """Of k codes: the size of their mean, their standard deviation (both per axis), their rank."""

    shift: float
    spread: float
    rank: float


def code_moments(codes: Codes) -> CodeMoments:
    """√(mean z̄²), √(mean s_z), and the effective rank exp(−Σ p log p), p = λ/Σλ of the covariance.

    (Roy and Vetterli 2007.) Of many codes from N(0, I): 0, 1 and q.
    """
    wide = codes.double()
    mean = wide.mean(0)
    covariance = (wide - mean).mT @ (wide - mean) / len(wide)
    powers = torch.linalg.eigvalsh(covariance).clamp_min(0.0)
    shares = powers / powers.sum().clamp_min(1e-300)
    rank = torch.special.entr(shares).sum().exp()
    spread = covariance.diagonal().mean().sqrt()
    return CodeMoments(float(mean.square().mean().sqrt()), float(spread), float(rank))
