"""Pool rows come as often as they weigh; the anchor term is that of the weights all the same."""

import pytest
import torch

import gpn
from gpn.methods.gpn.fitting.batches import by_weight
from gpn.methods.gpn.fitting.build import build_problem
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.model.batch import Batch

WEIGHTS = torch.tensor([0.01, 1.0, 0.3, 0.01, 0.7, 0.0])


def test_rows_come_in_proportion_to_their_weights() -> None:
    """Over many draws exactly so, and in each within the two parts at a row's ends."""
    rng, m, n = torch.Generator().manual_seed(0), 50, 4000
    pick, shares = by_weight(WEIGHTS, m), WEIGHTS / WEIGHTS.sum()
    counts = torch.stack([pick(rng).bincount(minlength=6) for _ in range(n)]).float()
    assert (counts.sum(1) == m).all()
    assert (counts[:, 5] == 0).all()
    assert ((counts - m * shares).abs() < 2).all()
    errors = counts.std(0) / n**0.5
    assert ((counts.mean(0) - m * shares).abs() <= 4 * errors + 1e-6).all()


def test_as_many_rows_say_more_when_drawn_by_weight() -> None:
    """w̄ · mean ℓ estimates (1/R) Σ w ℓ as a mean of w ℓ over any rows does, with less scatter."""
    rng = torch.Generator().manual_seed(0)
    losses = 1 + torch.rand(6, generator=rng)
    wanted = (WEIGHTS * losses).mean()
    pick = by_weight(WEIGHTS, 20)
    ours = torch.stack([WEIGHTS.mean() * losses[pick(rng)].mean() for _ in range(2000)])
    any_rows = torch.randint(6, (2000, 20), generator=rng)
    theirs = (WEIGHTS * losses)[any_rows].mean(1)
    for estimates in (ours, theirs):
        error = estimates.std() / len(estimates) ** 0.5
        assert abs(estimates.mean() - wanted) < 4 * error
    assert ours.std() < theirs.std() / 10


def test_the_same_numbers_for_the_same_seed() -> None:
    pick = by_weight(WEIGHTS, 9)
    first, second = (pick(torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)


def test_the_last_number_is_a_row() -> None:
    """Where rounding leaves the sum a hair below one, nothing lies beyond the last row."""
    weights = torch.full((999,), 0.1)
    rng = torch.Generator().manual_seed(0)
    for _ in range(50):
        assert int(by_weight(weights, 2000)(rng).max()) == 998


@pytest.mark.parametrize("generator", ["affine", "concat"])
def test_the_anchor_term_is_that_of_the_weights(generator: str) -> None:
    """E over batches of the step's anchor term = β (1/R) Σ_i w_i E_z ‖g(x_i) − f(x_i)‖²."""
    task, rng = _mixed_task(), torch.Generator().manual_seed(5)
    setting = _setting(task, generator)
    parts = build_problem(setting)
    weights, n_rows = setting.story["pool_weights"], len(setting.story["pool_rows"])
    assert float(weights.max() / weights.min()) > 10

    def anchor(rows: torch.Tensor) -> torch.Tensor:
        batch = parts.batches.next(rng)
        at = Batch(batch.x_obs, batch.y_obs, batch.rows, setting.story["pool_rows"][rows], rows)
        return parts.objective.terms(at, rng)["anchor"]

    with torch.no_grad():
        drawn = torch.stack(
            [parts.objective.terms(parts.batches.next(rng), rng)["anchor"] for _ in range(600)]
        )
        each = torch.stack(
            [anchor(torch.tensor([row]).repeat(40)) for row in range(n_rows)]
        )  # β w̄ E_z ‖δ‖² of one row at a time
    wanted = (weights * each).mean() / weights.mean()
    error = float(drawn.std() / len(drawn) ** 0.5) + 0.05 * float(wanted) * (generator == "concat")
    assert abs(float(drawn.mean() - wanted)) < 4 * error


def _mixed_task() -> gpn.Task:
    """Half of the pool lies where the labels do, half far away."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=rng)
    pool = torch.cat([torch.randn(60, 2, generator=rng), 6 + torch.randn(60, 2, generator=rng)])
    return gpn.Task(x, x.sum(1, keepdim=True), pool=pool)


def _setting(task: gpn.Task, generator: str) -> FitContext:
    config = gpn.GPNConfig(
        anchor="independent",
        beta=0.3,
        synthetic_ood=0.0,
        n_axes=4,
        generator=generator,
        trunk=gpn.MLPTrunk(widths=(8,)),
        train=gpn.TrainConfig(steps=5, label_batch=20, pool_batch=20, device="cpu"),
    ).resolved(task)
    assert config.prior is not None
    assert config.trunk is not None
    assert config.train is not None
    pool, seeds = task.required_pool("a GPN"), torch.Generator().manual_seed(0)
    return FitContext(
        config, config.prior, config.trunk, config.train, task, pool, seeds, lambda *_: None
    )
