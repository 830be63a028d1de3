"""DKL against the closed form of its grid posterior, and against GPyTorch's exact GP."""

import subprocess
import sys

import gpytorch
import pytest
import torch
from torch import Tensor

import gpn
from gpn.methods.dkl import DKL, DKLConfig, DKLPosterior
from gpn.methods.dkl.grid import GridProcess, NaturalGradient, interpolation
from gpn.training.batches import LabelBatches

QUICK = DKLConfig(grid_size=8, trunk=gpn.MLPTrunk(widths=(16, 16)), train=gpn.TrainConfig(steps=40))
GRID = torch.linspace(-2, 2, 9)[:, None]
X = torch.linspace(-0.9, 0.9, 12, dtype=torch.float64)[:, None]


@pytest.fixture
def solved() -> GridProcess:
    """A process on one axis, solved exactly for two outputs."""
    task = gpn.Task(X, torch.cat([(3 * X).sin(), X.square()], dim=1))
    process = GridProcess(20, 1, 0.4, 0.1, task.signature)
    batches = LabelBatches(len(X), len(X), torch.Generator())
    NaturalGradient(process, torch.nn.Identity(), task, batches, 0.1).solve()
    return process


def test_solved_grid_is_the_exact_posterior(solved: GridProcess) -> None:
    """q(u) = N(S Wᵀy/σ², S), S = (K⁻¹ + WᵀW/σ²)⁻¹: conjugate, so one natural step reaches it."""
    strategy = solved.variational_strategy
    prior = strategy.prior_distribution.covariance_matrix[0].detach()
    weights = interpolation(strategy.grid, X)
    covariance = torch.linalg.inv(torch.linalg.inv(prior) + weights.T @ weights / 0.1**2)
    _, mean, root, noise_std = solved.posterior()
    assert noise_std == pytest.approx(0.1, rel=1e-6)
    torch.testing.assert_close(root[0] @ root[0].T, covariance, rtol=1e-4, atol=1e-6)
    expected = covariance @ weights.T @ (3 * X).sin() / 0.1**2
    torch.testing.assert_close(mean[0], expected[:, 0], rtol=1e-4, atol=1e-5)


