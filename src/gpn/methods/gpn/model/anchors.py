"""Anchors: prior functions, each with the code that stands for it.

A code is ``(k, q)``. Target noise belongs to the code too: anchor j sees the labels y + η_j with a
fixed η_j ~ N(0, σ_ε²), which makes the linear-Gaussian case exact (tests/theory).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gpn.core.losses import code_kl
from gpn.core.priors.prior import Prior
from gpn.core.priors.spectral import SpectralAxes
from gpn.core.types import Codes, Functions, Inputs, normal
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.codes import CodeMoments, Embedding, code_moments
from gpn.methods.gpn.model.generator import Columns

Rows = Int[Tensor, "n"]


class Anchors(nn.Module, ABC):
    """Where codes come from, and which prior function and which label noise each one means."""

    @abstractmethod
    def draw(self, rng: torch.Generator) -> Codes:
        """The codes of one step."""

    @abstractmethod
    def values(self, x: Inputs, codes: Codes) -> Functions:
        """f(x; θ_j) for the function that each code stands for."""

    def pool_values(self, batch: Batch, codes: Codes) -> Functions:
        """`values` at the batch's pool rows: looked up where there is a table, else computed."""
        return self.values(batch.x_pool, codes)

    @abstractmethod
    def noise(self, rows: Rows, codes: Codes) -> Float[Tensor, "#k n o"]:
        """η_j at the labels of `rows`."""

    def code_penalty(self) -> Float[Tensor, ""] | None:
        """The regulariser L_reg of the codes, where codes are learnt."""
        return None

    def code_moments(self) -> CodeMoments | None:
        """The moments of the codes, where codes are learnt."""
        return None


class StoredAnchors(Anchors):
    """k prior networks with learnt codes: the paper's scheme; η is a fixed table ``(k, N, o)``.

    `at_pool` holds the networks' values at stored pool rows, where they were computed beforehand.
    """

    table: Tensor
    at_pool: Tensor | None

    def __init__(
        self,
        prior: Prior,
        embedding: Embedding,
        code_noise: float,
        table: Float[Tensor, "#k N o"],
        at_pool: Float[Tensor, "k R o"] | None = None,
    ) -> None:
        super().__init__()
        self.prior = prior
        self.embedding = embedding
        self.code_noise = code_noise
        self.register_buffer("table", table, persistent=False)
        self.register_buffer("at_pool", at_pool, persistent=False)

    def draw(self, rng: torch.Generator) -> Codes:
        return self.embedding.noisy(self.code_noise, rng)

    def values(self, x: Inputs, codes: Codes) -> Functions:
        return self.prior(x)

    def pool_values(self, batch: Batch, codes: Codes) -> Functions:
        if self.at_pool is None:
            return super().pool_values(batch, codes)
        return self.at_pool[:, batch.pool_rows]

    def noise(self, rows: Rows, codes: Codes) -> Float[Tensor, "#k n o"]:
        return self.table[:, rows]

    def code_penalty(self) -> Float[Tensor, ""]:
        return code_kl(self.embedding.codes)

    def code_moments(self) -> CodeMoments:
        return code_moments(self.embedding.codes.detach())


@dataclass(frozen=True)
class CodeLayout:
    """Where the axes of a spectral code lie: for each output, function axes and then noise axes.

    The generator has `blocks` of codes: one for each output, or 1 that moves all outputs.
    """

    n_outputs: int
    n_axes: int
    n_noise: int
    blocks: int

    @property
    def per_output(self) -> int:
        return self.n_axes + self.n_noise

    @property
    def code_dim(self) -> int:
        return self.n_outputs * self.per_output

    def split(self, codes: Codes) -> tuple[Float[Tensor, "k o r"], Float[Tensor, "k o p"]]:
        """The function part and the noise part of each output's code."""
        shaped = codes.reshape(len(codes), self.n_outputs, self.per_output)
        return shaped[..., : self.n_axes], shaped[..., self.n_axes :]

    def columns(
        self,
        function: Float[Tensor, "r n"] | None = None,
        noise: Float[Tensor, "p n"] | None = None,
        mixing: Float[Tensor, "n o o"] | None = None,
    ) -> Columns:
        """A zero column for b, then loadings of z in the generator's layout: [0, function, noise].

        `mixing` ties the outputs of a row, where the generator has one block for all.
        """
        present = function if function is not None else noise
        assert present is not None
        n = present.shape[1]
        axes = present.new_zeros(self.n_axes, n) if function is None else function
        rest = present.new_zeros(self.n_noise, n) if noise is None else noise
        matrix = torch.cat([axes, rest])
        if self.blocks == self.n_outputs:
            loadings = matrix[:, :, None].expand(-1, -1, self.n_outputs)
        else:
            if mixing is None:
                mixing = torch.eye(self.n_outputs, dtype=matrix.dtype, device=matrix.device)[None]
            mixed = torch.einsum("pn,nab->apnb", matrix, mixing.expand(n, -1, -1))
            loadings = mixed.reshape(-1, *mixed.shape[2:])
        return torch.cat([torch.zeros_like(loadings[:1]), loadings])


class SpectralAnchors(Anchors):
    """Unlimited anchors f(x; z) = ψ(x)·z; a code is, per output, r function axes then noise axes.

    `noise_axes` ``(N, p)`` has unit rows: η_i = σ_ε · noise_axes_i·z_noise. One axis per label
    makes the noise of different labels independent; fewer, random ones make it nearly so.
    """

    noise_axes: Tensor

    def __init__(
        self,
        axes: SpectralAxes,
        layout: CodeLayout,
        n_anchors: int,
        noise_axes: Float[Tensor, "N p"],
        noise_std: float,
    ) -> None:
        super().__init__()
        self.axes = axes
        self.layout = layout
        self.n_anchors = n_anchors
        self.noise_std = noise_std
        self.register_buffer("noise_axes", noise_axes, persistent=False)

    def draw(self, rng: torch.Generator) -> Codes:
        """Fresh codes, in pairs z and −z: the odd part of the sampling error cancels."""
        half = normal((-(-self.n_anchors // 2), self.layout.code_dim), rng, self.noise_axes)
        return torch.cat([half, -half])

    def values(self, x: Inputs, codes: Codes) -> Functions:
        return torch.einsum("nr,kor->kno", self.axes(x), self.layout.split(codes)[0])

    def noise(self, rows: Rows, codes: Codes) -> Functions:
        unit = torch.einsum("np,kop->kno", self.noise_axes[rows], self.layout.split(codes)[1])
        return self.noise_std * unit

    def columns(self, psi: Float[Tensor, "n r"]) -> Columns:
        """The prior function as columns of z: [0, ψ, 0]."""
        return self.layout.columns(function=psi.T)

    def noise_columns(self, rows: Rows, roots: Float[Tensor, "n o o"] | None = None) -> Columns:
        """The target noise as columns of z: [0, 0, σ_ε R], or with one root S_i^{1/2} per label."""
        axes = self.noise_axes[rows].T
        scaled = axes if roots is not None else self.noise_std * axes
        return self.layout.columns(noise=scaled, mixing=roots)


def noise_directions(
    n_labels: int, most: int, rng: torch.Generator, like: Tensor
) -> Float[Tensor, "N p"]:
    """Unit rows: the identity while labels are few, else random directions in `most` dimensions."""
    if n_labels <= most:
        return torch.eye(n_labels, dtype=like.dtype, device=like.device)
    directions = normal((n_labels, most), rng, like)
    return directions / directions.norm(dim=1, keepdim=True)
