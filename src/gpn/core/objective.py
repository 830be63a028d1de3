"""The objective of one step: the terms of the loss on one batch, ready to be summed."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gpn.core.embedding import Embedding
from gpn.core.generator import Generator
from gpn.core.losses import anchor_gap, code_kl, cross_entropy, squared_error
from gpn.core.prior import Prior
from gpn.core.train import Terms
from gpn.core.types import Functions, Inputs


@dataclass(frozen=True)
class Batch:
    """Some labeled rows and some pool rows; `rows` are the labeled ones' numbers in the task."""

    x_obs: Inputs
    y_obs: Tensor
    rows: Int[Tensor, "n"]
    x_pool: Float[Tensor, "m *d"]

    @property
    def x(self) -> Inputs:
        """Labeled rows, then pool rows: they share one forward pass (and batch statistics)."""
        return torch.cat([self.x_obs, self.x_pool])


@dataclass(frozen=True)
class Pairs:
    """Generated functions and their anchors: at the labels, and on the pool."""

    fitted: Functions
    generated: Float[Tensor, "k m o"]
    anchors: Float[Tensor, "k m o"]


class StoredAnchors(nn.Module):
    """k prior networks, each with a learnt code: the paper's scheme."""

    def __init__(
        self, generator: Generator, embedding: Embedding, prior: Prior, code_noise: float
    ) -> None:
        super().__init__()
        self.generator = generator
        self.embedding = embedding
        self.prior = prior
        self.code_noise = code_noise

    def every_row(self, batch: Batch, rng: torch.Generator) -> Pairs:
        """Every anchor sees every row: exact, at k times one network's cost."""
        codes = self.embedding.noisy(self.code_noise, rng)
        outputs = self.generator(batch.x, codes)
        fitted, generated = outputs.split([len(batch.x_obs), len(batch.x_pool)], dim=1)
        return Pairs(fitted, generated, self.prior(batch.x_pool))

    def one_per_row(self, batch: Batch, rng: torch.Generator) -> Pairs:
        """Each row draws one anchor: an unbiased estimate of `every_row` at one network's cost."""
        codes = self.embedding.noisy(self.code_noise, rng)
        n, m = len(batch.x_obs), len(batch.x_pool)
        picked = torch.randint(len(codes), (n + m,), generator=rng, device=rng.device)
        outputs = self.generator.paired(batch.x, codes[picked])
        on_pool = torch.arange(m, device=picked.device)
        anchors = self.prior(batch.x_pool)[picked[n:], on_pool]
        return Pairs(outputs[None, :n], outputs[None, n:], anchors[None])


def paper_terms(pairs: Pairs, y_obs: Tensor, codes: Float[Tensor, "k q"], beta: float) -> Terms:
    """L = mean_j [ data(g(x_obs, z_j), y_obs) + β ‖δ_j‖² ] + KL(N(z̄, s_z) ‖ N(0, I))."""
    return {
        "data": data_loss(pairs.fitted, y_obs).mean(),
        "anchor": beta * anchor_gap(pairs.generated, pairs.anchors).mean(),
        "codes": code_kl(codes),
    }


def data_loss(fitted: Functions, y_obs: Tensor) -> Float[Tensor, "k"]:
    """Squared error for targets ``(n, o)``, cross-entropy for class numbers ``(n,)``."""
    if y_obs.ndim == 1:
        return cross_entropy(fitted, y_obs)
    return squared_error(fitted, y_obs[None])
