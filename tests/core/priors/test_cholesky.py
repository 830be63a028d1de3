"""Factors of matrices that rounding has spoilt: as little is added as works, with a warning."""

import pytest
import torch

import gpn
from gpn.core.priors.cholesky import JitterWarning, cholesky, inverse_root, jittered_cholesky


def gram(n: int = 40, shift: float = 0.0) -> torch.Tensor:
    """A covariance of rank 3, so that its other eigenvalues are roundings, plus `shift`."""
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x @ x.T + shift * torch.eye(n, dtype=torch.float64)


def test_nothing_is_added_where_nothing_is_needed() -> None:
    matrix = gram(shift=1e-6)
    factor, share = jittered_cholesky(matrix, "K")
    assert share == 0.0
    assert torch.equal(factor, torch.linalg.cholesky(matrix))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_added_is_small_and_scales_with_the_matrix(
    scale: float, dtype: torch.dtype
) -> None:
    matrix = scale * gram(shift=-1e-7).to(dtype)
    with pytest.warns(JitterWarning, match=r"K should be positive definite.* of its mean was"):
        factor = cholesky(matrix, "K")
    error = (factor @ factor.T - matrix).abs().max() / matrix.diagonal().mean()
    assert error < 1e-5
    assert jittered_cholesky(matrix, "K")[1] < 1e-5


def test_the_least_power_of_ten_is_taken() -> None:
    """The smallest eigenvalue is −s: any share of the mean diagonal above s works."""
    for spoilt in (1e-9, 1e-6):
        matrix = gram(shift=0.0)
        mean = float(matrix.diagonal().mean())
        matrix.diagonal().sub_(spoilt * mean)
        _, share = jittered_cholesky(matrix, "K")
        assert spoilt < share * 1.001 < 20 * spoilt


def test_a_batch_is_factored_together() -> None:
    both = torch.stack([gram(shift=1.0), gram(shift=-1e-8)])
    with pytest.warns(JitterWarning):
        root = inverse_root(both, "P")
    identity = root.mT @ both @ root
    torch.testing.assert_close(identity[0], torch.eye(40, dtype=torch.float64), atol=1e-4, rtol=0)


def test_hopeless_matrices_are_refused() -> None:
    with pytest.raises(torch.linalg.LinAlgError, match="K must be positive definite, got one"):
        cholesky(-torch.eye(3), "K")
    with pytest.raises(torch.linalg.LinAlgError, match="K must be positive definite"):
        cholesky(torch.diag(torch.tensor([1.0, 1.0, -0.5])), "K")
    with pytest.raises(torch.linalg.LinAlgError, match="K must be finite, got NaN"):
        cholesky(torch.full((3, 3), torch.nan), "K")


def test_a_joint_fit_on_repeated_rows_reports_what_it_added() -> None:
    """Every row four times over, and a jitter below rounding."""
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None].repeat(4, 1)
    pool = torch.linspace(-2, 2, 30, dtype=torch.float64)[:, None].repeat(4, 1)
    config = gpn.GPNConfig(
        anchor="joint",
        jitter=1e-18,
        noise_std=0.1,
        trunk=gpn.MLPTrunk(widths=(16,)),
        train=gpn.TrainConfig(steps=5, pool_batch=64, device="cpu"),
    )
    with pytest.warns(JitterWarning, match="Σ_Ŷ of a batch should be positive definite"):
        posterior = gpn.GPN(config).fit(gpn.Task(x, x.sin(), pool=pool), rng=0)
    assert 0 < posterior.fit_report.added_jitter < 1e-6
    assert posterior.mean(x).isfinite().all()


def test_an_exact_gp_of_repeated_rows_without_noise_is_fitted() -> None:
    x = torch.linspace(-1, 1, 6, dtype=torch.float64)[:, None].repeat(3, 1)
    with pytest.warns(JitterWarning, match="covariance of the labels"):
        posterior = gpn.methods.get("gp", noise_std=1e-12).fit(gpn.Task(x, x.sin()), rng=0)
    torch.testing.assert_close(posterior.mean(x), x.sin(), atol=1e-3, rtol=0)
