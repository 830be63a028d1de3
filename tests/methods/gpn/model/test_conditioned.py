"""Conditioning in feature space is Bayesian linear regression, and its axes are optimal."""

import pytest
import torch
from torch import Tensor

from gpn.core.networks.trunks import MLPTrunk
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.conditioned import DistillationObjective, FeaturePosterior, condition
from gpn.methods.gpn.model.generator import AffineGenerator

SIGMA = 0.3
N_FEATURES = 6


def features(n: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, N_FEATURES, generator=rng, dtype=torch.float64)


PSI_OBS, PSI_POOL, PSI = features(9, 0), features(40, 1), features(5, 2)
Y_OBS = torch.stack([PSI_OBS[:, 0].sin(), PSI_OBS.sum(1)], dim=1)


def textbook() -> tuple[Tensor, Tensor]:
    """S = (ΨᵀΨ/σ² + I)⁻¹ and m = S Ψᵀy/σ², by an inverse."""
    precision = PSI_OBS.T @ PSI_OBS / SIGMA**2 + torch.eye(N_FEATURES).double()
    covariance = torch.linalg.inv(precision)
    return covariance @ PSI_OBS.T @ Y_OBS / SIGMA**2, covariance


def conditioned(n_axes: int = N_FEATURES) -> FeaturePosterior:
    return condition(PSI_OBS, Y_OBS, PSI_POOL, SIGMA, n_axes)


def test_with_all_axes_it_is_bayesian_linear_regression() -> None:
    posterior, (mean, covariance) = conditioned(), textbook()
    torch.testing.assert_close(posterior.mean, mean)
    torch.testing.assert_close(posterior.axes @ posterior.axes.T, covariance)
    assert posterior.explained_variance == pytest.approx(1.0)


def test_it_is_the_gaussian_process_of_these_features() -> None:
    """K = Ψ Ψᵀ: μ = K_xo (K_oo + σ² I)⁻¹ y and Σ = K_xx − K_xo (K_oo + σ² I)⁻¹ K_ox."""
    posterior = conditioned()
    cross = PSI @ PSI_OBS.T
    inverse = torch.linalg.inv(PSI_OBS @ PSI_OBS.T + SIGMA**2 * torch.eye(9).double())
    torch.testing.assert_close(PSI @ posterior.mean, cross @ inverse @ Y_OBS)
    columns = PSI @ posterior.axes
    torch.testing.assert_close(columns @ columns.T, PSI @ PSI.T - cross @ inverse @ cross.T)


@pytest.mark.parametrize("n_axes", [1, 2, 4])
def test_fewer_axes_explain_as_much_pool_variance_as_possible(n_axes: int) -> None:
    """Eckart and Young: the first q eigenvalues of the posterior covariance on the pool."""
    posterior, covariance = conditioned(n_axes), textbook()[1]
    values = torch.linalg.eigvalsh(PSI_POOL @ covariance @ PSI_POOL.T).flip(0)
    assert posterior.axes.shape == (N_FEATURES, n_axes)
    share = float(values[:n_axes].sum() / values.sum())
    assert posterior.explained_variance == pytest.approx(share)
    explained = (PSI_POOL @ posterior.axes).square().sum()
    torch.testing.assert_close(explained, values[:n_axes].sum())


@pytest.mark.parametrize("n_axes", [1, 3, N_FEATURES])
def test_targets_have_the_full_marginal_variance(n_axes: int) -> None:
    """diag(Ψ S Ψᵀ) at every row, for any number of axes; with all axes, the whole covariance."""
    posterior, (weights, covariance) = conditioned(n_axes), textbook()
    mean, axes = posterior.targets(PSI)
    exact = PSI @ covariance @ PSI.T
    torch.testing.assert_close(mean, PSI @ weights)
    torch.testing.assert_close((axes @ axes.T).diagonal(), exact.diagonal())
    if n_axes == N_FEATURES:
        torch.testing.assert_close(axes @ axes.T, exact)


def test_noisy_labels_give_the_prior_and_exact_ones_no_variance() -> None:
    vague = condition(PSI_OBS, Y_OBS, PSI_POOL, 1e6, N_FEATURES)
    torch.testing.assert_close(vague.axes @ vague.axes.T, torch.eye(N_FEATURES).double())
    assert vague.mean.abs().max() < 1e-9
    certain = condition(PSI_OBS, Y_OBS, PSI_POOL, 1e-4, N_FEATURES)
    assert (certain.axes @ certain.axes.T).abs().max() < 1e-6


def test_the_distillation_objective_is_the_expected_squared_gap() -> None:
    """E_z ‖g(x, z) − (mean + axes z)‖² in closed form against many codes."""
    rng = torch.Generator().manual_seed(0)
    posterior, x = conditioned(3), torch.randn(40, 2, generator=rng, dtype=torch.float64)
    generator = AffineGenerator(MLPTrunk(widths=(8,)), (2,), 2, 2 * 3, rng, blocks=2).double()
    mean, axes = PSI_POOL @ posterior.mean, PSI_POOL @ posterior.axes
    picked, n_labels = torch.tensor([3, 8, 17, 17, 30]), 10
    on_labels, on_pool = picked.split([2, 3])
    batch = Batch(x[on_labels], mean[on_labels], on_labels, x[on_pool], on_pool - n_labels)
    with torch.no_grad():
        loss = DistillationObjective(generator, n_labels, mean, axes).terms(batch, rng)["anchor"]
        codes = torch.randn(20_000, 6, generator=rng, dtype=torch.float64)
        parts = codes.reshape(-1, 2, 3)
        expected = mean[picked] + torch.einsum("nr,kor->kno", axes[picked], parts)
        gaps = (generator(x[picked], codes) - expected).square().sum(-1).mean(-1)
    assert abs(float(gaps.mean() - loss)) < 4 * float(gaps.std()) / 20_000**0.5
