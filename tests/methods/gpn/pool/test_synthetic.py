"""Made-up images and rows keep what they should keep, and lose the rest."""

import pytest
import torch
from torch import Tensor

import gpn
from gpn.methods.gpn.pool.synthetic import (
    synthetic_outliers,
    synthetic_images,
    synthetic_rows,
    random_phases,
    shuffled_patches,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some(*shape: int) -> Tensor:
    return torch.randn(shape, generator=seeded(1))


@pytest.mark.parametrize("size", [(28, 28), (7, 10), (1, 1)])
def test_random_phases_keep_the_spectrum_and_the_mean_power(size: tuple[int, int]) -> None:
    """|F| at every frequency but those whose phase must be 0 or π for the image to be real."""
    x = some(6, 3, *size)
    before, after = (torch.fft.rfft2(i) for i in (x, random_phases(x, seeded())))
    free = torch.ones(before.shape[2:], dtype=torch.bool)
    free[:, 0] = False
    if size[1] % 2 == 0:
        free[:, -1] = False
    torch.testing.assert_close(before.abs()[..., free], after.abs()[..., free], atol=1e-4, rtol=0)
    if size == (28, 28):
        assert (random_phases(x, seeded()) - x).abs().mean() > 0.5


def test_channels_share_their_phases() -> None:
    grey = some(6, 1, 9, 8).expand(-1, 3, -1, -1)
    made = random_phases(grey, seeded())
    torch.testing.assert_close(made, made[:, :1].expand_as(made))


@pytest.mark.parametrize("size", [(28, 28), (7, 10), (3, 2), (1, 1)])
def test_shuffled_patches_keep_every_pixel(size: tuple[int, int]) -> None:
    x = some(6, 3, *size)
    moved = shuffled_patches(x, seeded())
    assert moved.shape == x.shape
    for before, after in zip(x, moved, strict=True):
        kept = [p.sort(0).values for p in (before.flatten(1).T, after.flatten(1).T)]
        torch.testing.assert_close(*kept)


def test_patches_move_as_a_whole() -> None:
    marked = torch.arange(16.0).reshape(1, 1, 4, 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
    moved = shuffled_patches(marked, seeded())
    blocks = moved.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    assert (blocks == blocks[..., :1]).all()
    assert (moved != marked).any()


@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_as_many_as_asked_for_and_the_generator_decides(count: int) -> None:
    x = some(10, 1, 8, 8)
    first, second = (synthetic_images(x, count, seeded()) for _ in range(2))
    assert first.shape == (count, 1, 8, 8)
    assert torch.equal(first, second)
    assert torch.isfinite(first).all()


COUNT = 20_000


def dependent() -> Tensor:
    """A column, a line and a square of it, and one that never changes."""
    first = some(500)
    return torch.stack([first, 2 * first - 1, first * first, torch.full_like(first, 7.0)], dim=1)


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows from anywhere, and rows of real values."""
    made = synthetic_rows(x, COUNT, seeded())
    return made[: COUNT // 2], made[COUNT // 2 :]


def test_real_values_keep_every_marginal_and_lose_every_dependence() -> None:
    """Each column is the column's own law; the covariance between columns is 0."""
    x = dependent()
    _, real = halves(x)
    for column, made in zip(x.T, real.T, strict=True):
        assert torch.isin(made, column).all()
        grid = column.sort().values
        steps = torch.searchsorted(made.sort().values, grid, right=True) / len(made)
        law = torch.searchsorted(grid, grid, right=True) / len(grid)
        assert (steps - law).abs().max() < 2 / len(made) ** 0.5  # Kolmogorov and Smirnov: p < 0.001
    assert x[:, :2].T.corrcoef()[0, 1] > 0.999
    assert real[:, :3].T.corrcoef().triu(1).abs().max() < 5 / len(real) ** 0.5


def test_the_others_are_uniform_on_a_range_a_fifth_wider_on_both_sides() -> None:
    """Mean (low + high) / 2 and variance (1.4 range)² / 12, independent from column to column."""
    x = dependent()
    anywhere, _ = halves(x)
    low, high = x.amin(0), x.amax(0)
    width = 1.4 * (high - low)
    unit = (anywhere - low + 0.2 * (high - low))[:, :3] / width[:3]
    assert 0 <= unit.min() < 1e-3 < 1 - 1e-3 < unit.max() <= 1
    error = 5 / len(unit) ** 0.5
    torch.testing.assert_close(unit.mean(0), torch.full((3,), 0.5), atol=error / 12**0.5, rtol=0)
    torch.testing.assert_close(unit.var(0), torch.full((3,), 1 / 12), atol=error / 12, rtol=0)
    assert unit.T.corrcoef().triu(1).abs().max() < error
    assert (anywhere[:, 3] == 7.0).all(), "a column that never changes does not change here"


@pytest.mark.parametrize("shape", [(3, 2), (4, 2, 2, 2)])
def test_rows_of_other_axes_are_taken_for_those_of_a_table(shape: tuple[int, ...]) -> None:
    x = some(10, *shape)
    made = synthetic_outliers(x, 6, seeded())
    assert torch.equal(made.flatten(1), synthetic_rows(x.flatten(1), 6, seeded()))
    assert made.shape == (6, *shape)


@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_as_many_rows_as_asked_for_and_the_generator_decides(count: int) -> None:
    x, before = some(10, 3).double(), torch.get_rng_state()
    first, second, other = (synthetic_rows(x, count, seeded(seed)) for seed in (0, 0, 1))
    assert (first.shape, first.dtype) == ((count, 3), torch.float64)
    assert torch.equal(first, second)
    assert count == 0 or not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def images() -> gpn.Task:
    x = some(40, 1, 8, 8)
    return gpn.Task(x, (x.mean((1, 2, 3)) > 0).long(), pool=some(60, 1, 8, 8), n_classes=2)


def test_a_third_of_the_pool_is_made_up_for_images() -> None:
    train = gpn.TrainConfig(steps=3)
    config = gpn.GPNConfig(trunk=gpn.ConvTrunk(channels=(2,), widths=(8,)), train=train, beta=0.1)
    fitted = gpn.GPN(config).fit(images(), rng=0)
    assert fitted.config.synthetic_outliers == pytest.approx(1 / 3)
    assert len(fitted.report["pool_rows"]) == 90
    without = gpn.GPN(config.replace(synthetic_ood=0.0)).fit(images(), rng=0)
    assert len(without.report["pool_rows"]) == 60


def table_with(share: float) -> gpn.Task:
    """150 rows of a law with twelve columns, and a pool of it with a share of strangers."""
    x, known, strange = some(150, 12), some(200, 12), some(200, 12) + 8.0
    n = round(200 * share)
    return gpn.Task(x, x[:, :1], pool=torch.cat([known[n:], strange[:n]]))


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 40, 90), (0.1, 10, 60), (0.5, 0, 0)])
def test_tables_get_the_strangers_that_their_pool_lacks(
    share: float, least: int, most: int
) -> None:
    config = gpn.GPNConfig(
        beta=0.1, trunk=gpn.MLPTrunk(widths=(8,)), train=gpn.TrainConfig(steps=2)
    )
    report = gpn.GPN(config).fit(table_with(share), rng=0).report
    assert least <= report.get("synthetic_rows", 0) <= most
    assert (
        len(report["pool_rows"])
        == len(report["pool_weights"])
        == 200 + report.get("synthetic_rows", 0)
    )


