"""The loss of a step: the written equation, and its closed form over z against Monte Carlo."""

import pytest
import torch
from torch import Tensor

from gpn.core.losses import code_kl, cross_entropy
from gpn.core.networks.trunks import MLPTrunk
from gpn.core.priors.prior import MLPPrior
from gpn.core.priors.spectral import KernelAxes
from gpn.methods.gpn.model.anchor_terms import AnchorTerm, IndependentTerm, JointTerm
from gpn.methods.gpn.model.anchors import (
    CodeLayout,
    SpectralAnchors,
    StoredAnchors,
    noise_directions,
)
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.codes import Embedding
from gpn.methods.gpn.model.generator import AffineGenerator, ConcatGenerator
from gpn.methods.gpn.model.objectives import ClosedForm, ClosedFormClasses, MonteCarlo

PRIOR, TRUNK = MLPPrior(activation="erf"), MLPTrunk(widths=(16,))
N, M, N_AXES, N_OUTPUTS, NOISE_STD = 5, 9, 4, 2, 0.4
BETA, JITTER = 0.3, 1e-3
X = torch.randn(N + M, 1, generator=torch.Generator().manual_seed(0))
Y = torch.randn(N, N_OUTPUTS, generator=torch.Generator().manual_seed(1))
BATCH = Batch(X[:N], Y, torch.arange(N), X[N:], torch.arange(M))
TERMS: dict[str, AnchorTerm] = {
    "independent": IndependentTerm(BETA),
    "joint": JointTerm(PRIOR.kernel, None, BETA, JITTER),
    "joint, tabulated": JointTerm(PRIOR.kernel, X, BETA, JITTER),
}

terms = pytest.mark.parametrize("term", TERMS.values(), ids=TERMS.keys())
noise_axes = pytest.mark.parametrize(
    "max_noise_axes", [N, 3], ids=["an axis per label", "shared axes"]
)
blocks_of_codes = pytest.mark.parametrize("blocks", [N_OUTPUTS, 1], ids=["blocks", "coupled"])


def affine_model(blocks: int, max_noise_axes: int) -> tuple[AffineGenerator, SpectralAnchors]:
    rng = torch.Generator().manual_seed(0)
    directions = noise_directions(N, max_noise_axes, rng, X)
    layout = CodeLayout(N_OUTPUTS, N_AXES, directions.shape[1], blocks)
    axes = KernelAxes(PRIOR, X[N:], N_AXES, 1.0)
    anchors = SpectralAnchors(axes, layout, 64, directions, NOISE_STD)
    return AffineGenerator(TRUNK, (1,), N_OUTPUTS, layout.code_dim, rng, blocks), anchors


def dense(columns: Tensor, blocks: int) -> tuple[Tensor, Tensor]:
    """b ``(n, o)`` and A ``(n, o, q)`` with a column for every axis of the code."""
    mean, loadings = columns[0], columns[1:].permute(1, 2, 0)
    if blocks == 1:
        return mean, loadings
    of_each = [torch.block_diag(*row[:, None, :]) for row in loadings]
    return mean, torch.stack(of_each)


def squared_gap(term: AnchorTerm, gap: Tensor) -> Tensor:
    """mean_m ‖δ(x'_m)‖² over pool rows, or δᵀ Σ_Ŷ⁻¹ δ over all; `gap` is ``(n, o, columns)``."""
    if isinstance(term, IndependentTerm):
        return gap[N:].square().sum() / M
    gram = PRIOR.kernel(X.double(), X.double()) + JITTER * torch.eye(N + M)
    flat = gap.flatten(1).double()
    return (flat * torch.linalg.solve(gram, flat)).sum().to(gap)


@terms
@noise_axes
@blocks_of_codes
def test_the_closed_form_is_the_written_equation(
    term: AnchorTerm, max_noise_axes: int, blocks: int
) -> None:
    """With [y, T] for the noisy labels and [0, Ψ] for the prior function of z,

    L = (1/N) Σ_i ‖y_i − b(x_i)‖² + ‖T_i − A(x_i)‖²_F + β gap([b, A] − [0, Ψ]).
    """
    generator, anchors = affine_model(blocks, max_noise_axes)
    psi = anchors.axes(X)
    found = ClosedForm(generator, anchors, term, psi[:N], psi[N:]).terms(BATCH, torch.Generator())
    mean, loadings = dense(generator.columns(X), blocks)
    n_noise = anchors.layout.n_noise
    prior, noise = torch.zeros_like(loadings), torch.zeros_like(loadings[:N])
    for output in range(N_OUTPUTS):
        first = output * anchors.layout.per_output
        prior[:, output, first : first + N_AXES] = psi
        own = slice(first + N_AXES, first + N_AXES + n_noise)
        noise[:, output, own] = NOISE_STD * anchors.noise_axes
    data = (Y - mean[:N]).square().sum() + (noise - loadings[:N]).square().sum()
    gap = torch.cat([mean[:, :, None], loadings - prior], dim=2)
    equation = data / N + BETA * squared_gap(term, gap)
    torch.testing.assert_close(torch.stack(list(found.values())).sum(), equation)


