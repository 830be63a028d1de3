"""The loss of one step, as in the paper:

    E_z [ data(g(x_obs, z), y_obs + η(z)) + β gap(g(·, z) − f(·; z)) ] + KL(N(z̄, s_z) ‖ N(0, I))

`MonteCarlo` averages over drawn codes and takes any generator; `ClosedForm` takes the expectation
over z exactly, for an affine generator with spectral anchors (cross-entropy still needs draws).
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gpn.core.losses import cross_entropy, data_loss, squared_error
from gpn.core.types import Functions
from gpn.methods.gpn.model.anchor_terms import AnchorTerm
from gpn.methods.gpn.model.anchors import Anchors, SpectralAnchors
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.codes import CodeMoments
from gpn.methods.gpn.model.generator import AffineGenerator, Columns, Generator
from gpn.training.state import Terms


class Objective(nn.Module, ABC):
    """A generator with its anchors: what the loop trains."""

    generator: Generator
    anchor_term: AnchorTerm

    @property
    def graph_safe(self) -> bool:
        """Whether a step can be captured as a CUDA graph."""
        return self.anchor_term.graph_safe

    @property
    def undecayed(self) -> list[nn.Module]:
        """Modules without weight decay: learnt codes, where there are some."""
        return [module for module in self.modules() if isinstance(module, Anchors)]

    def terms(self, batch: Batch, rng: torch.Generator) -> Terms:
        """The terms of the loss, whose sum is minimised; an objective may lack some."""
        generated, beta = self.generate(batch, rng), self.anchor_term.beta
        terms = {
            "data": self.data(generated, batch, rng),
            "anchor": self.expectation(beta * self.gap(generated, batch)),
            "codes": self.code_kl(),
        }
        return {name: term for name, term in terms.items() if term is not None}

    def expectation(self, values: Tensor) -> Float[Tensor, ""]:
        """E_z of a quadratic in z, from one number per column of an affine generator."""
        return values.sum()

    @abstractmethod
    def generate(self, batch: Batch, rng: torch.Generator) -> Any:
        """The generator's values at the batch."""

    @abstractmethod
    def data(self, generated: Any, batch: Batch, rng: torch.Generator) -> Float[Tensor, ""] | None:
        """E_z data(g(x_obs, z), y_obs + η(z))."""

    @abstractmethod
    def gap(self, generated: Any, batch: Batch) -> Float[Tensor, "k"]:
        """gap(g(·, z) − f(·; z)) of every function or column."""

    def code_kl(self) -> Float[Tensor, ""] | None:
        """KL(N(z̄, s_z) ‖ N(0, I)) of learnt codes."""
        return None

    def code_moments(self) -> CodeMoments | None:
        """Mean, spread and rank of learnt codes."""
        return None


class Drawn(NamedTuple):
    """Functions at drawn codes, their anchors at the compared rows, and their label noise."""

    outputs: Functions
    anchors: Functions
    noise: Float[Tensor, "#k n o"]


class MonteCarlo(Objective):
    """The mean over drawn codes z_j.

    `one_per_row`: each row draws one of the anchors, an unbiased estimate at one network's cost.
    """

    def __init__(
        self, generator: Generator, anchors: Anchors, anchor_term: AnchorTerm, *, one_per_row: bool
    ) -> None:
        super().__init__()
        self.generator = generator
        self.anchors = anchors
        self.anchor_term = anchor_term
        self.one_per_row = one_per_row

    def generate(self, batch: Batch, rng: torch.Generator) -> Drawn:
        return (self._one_per_row if self.one_per_row else self._every_row)(batch, rng)

    def expectation(self, values: Tensor) -> Float[Tensor, ""]:
        """The mean over drawn codes."""
        return values.mean()

    def data(self, generated: Drawn, batch: Batch, rng: torch.Generator) -> Float[Tensor, ""]:
        fitted = generated.outputs[:, : batch.n_labels]
        return data_loss(fitted, batch.y_obs, generated.noise).mean()

    def gap(self, generated: Drawn, batch: Batch) -> Float[Tensor, "k"]:
        by_row = generated.outputs.movedim(1, 0)
        compared = self.anchor_term.select(by_row, batch.n_labels).movedim(0, 1)
        return self.anchor_term(compared, generated.anchors, batch)

    def code_kl(self) -> Float[Tensor, ""] | None:
        return self.anchors.code_penalty()

    def code_moments(self) -> CodeMoments | None:
        return self.anchors.code_moments()

    def _every_row(self, batch: Batch, rng: torch.Generator) -> Drawn:
        codes = self.anchors.draw(rng)
        if self.anchor_term.pool_only:
            anchors = self.anchors.pool_values(batch, codes)
        else:
            anchors = self.anchors.values(batch.x, codes)
        return Drawn(self.generator(batch.x, codes), anchors, self.anchors.noise(batch.rows, codes))

    def _one_per_row(self, batch: Batch, rng: torch.Generator) -> Drawn:
        codes, n = self.anchors.draw(rng), batch.n_labels
        picked = torch.randint(len(codes), (len(batch.x),), generator=rng, device=rng.device)
        outputs = self.generator.paired(batch.x, codes[picked])
        anchors = self.anchors.pool_values(batch, codes)
        noise = self.anchors.noise(batch.rows, codes).expand(len(codes), -1, -1)
        return Drawn(outputs[None], _paired(anchors, picked[n:]), _paired(noise, picked[:n]))


