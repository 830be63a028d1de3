"""Spectral axes reproduce the prior's covariance, at landmarks and elsewhere."""

import pytest
import torch

from gpn.core.priors.prior import ConvPrior, MLPPrior, PriorSpec
from gpn.core.priors.spectral import (
    DrawnAxes,
    DrawnKernel,
    KernelAxes,
    StretchedAxes,
    spectral_axes,
)
from gpn.core.types import as_generator


def test_axes_reproduce_the_kernel_at_new_rows() -> None:
    """ψ(x)·ψ(x') = K(x, x') between the landmarks."""
    prior, rng = MLPPrior(), torch.Generator().manual_seed(0)
    landmarks = 4 * torch.rand(400, 1, generator=rng, dtype=torch.float64) - 2
    fresh = torch.linspace(-1.9, 1.9, 23, dtype=torch.float64)[:, None]
    axes = KernelAxes(prior, landmarks, 60, 1.0)
    exact = prior.kernel(fresh, fresh)
    assert (axes(fresh) @ axes(fresh).T - exact).norm() / exact.norm() < 1e-3
    assert axes.explained_variance > 0.999


def test_the_explained_variance_is_that_of_the_axes_at_the_landmarks() -> None:
    prior = MLPPrior()
    landmarks = torch.linspace(-2, 2, 80, dtype=torch.float64)[:, None]
    for n_axes in (1, 3, 10):
        axes = KernelAxes(prior, landmarks, n_axes, 1.0)
        share = axes(landmarks).square().sum() / prior.kernel(landmarks, landmarks).trace()
        assert axes.n_axes == n_axes
        assert axes.explained_variance == pytest.approx(float(share), rel=1e-6)


def test_the_smallest_number_of_axes_that_explain_enough() -> None:
    landmarks = torch.linspace(-2, 2, 80, dtype=torch.float64)[:, None]
    axes = KernelAxes(MLPPrior(), landmarks, 80, 0.9)
    fewer = KernelAxes(MLPPrior(), landmarks, axes.n_axes - 1, 1.0)
    assert axes.explained_variance >= 0.9 > fewer.explained_variance


def test_axes_from_draws_agree_with_axes_from_the_kernel() -> None:
    """The same prior through its own networks: the covariance agrees within a few per cent."""
    prior = MLPPrior(widths=(256,))
    x = torch.linspace(-2, 2, 40, dtype=torch.float64)[:, None]
    draws = DrawnKernel(prior.sample((1,), 1, 4000, 0).to(x.device, x.dtype))
    drawn = DrawnAxes(draws, x, 12, 1.0)
    exact = KernelAxes(prior, x, 12, 1.0)
    covariance = exact(x) @ exact(x).T
    assert (drawn(x) @ drawn(x).T - covariance).norm() / covariance.norm() < 0.08
    assert drawn.explained_variance == pytest.approx(exact.explained_variance, abs=0.02)


def test_priors_without_a_kernel_get_axes_from_draws() -> None:
    images = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    axes = spectral_axes(ConvPrior(channels=(4,)), images, 2, 5, 1.0, as_generator(0))
    assert isinstance(axes, DrawnAxes)
    assert axes(images[:3]).shape == (3, 5)


@pytest.mark.parametrize("spec", [MLPPrior(), MLPPrior(activation="erf"), ConvPrior(channels=(4,))])
def test_stretched_axes_have_the_full_variance_of_every_row(spec: PriorSpec) -> None:
    """Σ_j ψ_j(x)² = Var[f(x)], and the directions do not change."""
    rng = torch.Generator().manual_seed(0)
    images = torch.randn(40, 1, 4, 4, generator=rng, dtype=torch.float64)
    axes = spectral_axes(spec, images[:20], 2, 3, 1.0, as_generator(0))
    stretched = StretchedAxes(axes)
    psi, wide = axes(images), stretched(images)
    assert (psi.square().sum(1) < 0.999 * axes.variance(images)).all(), "three axes explain less"
    torch.testing.assert_close(wide.square().sum(1), axes.variance(images))
    cosine = (psi * wide).sum(1) / (psi.norm(dim=1) * wide.norm(dim=1))
    torch.testing.assert_close(cosine, torch.ones_like(cosine))


def test_drawn_and_exact_variances_agree() -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    prior = MLPPrior().sample((3,), 1, 4000, as_generator(0)).to(x.device, x.dtype)
    drawn = DrawnAxes(DrawnKernel(prior), x, 2, 1.0)
    exact = KernelAxes(MLPPrior(), x, 2, 1.0)
    torch.testing.assert_close(drawn.variance(x), exact.variance(x), rtol=0.1, atol=0.0)


def test_axes_are_finite_where_all_of_them_are_zero() -> None:
    """A feature that is zero on every landmark, and a prior without biases: ψ(x) = 0 there."""
    landmarks = torch.zeros(10, 2, dtype=torch.float64)
    landmarks[:, 0] = torch.linspace(-2, 2, 10)
    spec = MLPPrior(bias_variance=(0.0, 0.0))
    row = torch.tensor([[0.0, 3.0]], dtype=torch.float64)
    psi = StretchedAxes(KernelAxes(spec, landmarks, 5, 1.0))(row)
    assert psi.isfinite().all()


def test_a_kernel_estimated_from_draws_is_the_kernel() -> None:
    """Within five Monte-Carlo errors, between two sets of rows."""
    rng = torch.Generator().manual_seed(0)
    left, right = torch.randn(4, 2, generator=rng), torch.randn(6, 2, generator=rng)
    spec, count = MLPPrior(widths=(512,)), 4000
    drawn = DrawnKernel(spec.sample((2,), 1, count, as_generator(0)))
    products = drawn.values(left)[:, None, :] * drawn.values(right)[None, :, :]
    error = products.double().std(-1) / count**0.5
    gap = drawn(left, right) - spec.kernel(left.double(), right.double())
    assert (gap.abs() / error).max() < 5