@pytest.mark.parametrize("name", ["independent", "joint"])
def test_the_papers_loss_is_the_written_equation(name: str) -> None:
    """L = mean_j [ (1/N) Σ_i ‖y_i + η_ij − g(x_i, z_j)‖² + β gap_j ] + KL(N(z̄, s_z) ‖ N(0, I))."""
    rng, k = torch.Generator().manual_seed(0), 7
    generator = ConcatGenerator(TRUNK, (1,), N_OUTPUTS, 3, rng)
    prior = PRIOR.replace(widths=(16,)).sample((1,), N_OUTPUTS, k, rng)
    embedding, noise = Embedding(k, 3, rng), torch.randn(k, N, N_OUTPUTS, generator=rng)
    anchors = StoredAnchors(prior, embedding, 0.0, noise)
    found = MonteCarlo(generator, anchors, TERMS[name], one_per_row=False).terms(BATCH, rng)
    outputs, targets = generator(X, embedding.codes), Y + noise
    equation = code_kl(embedding.codes)
    for j in range(k):
        data = (targets[j] - outputs[j, :N]).square().sum() / N
        gap = (outputs[j] - prior(X)[j])[:, :, None]
        equation = equation + (data + BETA * squared_gap(TERMS[name], gap)) / k
    torch.testing.assert_close(torch.stack(list(found.values())).sum(), equation)


@terms
@noise_axes
@blocks_of_codes
def test_the_closed_form_is_the_expectation_over_codes(
    term: AnchorTerm, max_noise_axes: int, blocks: int
) -> None:
    """E_z of the loss, term by term, within four Monte-Carlo errors and never exactly equal."""
    generator, anchors = affine_model(blocks, max_noise_axes)
    psi, rng = anchors.axes(X), torch.Generator().manual_seed(0)
    exact = ClosedForm(generator, anchors, term, psi[:N], psi[N:])
    sampled = MonteCarlo(generator, anchors, term, one_per_row=False)
    with torch.no_grad():
        closed = exact.terms(BATCH, rng)
        estimates = [sampled.terms(BATCH, rng) for _ in range(200)]
    for name in ("data", "anchor"):
        values = torch.stack([estimate[name] for estimate in estimates])
        error = float(values.std() / len(values) ** 0.5)
        assert error > 0
        assert abs(float(values.mean() - closed[name])) < 4 * error


@blocks_of_codes
def test_classes_differ_from_targets_in_the_data_term_only(blocks: int) -> None:
    """It is the cross-entropy at drawn codes."""
    generator, anchors = affine_model(blocks, 3)
    psi = anchors.axes(X)
    parts = generator, anchors, TERMS["independent"], psi[:N], psi[N:]
    batch = Batch(X[:N], torch.arange(N) % N_OUTPUTS, torch.arange(N), X[N:], torch.arange(M))
    seeded = [torch.Generator().manual_seed(3) for _ in range(2)]
    found = ClosedFormClasses(*parts, target_noise=False).terms(batch, seeded[0])
    expected = cross_entropy(generator(X[:N], anchors.draw(seeded[1])), batch.y_obs).mean()
    torch.testing.assert_close(found["data"], expected)
    targets = ClosedForm(*parts).terms(BATCH, torch.Generator())
    torch.testing.assert_close(found["anchor"], targets["anchor"])


def test_noise_directions_have_unit_length_and_are_orthogonal_while_labels_are_few() -> None:
    rng = torch.Generator().manual_seed(0)
    few = noise_directions(6, 8, rng, torch.zeros(1))
    torch.testing.assert_close(few @ few.T, torch.eye(6))
    many = noise_directions(50, 8, rng, torch.zeros(1))
    torch.testing.assert_close(many.norm(dim=1), torch.ones(50))
    assert many.shape == (50, 8)