def test_solved_grid_agrees_with_gpytorch_exact_gp(solved: GridProcess) -> None:
    """The same kernel without a grid: the two differ by interpolation and jitter only."""

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, likelihood: gpytorch.likelihoods.GaussianLikelihood) -> None:
            super().__init__(X, (3 * X[:, 0]).sin(), likelihood)
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
            self.kernel.base_kernel.lengthscale = 0.4

        def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(x.new_zeros(len(x)), self.kernel(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.01
    model = Exact(likelihood).double().eval()
    rows = torch.linspace(-0.85, 0.85, 7, dtype=torch.float64)[:, None]
    with torch.no_grad():
        exact = model(rows)
    grid, mean, root, _ = solved.posterior()
    weights = interpolation(grid, rows)
    torch.testing.assert_close(weights @ mean[0], exact.mean, rtol=0.0, atol=0.02)
    spread = (weights @ root[0]).square().sum(1).sqrt()
    torch.testing.assert_close(spread, exact.stddev, rtol=0.1, atol=0.01)


def test_interpolation_reproduces_the_coordinates() -> None:
    """Cubic weights sum to one and return the point itself, on the nodes of the strategy."""
    strategy = GridProcess(10, 2, 0.3, 0.1, gpn.Task(X, X).signature).variational_strategy
    points = torch.rand(20, 2, generator=torch.Generator().manual_seed(0)).double() * 1.9 - 0.95
    weights = interpolation(strategy.grid, points)
    torch.testing.assert_close(weights.sum(1), torch.ones(20).double(), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(weights @ strategy.inducing_points, points, rtol=0.0, atol=1e-5)


def test_draws_have_the_closed_form_moments(line: gpn.Task) -> None:
    posterior = DKL(QUICK).fit(line, rng=0)
    draws = posterior.sample(GRID, 20_000, rng=0)
    mean, std = posterior.mean(GRID), posterior.std(GRID)
    assert ((draws.mean(0) - mean).abs() / std).max() < 5 / 20_000**0.5
    torch.testing.assert_close(draws.std(0), std, rtol=0.03, atol=0.0)


def test_regression_fits_its_labels() -> None:
    task = gpn.Task(GRID, torch.cat([GRID.sin(), GRID.cos()], dim=1))
    posterior = DKL(QUICK.replace(train=gpn.TrainConfig(steps=200))).fit(task, rng=0)
    assert (posterior.mean(GRID) - task.y_obs).square().mean() < 0.05
    assert posterior.noise_std is not None
    assert posterior.noise_std < 0.4


def test_classes_are_separated(classes: gpn.Task) -> None:
    posterior = DKL(QUICK.replace(train=gpn.TrainConfig(steps=120))).fit(classes, rng=0)
    assert posterior.noise_std is None
    right = posterior.probabilities(classes.x_obs).argmax(1) == classes.y_obs
    assert right.double().mean() > 0.9


def test_as_many_labels_as_classes() -> None:
    """GPyTorch's softmax would take such a batch for a transposed one."""
    task = gpn.Task(torch.eye(3), torch.arange(3))
    posterior = DKL(QUICK.replace(train=gpn.TrainConfig(steps=120))).fit(task, rng=0)
    assert torch.equal(posterior.probabilities(task.x_obs).argmax(1), task.y_obs)


def test_a_draw_is_a_fixed_function_with_gradients(line: gpn.Task) -> None:
    function = DKL(QUICK).fit(line, rng=0).draw(rng=1)
    x = torch.tensor([[0.3]], dtype=torch.float64, requires_grad=True)
    function(x).sum().backward()
    step = 1e-2
    slope = (function(x.detach() + step) - function(x.detach() - step)) / (2 * step)
    assert float(x.grad) == pytest.approx(float(slope), rel=0.05, abs=0.01)
    torch.testing.assert_close(function(GRID)[:3], function(GRID[:3]))


def test_seeds_determine_the_fit_and_no_global_state_changes(
    classes: gpn.Task,
) -> None:
    before = torch.get_rng_state()
    first, second = (DKL(QUICK).fit(classes, rng=3).sample(classes.x_obs, 4, rng=0) for _ in "ab")
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_round_trip_keeps_draws(line: gpn.Task) -> None:
    posterior = DKL(QUICK).fit(line, rng=0)
    again = DKLPosterior.restore(posterior.config, posterior.signature, posterior.tensors())
    assert torch.equal(posterior.sample(GRID, 7, rng=1), again.sample(GRID, 7, rng=1))
    assert again.noise_std == posterior.noise_std


def test_a_grid_with_too_many_nodes_is_an_error() -> None:
    with pytest.raises(ValueError, match="at most 4096 nodes"):
        DKLConfig(embedding_dim=4, grid_size=16)


def test_a_step_without_a_positive_precision_is_halved() -> None:
    """Natural steps of length 50 on classes leave the precision of q(u) positive definite."""
    x = torch.linspace(-1, 1, 30)[:, None]
    task = gpn.Task(x, (x[:, 0] > 0).long())
    config = QUICK.replace(natural_rate=50.0)
    posterior = DKL(config).fit(task, rng=0)
    assert posterior.sample(x, 5, rng=0).isfinite().all()


def test_classes_are_learnt_from_many_labels() -> None:
    """Natural steps as long as those for a conjugate likelihood would not converge here."""
    x = torch.randn(1500, 2, generator=torch.Generator().manual_seed(0))
    classes = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    train = gpn.TrainConfig(steps=150, label_batch=64, learning_rate=5e-3)
    trunk = gpn.MLPTrunk(widths=(32, 32))
    posterior = DKL(DKLConfig(grid_size=8, trunk=trunk, train=train)).fit(
        gpn.Task(x, classes), rng=0
    )
    right = posterior.probabilities(x, n=50).argmax(1) == classes
    assert float(right.double().mean()) > 0.85


def test_pretraining_learns_classes_that_no_random_network_separates() -> None:
    """Signs of a product: without pretraining neither q(u) nor the embedding has a gradient."""
    x = torch.randn(2500, 12, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * x[:, 1] > 0).long() + 2 * (x[:, 2] * x[:, 3] > 0).long()
    train = gpn.TrainConfig(steps=120, label_batch=128, learning_rate=3e-3)
    config = QUICK.replace(trunk=gpn.MLPTrunk(widths=(64, 64), activation="relu"), train=train)
    right = {}
    for alone in (0.0, 1.0):
        posterior = DKL(config.replace(alone=alone)).fit(gpn.Task(x[:2000], y[:2000]), rng=0)
        classes = posterior.probabilities(x[2000:]).argmax(1)
        right[alone] = float((classes == y[2000:]).double().mean())
    assert right[1.0] > 0.7
    assert right[1.0] > right[0.0] + 0.1


@pytest.mark.parametrize("alone", [-1.0, float("nan"), float("inf")])
def test_negative_pretraining_is_an_error(alone: float) -> None:
    with pytest.raises(ValueError, match="alone must not be negative"):
        QUICK.replace(alone=alone)


def test_ctrl_c_during_pretraining_ends_the_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The training after it would start from an untrained network."""
    draw, calls = LabelBatches.next, []

    def interrupted(batches: LabelBatches) -> Tensor:
        calls.append(1)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return draw(batches)

    monkeypatch.setattr(LabelBatches, "next", interrupted)
    x = torch.linspace(-1, 1, 30)[:, None]
    with pytest.raises(KeyboardInterrupt):
        DKL(QUICK).fit(gpn.Task(x, (x[:, 0] > 0).long()), rng=0)
    assert len(calls) == 10


ON_TWO_THREADS = """
import torch, gpn
torch.set_num_threads(2)
x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
train = gpn.TrainConfig(steps=2, device="cpu")
gpn.methods.get("dkl", train=train).fit(gpn.Task(x, torch.arange(40) % 5), rng=0)
"""


def test_many_processes_are_fitted_on_two_threads() -> None:
    """A batched LU of this size never returns there (torch 2.13); Cholesky factors are fine."""
    subprocess.run([sys.executable, "-c", ON_TWO_THREADS], check=True, timeout=120)
