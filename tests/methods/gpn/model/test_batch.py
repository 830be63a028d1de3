"""Pool rows are drawn in proportion to their weights, and the anchor term is the weighted mean."""

import pytest
import torch

import gpn
from gpn.methods.gpn.fitting.basis import pool_weights, prior_basis
from gpn.methods.gpn.fitting.build import build
from gpn.methods.gpn.model.batch import Batch, weighted_rows
from tests.methods.gpn.small import context

WEIGHTS = torch.tensor([0.01, 1.0, 0.3, 0.01, 0.7, 0.0])


def test_rows_come_in_proportion_to_their_weights() -> None:
    """Exactly so in expectation, and within two rows in each draw."""
    rng, m, n = torch.Generator().manual_seed(0), 50, 4000
    pick, shares = weighted_rows(WEIGHTS, m), WEIGHTS / WEIGHTS.sum()
    counts = torch.stack([pick(rng).bincount(minlength=6) for _ in range(n)]).float()
    assert (counts.sum(1) == m).all()
    assert (counts[:, 5] == 0).all()
    assert ((counts - m * shares).abs() < 2).all()
    errors = counts.std(0) / n**0.5
    assert ((counts.mean(0) - m * shares).abs() <= 4 * errors + 1e-6).all()


def test_weighted_rows_estimate_the_weighted_mean_with_less_variance() -> None:
    """w̄ · mean ℓ estimates (1/R) Σ w ℓ as the mean of w ℓ over uniform rows does."""
    rng = torch.Generator().manual_seed(0)
    losses = 1 + torch.rand(6, generator=rng)
    expected = (WEIGHTS * losses).mean()
    pick = weighted_rows(WEIGHTS, 20)
    weighted = torch.stack([WEIGHTS.mean() * losses[pick(rng)].mean() for _ in range(2000)])
    uniform = (WEIGHTS * losses)[torch.randint(6, (2000, 20), generator=rng)].mean(1)
    for estimates in (weighted, uniform):
        error = estimates.std() / len(estimates) ** 0.5
        assert abs(estimates.mean() - expected) < 4 * error
    assert weighted.std() < uniform.std() / 10


def test_the_same_rows_for_the_same_seed() -> None:
    pick = weighted_rows(WEIGHTS, 9)
    first, second = (pick(torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)


def test_no_row_number_is_too_large() -> None:
    """Even where rounding leaves the sum of the weights just below one."""
    weights = torch.full((999,), 0.1)
    rng = torch.Generator().manual_seed(0)
    for _ in range(50):
        assert int(weighted_rows(weights, 2000)(rng).max()) == 998


@pytest.mark.parametrize("generator", ["affine", "concat"])
def test_the_anchor_term_is_the_weighted_mean_over_the_pool(generator: str) -> None:
    """E over batches of the step's anchor term = β (1/R) Σ_i w_i E_z ‖g(x_i) − f(x_i)‖²."""
    fit = context(
        _mixed_task(),
        anchor="independent",
        beta=0.3,
        synthetic_ood=0.0,
        n_axes=4,
        generator=generator,
        train=gpn.TrainConfig(steps=5, label_batch=20, pool_batch=20, device="cpu"),
        reference_rows=1024,
    )
    problem, rng = build(fit), torch.Generator().manual_seed(5)
    pool = prior_basis(fit).pool
    found = pool_weights(fit, pool)
    assert found is not None
    weights = found.weights
    assert float(weights.max() / weights.min()) > 10

    def anchor_at(row: int) -> torch.Tensor:
        """β w̄ E_z ‖δ‖² of one row."""
        batch, numbers = problem.batches.next(rng), torch.full((40,), row)
        at = Batch(batch.x_obs, batch.y_obs, batch.rows, pool.rows[numbers], numbers)
        return problem.objective.terms(at, rng)["anchor"]

    with torch.no_grad():
        drawn = torch.stack(
            [problem.objective.terms(problem.batches.next(rng), rng)["anchor"] for _ in range(600)]
        )
        each = torch.stack([anchor_at(row) for row in range(len(pool))])
    expected = (weights * each).mean() / weights.mean()
    error = float(drawn.std() / len(drawn) ** 0.5)
    error += 0.05 * float(expected) * (generator == "concat")
    assert abs(float(drawn.mean() - expected)) < 4 * error


def _mixed_task() -> gpn.Task:
    """Half of the pool lies where the labels do, half far away."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=rng)
    pool = torch.cat([torch.randn(60, 2, generator=rng), 6 + torch.randn(60, 2, generator=rng)])
    return gpn.Task(x, x.sum(1, keepdim=True), pool=pool)
