"""Which rows to label next: pure functions of joint draws, so that a batch is diverse.

Both are greedy: a row is judged given those that were picked before it.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpn.core.posterior import entropy
from gpn.core.shapes import require_count, require_shapes
from gpn.core.types import Draws

CONFIGURATIONS = 256
ROWS_AT_ONCE = 1024


def reduce_variance(draws: Draws, count: int, noise_variance: float = 0.0) -> Int[Tensor, "count"]:
    """Rows whose labels would lower the summed variance of all rows most, one after the other.

    For jointly Gaussian draws a label at i leaves  C − C_·i C_i· / (C_ii + σ²),  so that the gain
    is  Σ_j C_ji² / (C_ii + σ²),  summed over outputs; C is then conditioned, and so on.
    """
    require_shapes(draws=(draws, "s n o"))
    if len(draws) < 2 or not noise_variance >= 0:
        raise ValueError(
            "a variance must have at least 2 draws and no negative noise, got "
            f"{len(draws)} draws and {noise_variance=}."
        )
    centred = (draws - draws.mean(0)).permute(2, 0, 1) / (len(draws) - 1) ** 0.5
    noise = max(noise_variance, 1e-6 * float(centred.square().sum(1).mean()))
    left = torch.ones(draws.shape[1], dtype=torch.bool, device=draws.device)
    picked: list[int] = []
    for _ in range(min(require_count("the number of rows to pick", count), draws.shape[1])):
        row = int(_gains(centred, noise).masked_fill(~left, -1.0).argmax())
        left[row] = False
        picked.append(row)
        centred = _conditioned(centred, row, noise)
    return torch.tensor(picked, dtype=torch.long)


def _gains(centred: Float[Tensor, "o s n"], noise: float) -> Float[Tensor, "n"]:
    """Σ_j C_ji² / (C_ii + σ²) = ‖Lᵀ(L c_i)‖² / …, without the n × n matrix."""
    small = centred @ centred.mT
    lengths = (centred * (small @ centred)).sum(1)
    return (lengths / (centred.square().sum(1) + noise)).sum(0)


def _conditioned(centred: Float[Tensor, "o s n"], row: int, noise: float) -> Tensor:
    """Draws with the covariance that is left once `row` is labeled: (I − t vvᵀ) on the left."""
    v = centred[:, :, row]
    length = v.square().sum(1, keepdim=True)
    shrink = (1 - (noise / (length + noise)).sqrt()) / length.clamp_min(1e-300)
    return centred - (shrink * v)[:, :, None] * torch.einsum("os,osn->on", v, centred)[:, None, :]


def batch_bald(logits: Draws, count: int, rng: torch.Generator) -> Int[Tensor, "count"]:
    """Rows with the highest mutual information between their classes and the function, jointly.

    I(y_B; f) = H(y_B) − Σ_{i∈B} E_f H(y_i | f)  (Kirsch et al. 2019). The entropy of several rows'
    classes is estimated from classes sampled for those picked so far.
    """
    require_shapes(logits=(logits, "s n o"))
    p = logits.softmax(-1).double()  # (s, n, o)
    own = entropy(p).mean(0)
    left = torch.ones(p.shape[1], dtype=torch.bool, device=p.device)
    weights = p.new_ones(1, len(p)) / len(p)  # p(f | classes of the batch), one line per sample
    picked: list[int] = []
    for _ in range(min(require_count("the number of rows to pick", count), p.shape[1])):
        gain = _expected_entropy(weights, p) - own
        row = int(gain.masked_fill(~left, -torch.inf).argmax())
        left[row] = False
        picked.append(row)
        weights = _given(weights, p[:, row], rng)
    return torch.tensor(picked, dtype=torch.long)


def _expected_entropy(
    weights: Float[Tensor, "m s"], p: Float[Tensor, "s n o"]
) -> Float[Tensor, "n"]:
    def of(part: Tensor) -> Tensor:
        return entropy(torch.einsum("ms,sno->mno", weights, part)).mean(0)

    return torch.cat([of(part) for part in p.split(ROWS_AT_ONCE, dim=1)])


def _given(
    weights: Float[Tensor, "m s"], p: Float[Tensor, "s o"], rng: torch.Generator
) -> Float[Tensor, "k s"]:
    """The functions' weights given a sampled class at one more row, for every sampled batch."""
    if len(weights) < CONFIGURATIONS:
        weights = weights.repeat(-(-CONFIGURATIONS // len(weights)), 1)[:CONFIGURATIONS]
    classes = torch.multinomial((weights @ p).clamp_min(0.0), 1, generator=rng)[:, 0]
    updated = weights * p[:, classes].T
    return updated / updated.sum(1, keepdim=True).clamp_min(1e-300)
