"""The closed form over z against Monte Carlo, for targets and for classes."""

import pytest
import torch

from gpn.core.networks.trunks import MLPTrunk
from gpn.core.priors.prior import MLPPrior
from gpn.core.priors.spectral import KernelAxes
from gpn.methods.gpn.model.anchor_terms import AnchorTerm, IndependentTerm, JointTerm
from gpn.methods.gpn.model.anchors import SpectralAnchors, noise_directions
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.generator import AffineGenerator
from gpn.methods.gpn.model.objectives import ClosedForm, MonteCarlo

PRIOR = MLPPrior(activation="erf")


def joint(batch: Batch) -> torch.Tensor:
    return PRIOR.kernel(batch.x.double(), batch.x.double())


@pytest.mark.parametrize(
    "relation",
    [IndependentTerm(0.3), JointTerm(joint, 0.01, 1e-3)],
    ids=["independent", "joint"],
)
@pytest.mark.parametrize("most_noise_axes", [5, 3], ids=["own axes", "shared axes"])
@pytest.mark.parametrize("blocks", [2, 1], ids=["blocks", "coupled"])
def test_closed_form_is_the_expectation_over_codes(
    relation: AnchorTerm, most_noise_axes: int, blocks: int
) -> None:
    """E_z of the loss, term by term, within four Monte-Carlo errors and never exactly equal."""
    rng = torch.Generator().manual_seed(0)
    x_obs, x_pool = torch.randn(5, 1, generator=rng), torch.randn(9, 1, generator=rng)
    axes = KernelAxes(PRIOR, x_pool, 4, 1.0)
    directions = noise_directions(5, most_noise_axes, rng, x_obs)
    anchors = SpectralAnchors(axes, 4, 2, 64, directions, noise_std=0.4)
    trunk = MLPTrunk(widths=(16,))
    generator = AffineGenerator(trunk, (1,), 2, anchors.code_dim, rng, blocks=blocks)
    y_obs = torch.randn(5, 2, generator=rng)
    batch = Batch(x_obs, y_obs, torch.arange(5), x_pool, torch.arange(9))
    exact = ClosedForm(generator, anchors, relation, axes(x_obs), axes(x_pool))
    sampled = MonteCarlo(generator, anchors, relation, one_per_row=False)
    with torch.no_grad():
        closed = exact.terms(batch, rng)
        estimates = [sampled.terms(batch, rng) for _ in range(200)]
    for name in ("data", "anchor"):
        values = torch.stack([estimate[name] for estimate in estimates])
        error = float(values.std() / len(values) ** 0.5)
        assert error > 0
        assert abs(float(values.mean() - closed[name])) < 4 * error


def test_noise_directions_have_unit_length_and_are_independent_while_labels_are_few() -> None:
    rng = torch.Generator().manual_seed(0)
    few = noise_directions(6, 8, rng, torch.zeros(1))
    torch.testing.assert_close(few @ few.T, torch.eye(6))
    many = noise_directions(50, 8, rng, torch.zeros(1))
    torch.testing.assert_close(many.norm(dim=1), torch.ones(50))
    assert many.shape == (50, 8)
