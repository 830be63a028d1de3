"""Class probabilities of Gaussian logits: E[softmax(m + √v z)], z ~ N(0, I), by fixed draws.

The draws are Sobol points and their mirror images, so that results repeat to the last digit.
"""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.quasirandom import SobolEngine

from gpn.core.types import Outputs

PAIRS = 128
MAX_NUMBERS = 2**22  # logits at a time


@lru_cache(maxsize=32)
def _points(n_classes: int, pairs: int) -> Float[Tensor, "s o"]:
    engine = SobolEngine(min(n_classes, SobolEngine.MAXDIM), scramble=True, seed=0)
    uniform = engine.draw(pairs, dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
    points = torch.special.ndtri(uniform)
    if n_classes > points.shape[1]:
        points = points.repeat(1, -(-n_classes // points.shape[1]))[:, :n_classes]
    both = torch.cat([points, -points])
    return both / both.square().mean(0).sqrt()


def softmax_draws(mean: Outputs, variance: Outputs, pairs: int = PAIRS) -> Float[Tensor, "s n o"]:
    """softmax(m + √v z) for each of 2 · `pairs` draws."""
    points = _points(mean.shape[1], pairs).to(mean)
    return torch.softmax(mean + variance.sqrt() * points[:, None], dim=-1)


def softmax_moments(
    mean: Outputs, variance: Outputs, pairs: int = PAIRS
) -> tuple[Outputs, Float[Tensor, "n"]]:
    """E[p], and E[H[p]] in nats."""
    size = max(1, MAX_NUMBERS // (2 * pairs * mean.shape[1]))
    chunks = []
    for some_mean, some_variance in zip(mean.split(size), variance.split(size), strict=True):
        p = softmax_draws(some_mean, some_variance, pairs)
        chunks.append((p.mean(0), torch.special.entr(p).sum(-1).mean(0)))
    if not chunks:
        return mean, mean.new_zeros(0)
    probabilities, entropies = zip(*chunks, strict=True)
    return torch.cat(probabilities), torch.cat(entropies)
