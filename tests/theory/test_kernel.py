"""The infinite-width kernel against tanh itself and against very wide networks."""

import pytest
import torch
from torch import Tensor

from gpn.core.priors.kernel import KOLMOGOROV_NODES, KOLMOGOROV_WEIGHTS
from gpn.core.priors.prior import MLPPrior


def kolmogorov_rule(n_nodes: int) -> tuple[Tensor, Tensor]:
    """Gauss quadrature for Kolmogorov's distribution: recurrence (Stieltjes), then Golub-Welsch."""
    grid = torch.linspace(0.15, 3.5, 4001, dtype=torch.float64)
    order = torch.arange(1, 60, dtype=torch.float64)[:, None]
    series = -((-1.0) ** order) * order**2 * torch.exp(-2 * order**2 * grid**2)
    mass = (8 * grid * series.sum(0)).clamp_min(0.0)
    mass /= mass.sum()
    before, current, norm_before = torch.zeros_like(grid), torch.ones_like(grid), 1.0
    diagonal, off_diagonal = [], []
    for _ in range(n_nodes):
        norm = float((mass * current**2).sum())
        centre = float((mass * grid * current**2).sum()) / norm
        ratio = norm / norm_before
        before, current = current, (grid - centre) * current - ratio * before
        diagonal.append(centre)
        off_diagonal.append(ratio**0.5)
        norm_before = norm
    links = torch.tensor(off_diagonal[1:], dtype=torch.float64)
    jacobi = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    nodes, vectors = torch.linalg.eigh(jacobi + torch.diag(links, 1) + torch.diag(links, -1))
    return nodes, vectors[0] ** 2


def test_the_quadrature_is_gaussian() -> None:
    nodes, weights = kolmogorov_rule(len(KOLMOGOROV_NODES))
    assert nodes.tolist() == pytest.approx(KOLMOGOROV_NODES, rel=1e-12)
    assert weights.tolist() == pytest.approx(KOLMOGOROV_WEIGHTS, rel=1e-9)


def test_tanh_is_a_scale_mixture_of_erf() -> None:
    u = torch.linspace(-12, 12, 999, dtype=torch.float64)
    rule = zip(KOLMOGOROV_NODES, KOLMOGOROV_WEIGHTS, strict=True)
    mixture = sum(weight * torch.erf(u / (2**0.5 * node)) for node, weight in rule)
    assert (mixture - u.tanh()).abs().max() < 1.5e-5


@pytest.mark.parametrize("activation", ["tanh", "erf", "relu"])
@pytest.mark.parametrize("depth", [1, 2])
def test_kernel_matches_many_wide_networks(activation: str, depth: int) -> None:
    """The covariance of 4,000 random networks agrees within five Monte-Carlo errors."""
    prior = MLPPrior(
        widths=(256,) * depth,
        prior_variance=(3.0, *[2.0] * depth),
        bias_variance=(1.0, *[0.5] * depth),
        activation=activation,
    )
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    values = prior.sample((2,), 1, 4000, rng=0)(x)[..., 0].double()
    products = values[:, :, None] * values[:, None, :]
    error = products.std(0) / 4000**0.5
    exact = prior.kernel(x.double(), x.double())
    assert ((products.mean(0) - exact).abs() / error).max() < 5


def test_default_prior_has_a_standard_deviation_of_about_three() -> None:
    x = torch.linspace(-2, 2, 50, dtype=torch.float64)[:, None]
    spread = MLPPrior().kernel(x, x).diagonal().sqrt()
    assert spread.min() > 2.7
    assert spread.max() < 3.2


@pytest.mark.parametrize("activation", ["tanh", "erf", "relu"])
def test_variance_is_the_diagonal(activation: str) -> None:
    prior = MLPPrior(
        widths=(16, 16),
        prior_variance=(3.0, 2.0, 5.0),
        bias_variance=(1.0, 0.5, 0.1),
        activation=activation,
    )
    x = torch.randn(7, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(prior.variance(x), prior.kernel(x, x).diagonal())


def test_a_prior_without_a_kernel_has_no_variance_either() -> None:
    with pytest.raises(NotImplementedError, match="no closed form"):
        MLPPrior(activation="silu").variance(torch.zeros(2, 1))