class ClosedForm(Objective):
    """The expectation for g = b + A z, by sums over the 1 + q columns [b, A].

        E_z ‖(y + T z) − (b + A z)‖² = ‖y − b‖² + ‖T − A‖²_F

    and the anchor term likewise with [0, ψ] in place of [y, T]. ψ is looked up in tables.
    """

    psi_obs: Tensor
    psi_pool: Tensor

    def __init__(
        self,
        generator: AffineGenerator,
        anchors: SpectralAnchors,
        anchor_term: AnchorTerm,
        psi_obs: Float[Tensor, "N r"],
        psi_pool: Float[Tensor, "R r"],
    ) -> None:
        super().__init__()
        self.generator: AffineGenerator = generator
        self.anchors = anchors
        self.anchor_term = anchor_term
        self.register_buffer("psi_obs", psi_obs, persistent=False)
        self.register_buffer("psi_pool", psi_pool, persistent=False)

    def generate(self, batch: Batch, rng: torch.Generator) -> Columns:
        return self.generator.columns(batch.x)

    def data(self, generated: Columns, batch: Batch, rng: torch.Generator) -> Float[Tensor, ""]:
        noise = self.anchors.noise_columns(batch.rows)
        targets = torch.cat([batch.y_obs[None], noise[1:]])
        return squared_error(generated[:, : batch.n_labels], targets).sum()

    def gap(self, generated: Columns, batch: Batch) -> Float[Tensor, "k"]:
        select, n = self.anchor_term.select, batch.n_labels
        compared = select(generated.movedim(1, 0), n).movedim(0, 1)
        psi = torch.cat([self.psi_obs[batch.rows], self.psi_pool[batch.pool_rows]])
        return self.anchor_term(compared, self.anchors.columns(select(psi, n)), batch)


class ClosedFormClasses(ClosedForm):
    """The same for classes: cross-entropy over drawn codes, everything else exact.

    Target noise for classes is a pull on the logits, η_i ~ N(0, S_i) with S_i = E_z[diag p − p pᵀ]
    at label i. At the minimum Σ_q⁻¹ = Σ_Ŷ⁻¹ + E_z[∂²CE], so that b + A z is the best Gaussian
    approximation of the posterior in the sense of KL(q ‖ p), found without any log-determinant.
    """

    spread: Tensor

    def __init__(
        self,
        generator: AffineGenerator,
        anchors: SpectralAnchors,
        anchor_term: AnchorTerm,
        psi_obs: Float[Tensor, "N r"],
        psi_pool: Float[Tensor, "R r"],
        *,
        target_noise: bool,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(generator, anchors, anchor_term, psi_obs, psi_pool)
        self.target_noise = target_noise
        self.label_smoothing = label_smoothing
        o = generator.n_outputs
        uniform = torch.eye(o) / o - torch.full((o, o), o**-2.0)
        spread = uniform.expand(len(psi_obs) if target_noise else 0, o, o)
        self.register_buffer("spread", spread.to(psi_obs).clone())

    @property
    def graph_safe(self) -> bool:
        return super().graph_safe and not self.target_noise  # which takes eigenvectors

    def data(self, generated: Columns, batch: Batch, rng: torch.Generator) -> Float[Tensor, ""]:
        columns = generated[:, : batch.n_labels]
        logits = self.generator.combine(columns, self.anchors.draw(rng))
        loss = cross_entropy(logits, batch.y_obs, self.label_smoothing).mean()
        if not self.target_noise:
            return loss
        roots = self._noise_roots(logits.detach(), batch.rows)
        noise = self.anchors.noise_columns(batch.rows, roots)
        return loss - (noise * columns).sum((0, 2)).mean()

    @torch.no_grad()
    def _noise_roots(self, logits: Functions, rows: Int[Tensor, "n"]) -> Float[Tensor, "n o o"]:
        """S_i^{1/2}, from a running mean of diag p − p pᵀ over the steps."""
        with torch.autocast(logits.device.type, enabled=False):
            p = logits.to(self.spread.dtype).softmax(-1)
            now = torch.diag_embed(p.mean(0)) - torch.einsum("kna,knb->nab", p, p) / len(p)
            self.spread[rows] = torch.lerp(self.spread[rows], now, 0.02)
            values, vectors = torch.linalg.eigh(self.spread[rows])
            return (vectors * values.clamp_min(0.0).sqrt()[:, None, :]) @ vectors.mT


def _paired(functions: Functions, picked: Int[Tensor, "n"]) -> Float[Tensor, "1 n o"]:
    """Row i of function picked_i."""
    return functions[picked, torch.arange(len(picked), device=picked.device)][None]