def test_only_independent_anchors_have_made_up_strangers() -> None:
    assert resolve(gpn.GPNConfig(beta=0.1), table_with(0.5)).synthetic_outliers is None, "as many as it lacks"
    assert resolve(gpn.GPNConfig(), table_with(0.5)).synthetic_outliers == 0, "conditioned anchors have none"
    assert gpn.GPNConfig.paper().resolved(table_with(0.5)).synthetic_outliers == 0
    classes = gpn.Task(some(80, 12), torch.arange(80) % 5, pool=some(80, 12))
    assert resolve(gpn.GPNConfig(), classes).synthetic_outliers == 0


@pytest.mark.slow
def test_strangers_are_told_although_the_pool_holds_none() -> None:
    rng = seeded()
    turn = torch.randn(3, 12, generator=rng)  # rows live on three of twelve directions
    x, known = (torch.randn(200, 3, generator=rng) @ turn for _ in range(2))
    strange = 0.3 * torch.randn(200, 12, generator=rng) * x.std(0)
    task = gpn.Task(x, x[:, :1].sin(), pool=x)
    trunk = gpn.MLPTrunk(widths=(64, 64), activation="relu", ramps=8, dropout=0.15)
    train = gpn.TrainConfig(steps=800, label_batch=64, pool_batch=64, weight_decay=0.3)
    config = gpn.GPNConfig(beta=0.1, n_axes=50, trunk=trunk, train=train)

    def auc(synthetic_outliers: float | None) -> float:
        posterior = gpn.GPN(config.replace(synthetic_ood=synthetic_outliers)).fit(task, rng=0)
        return gpn.metrics.ood_auc(*(posterior.variance(rows)[:, 0] for rows in (known, strange)))

    assert auc(None) > auc(0.0) + 0.03


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_lies_between_none_and_all(share: float) -> None:
    with pytest.raises(ValueError, match=r"synthetic_outliers must lie in \[0, 1\), got"):
        gpn.GPNConfig(synthetic_ood=share)


def test_strangers_are_made_up_for_independent_anchors_only() -> None:
    x = some(80, 12)
    config = gpn.GPNConfig(synthetic_ood=0.2, anchor="conditioned")
    with pytest.raises(ValueError, match=r"strangers can be made up for tables and images.*use ma"):
        config.resolved(gpn.Task(x, x[:, :1], pool=x))
