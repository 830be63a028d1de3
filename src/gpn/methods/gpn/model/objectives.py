"""The objective of one step: data term + anchor term (+ code term) on one batch.

`MonteCarlo` averages over drawn codes and takes any generator; `ClosedForm` takes the expectation
over z exactly, for an affine generator with spectral anchors (cross-entropy still needs draws).
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gpn.core.losses import cross_entropy, data_loss, squared_error
from gpn.core.types import Functions
from gpn.methods.gpn.model.anchor_terms import AnchorTerm
from gpn.methods.gpn.model.anchors import Anchors, SpectralAnchors
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.generator import AffineGenerator, Columns, Generator
from gpn.training.state import Terms


class Objective(nn.Module, ABC):
    """A generator with its anchors: what the loop trains."""

    generator: Generator

    @property
    def added_jitter(self) -> float:
        """What covariances needed on their diagonals, as a share of their mean."""
        return 0.0

    @property
    @abstractmethod
    def graph_safe(self) -> bool:
        """Whether `terms` leaves the host alone, so that a GPU can repeat it (`core/replay.py`)."""

    @property
    def undecayed(self) -> list[nn.Module]:
        """What weight decay leaves alone: learnt codes, where there are some."""
        return [module for module in self.modules() if isinstance(module, Anchors)]

    @abstractmethod
    def terms(self, batch: Batch, rng: torch.Generator) -> Terms:
        """The weighted terms of the loss; their sum is minimised."""


class Anchored(Objective):
    """An objective whose anchor term is a relation between rows; that decides how it can run."""

    relation: AnchorTerm

    @property
    def added_jitter(self) -> float:
        return self.relation.added_jitter

    @property
    def graph_safe(self) -> bool:
        return self.relation.graph_safe


class MonteCarlo(Anchored):
    """mean_j [ data(g(x_obs, z_j), y + η_j) + gap(g(·, z_j) − f_j) ] + L_reg(z).

    `one_per_row`: each row draws one of the anchors, an unbiased estimate at one network's cost.
    """

    def __init__(
        self, generator: Generator, anchors: Anchors, relation: AnchorTerm, *, one_per_row: bool
    ) -> None:
        super().__init__()
        self.generator = generator
        self.anchors = anchors
        self.relation = relation
        self.pair = self._one_per_row if one_per_row else self._every_row

    def terms(self, batch: Batch, rng: torch.Generator) -> Terms:
        outputs, anchors, noise = self.pair(batch, rng)
        fitted = outputs[:, : batch.n_labels]
        compared = self.relation.part(outputs.movedim(1, 0), batch.n_labels).movedim(0, 1)
        return {
            "data": data_loss(fitted, batch.y_obs, noise).mean(),
            "anchor": self.relation(compared, anchors, batch).mean(),
            "codes": self.anchors.code_penalty(),
        }

    def _every_row(self, batch: Batch, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        codes = self.anchors.draw(rng)
        if self.relation.pool_only:
            anchors = self.anchors.pool_values(batch, codes)
        else:
            anchors = self.anchors.values(batch.x, codes)
        return self.generator(batch.x, codes), anchors, self.anchors.noise(batch.rows, codes)

    def _one_per_row(self, batch: Batch, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        codes, n = self.anchors.draw(rng), batch.n_labels
        picked = torch.randint(len(codes), (len(batch.x),), generator=rng, device=rng.device)
        outputs = self.generator.paired(batch.x, codes[picked])
        anchors = self.anchors.pool_values(batch, codes)
        noise = self.anchors.noise(batch.rows, codes).expand(len(codes), -1, -1)
        return outputs[None], _own(anchors, picked[n:]), _own(noise, picked[:n])


class ClosedForm(Anchored):
    """E_z of the whole loss for g = b + A z: sums over the 1 + q columns [b, A].

        E_z ‖(y + T z) − (b + A z)‖² = ‖y − b‖² + ‖T − A‖²_F

    and the anchor term likewise with [0, ψ] in place of [y, T]. ψ is looked up in tables.
    """

    psi_obs: Tensor
    psi_pool: Tensor

    def __init__(
        self,
        generator: AffineGenerator,
        anchors: SpectralAnchors,
        relation: AnchorTerm,
        psi_obs: Float[Tensor, "N r"],
        psi_pool: Float[Tensor, "R r"],
    ) -> None:
        super().__init__()
        self.generator: AffineGenerator = generator
        self.anchors = anchors
        self.relation = relation
        self.register_buffer("psi_obs", psi_obs, persistent=False)
        self.register_buffer("psi_pool", psi_pool, persistent=False)

    def terms(self, batch: Batch, rng: torch.Generator) -> Terms:
        columns = self.generator.columns(batch.x)
        by_row = columns.movedim(1, 0)
        compared = self.relation.part(by_row, batch.n_labels).movedim(0, 1)
        psi = torch.cat([self.psi_obs[batch.rows], self.psi_pool[batch.pool_rows]])
        targets = self.anchors.columns(self.relation.part(psi, batch.n_labels), self.generator)
        return {
            "data": self.data(columns[:, : batch.n_labels], batch, rng),
            "anchor": self.relation(compared, targets, batch).sum(),
        }

    def data(self, columns: Columns, batch: Batch, rng: torch.Generator) -> Float[Tensor, ""]:
        """The squared error's exact expectation."""
        targets = self.anchors.noise_columns(batch.rows, self.generator)
        targets = torch.cat([batch.y_obs[None], targets[1:]])
        return squared_error(columns, targets).sum()


class ClosedFormClasses(ClosedForm):
    """The same for classes: cross-entropy over drawn codes, everything else exact.

    Target noise for classes is a pull on the logits, η_i ~ N(0, S_i) with S_i = E_z[diag p − p pᵀ]
    at label i. At the minimum Σ_q⁻¹ = Σ_Ŷ⁻¹ + E_z[∂²CE], so that b + A z is the best Gaussian
    approximation of the posterior in the sense of KL(q ‖ p), found without any log-determinant.
    """

    spread: Tensor

    def __init__(self, *parts: object, n_labels: int, target_noise: bool) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.target_noise = target_noise
        o = self.generator.n_outputs
        uniform = torch.eye(o) / o - torch.full((o, o), o**-2.0)
        spread = uniform.expand(n_labels if target_noise else 0, o, o)
        self.register_buffer("spread", spread.to(self.psi_obs).clone())

    @property
    def graph_safe(self) -> bool:
        return super().graph_safe and not self.target_noise  # whose roots are eigenvectors

    def data(self, columns: Columns, batch: Batch, rng: torch.Generator) -> Float[Tensor, ""]:
        logits = self.generator.combine(columns, self.anchors.draw(rng))
        loss = cross_entropy(logits, batch.y_obs).mean()
        if not self.target_noise:
            return loss
        roots = self._noise_roots(logits.detach(), batch.rows)
        noise = self.anchors.noise_columns(batch.rows, self.generator, roots)
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


def _own(functions: Functions, picked: Int[Tensor, "n"]) -> Float[Tensor, "1 n o"]:
    """Row i of function picked_i."""
    return functions[picked, torch.arange(len(picked), device=picked.device)][None]
