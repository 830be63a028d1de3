"""Synthetic outliers have the statistics of labeled rows, and lose all other structure."""

import pytest
import torch
from torch import Tensor

import gpn
from gpn.methods.gpn.config import ResolvedConfig
from gpn.methods.gpn.defaults import resolve
from gpn.methods.gpn.fitting.basis import pool_weights, prior_basis
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.pool.synthetic import (
    IMAGE_KINDS,
    random_phases,
    shuffled_patches,
    synthetic_images,
    synthetic_outliers,
    synthetic_rows,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=seeded(1))


@pytest.mark.parametrize("size", [(28, 28), (7, 10), (1, 1)])
def test_random_phases_preserve_the_spectrum(size: tuple[int, int]) -> None:
    """|F| at every frequency but those whose phase must be 0 or π for the image to be real."""
    x = normal(6, 3, *size)
    before, after = (torch.fft.rfft2(i) for i in (x, random_phases(x, seeded())))
    free = torch.ones(before.shape[2:], dtype=torch.bool)
    free[:, 0] = False
    if size[1] % 2 == 0:
        free[:, -1] = False
    torch.testing.assert_close(before.abs()[..., free], after.abs()[..., free], atol=1e-4, rtol=0)
    if size == (28, 28):
        assert (random_phases(x, seeded()) - x).abs().mean() > 0.5


def test_channels_share_phases() -> None:
    grey = normal(6, 1, 9, 8).expand(-1, 3, -1, -1)
    outliers = random_phases(grey, seeded())
    torch.testing.assert_close(outliers, outliers[:, :1].expand_as(outliers))


@pytest.mark.parametrize("size", [(28, 28), (7, 10), (3, 2), (1, 1)])
def test_shuffled_patches_preserve_every_pixel(size: tuple[int, int]) -> None:
    x = normal(6, 3, *size)
    moved = shuffled_patches(x, seeded())
    assert moved.shape == x.shape
    for before, after in zip(x, moved, strict=True):
        pixels = [p.sort(0).values for p in (before.flatten(1).T, after.flatten(1).T)]
        torch.testing.assert_close(*pixels)


def test_patches_move_as_a_whole() -> None:
    marked = torch.arange(16.0).reshape(1, 1, 4, 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
    moved = shuffled_patches(marked, seeded())
    blocks = moved.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    assert (blocks == blocks[..., :1]).all()
    assert (moved != marked).any()


@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_the_number_of_images_is_exact_and_the_seed_decides(count: int) -> None:
    x = normal(10, 1, 8, 8)
    first, second = (synthetic_images(x, count, seeded()) for _ in range(2))
    assert first.shape == (count, 1, 8, 8)
    assert torch.equal(first, second)
    assert torch.isfinite(first).all()


COUNT = 20_000


def dependent() -> Tensor:
    """A column, a linear and a quadratic function of it, and a constant one."""
    first = normal(500)
    return torch.stack([first, 2 * first - 1, first * first, torch.full_like(first, 7.0)], dim=1)


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that are uniform in a box, and rows of shuffled columns."""
    outliers = synthetic_rows(x, COUNT, seeded())
    return outliers[: COUNT // 2], outliers[COUNT // 2 :]


def test_shuffled_columns_preserve_marginals_and_are_independent() -> None:
    """Each column has the distribution of the labeled column; correlations are 0."""
    x = dependent()
    _, shuffled = halves(x)
    for column, values in zip(x.T, shuffled.T, strict=True):
        assert torch.isin(values, column).all()
        grid = column.sort().values
        found = torch.searchsorted(values.sort().values, grid, right=True) / len(values)
        exact = torch.searchsorted(grid, grid, right=True) / len(grid)
        assert (found - exact).abs().max() < 2 / len(values) ** 0.5  # Kolmogorov-Smirnov, p < 0.001
    assert x[:, :2].T.corrcoef()[0, 1] > 0.999
    assert shuffled[:, :3].T.corrcoef().triu(1).abs().max() < 5 / len(shuffled) ** 0.5


def test_the_other_half_is_uniform_in_a_box_a_fifth_wider_on_each_side() -> None:
    """Mean (low + high) / 2 and variance (1.4 range)² / 12, and independent columns."""
    x = dependent()
    in_box, _ = halves(x)
    low, high = x.amin(0), x.amax(0)
    width = 1.4 * (high - low)
    unit = (in_box - low + 0.2 * (high - low))[:, :3] / width[:3]
    assert 0 <= unit.min() < 1e-3 < 1 - 1e-3 < unit.max() <= 1
    error = 5 / len(unit) ** 0.5
    torch.testing.assert_close(unit.mean(0), torch.full((3,), 0.5), atol=error / 12**0.5, rtol=0)
    torch.testing.assert_close(unit.var(0), torch.full((3,), 1 / 12), atol=error / 12, rtol=0)
    assert unit.T.corrcoef().triu(1).abs().max() < error
    assert (in_box[:, 3] == 7.0).all(), "a constant column stays constant"


@pytest.mark.parametrize("shape", [(3, 2), (4, 2, 2, 2)])
def test_rows_of_other_shapes_are_flattened(shape: tuple[int, ...]) -> None:
    x = normal(10, *shape)
    outliers = synthetic_outliers(x, 6, seeded())
    assert torch.equal(outliers.flatten(1), synthetic_rows(x.flatten(1), 6, seeded()))
    assert outliers.shape == (6, *shape)


@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_the_number_of_rows_is_exact_and_the_seed_decides(count: int) -> None:
    x, before = normal(10, 3).double(), torch.get_rng_state()
    first, second, other = (synthetic_rows(x, count, seeded(seed)) for seed in (0, 0, 1))
    assert (first.shape, first.dtype) == ((count, 3), torch.float64)
    assert torch.equal(first, second)
    assert count == 0 or not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def images() -> gpn.Task:
    x = normal(40, 1, 8, 8)
    return gpn.Task(x, (x.mean((1, 2, 3)) > 0).long(), pool=normal(60, 1, 8, 8), n_classes=2)


def test_a_third_of_an_image_pool_is_synthetic() -> None:
    train = gpn.TrainConfig(steps=3)
    config = gpn.GPNConfig(trunk=gpn.ConvTrunk(channels=(2,), widths=(8,)), train=train, beta=0.1)
    fitted = gpn.GPN(config).fit(images(), rng=0)
    assert fitted.config.synthetic_ood == pytest.approx(1 / 3)
    assert fitted.fit_report.synthetic_rows == 30, "of 90 rows"
    without = gpn.GPN(config.replace(synthetic_ood=0.0)).fit(images(), rng=0)
    assert without.fit_report.synthetic_rows == 0


def table_with(share: float) -> gpn.Task:
    """150 labeled rows of twelve columns, and a pool of 200 rows with a share of OOD rows."""
    x, near, ood = normal(150, 12), normal(200, 12), normal(200, 12) + 8.0
    n = round(200 * share)
    return gpn.Task(x, x[:, :1], pool=torch.cat([near[n:], ood[:n]]))


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 40, 90), (0.1, 10, 60), (0.5, 0, 0)])
def test_tables_get_the_outliers_that_their_pool_lacks(share: float, least: int, most: int) -> None:
    trunk = gpn.MLPTrunk(widths=(8,))
    config = gpn.GPNConfig(beta=0.1, trunk=trunk, train=gpn.TrainConfig(steps=2))
    task = table_with(share)
    report = gpn.GPN(config).fit(task, rng=0).fit_report
    assert least <= report.synthetic_rows <= most
    context = FitContext(resolve(config, task), task, seeded())
    basis = prior_basis(context)
    weights = pool_weights(context, basis.pool)
    assert weights is not None
    assert len(basis.pool) == len(weights.weights) == 200 + report.synthetic_rows
    assert basis.pool.n_real == 200


def test_only_independent_anchors_have_synthetic_outliers() -> None:
    def share(config: gpn.GPNConfig, task: gpn.Task) -> float | None:
        resolved = resolve(config, task)
        assert isinstance(resolved, ResolvedConfig)
        assert resolved.fill_ood == (resolved.public().synthetic_ood is None)
        return resolved.public().synthetic_ood

    assert share(gpn.GPNConfig(beta=0.1), table_with(0.5)) is None, "as many as the pool lacks"
    assert share(gpn.GPNConfig(), table_with(0.5)) == 0, "conditioned anchors have none"
    assert share(gpn.GPNConfig.paper(), table_with(0.5)) == 0
    classes = gpn.Task(normal(80, 12), torch.arange(80) % 5, pool=normal(80, 12))
    assert share(gpn.GPNConfig(), classes) == 0


@pytest.mark.slow
def test_ood_rows_are_detected_although_the_pool_holds_none() -> None:
    rng = seeded()
    directions = torch.randn(3, 12, generator=rng)  # rows live on three of twelve directions
    x, near = (torch.randn(200, 3, generator=rng) @ directions for _ in range(2))
    ood = 0.3 * torch.randn(200, 12, generator=rng) * x.std(0)
    task = gpn.Task(x, x[:, :1].sin(), pool=x)
    trunk = gpn.MLPTrunk(widths=(64, 64), activation="relu", ramps=8, dropout=0.15)
    train = gpn.TrainConfig(steps=800, label_batch=64, pool_batch=64, weight_decay=0.3)
    config = gpn.GPNConfig(beta=0.1, n_axes=50, trunk=trunk, train=train)

    def auc(share: float | None) -> float:
        posterior = gpn.GPN(config.replace(synthetic_ood=share)).fit(task, rng=0)
        return gpn.metrics.ood_auc(*(posterior.variance(rows)[:, 0] for rows in (near, ood)))

    assert auc(None) > auc(0.0) + 0.03


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_lies_between_zero_and_one(share: float) -> None:
    with pytest.raises(ValueError, match=r"synthetic_ood must lie in \[0, 1\), got"):
        gpn.GPNConfig(synthetic_ood=share)


def test_the_former_name_of_the_share_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match=r"made_up of GPNConfig is now .*synthetic_ood"):
        config = gpn.GPNConfig(made_up=0.2)
    assert config == gpn.GPNConfig(synthetic_ood=0.2)
    with pytest.warns(DeprecationWarning, match="made_up"):
        assert config.replace(made_up=0.3).synthetic_ood == 0.3


def test_synthetic_outliers_of_other_anchors_are_refused() -> None:
    x = normal(80, 12)
    config = gpn.GPNConfig(synthetic_ood=0.2, anchor="conditioned")
    with pytest.raises(ValueError, match=r"outliers exist for tables and images.*synthetic_ood=0"):
        resolve(config, gpn.Task(x, x[:, :1], pool=x))


@pytest.mark.parametrize("kind", IMAGE_KINDS)
@pytest.mark.parametrize("shape", [(20, 3, 12, 12), (1, 1, 7, 10), (3, 3, 1, 1)])
def test_every_kind_makes_finite_images_of_any_size(kind: str, shape: tuple[int, ...]) -> None:
    made = IMAGE_KINDS[kind](normal(*shape), seeded())
    assert made.shape == shape
    assert torch.isfinite(made).all()


@pytest.mark.parametrize("kind", IMAGE_KINDS)
def test_every_kind_keeps_brightness_and_contrast(kind: str) -> None:
    """Outliers that are brighter than any photograph would teach nothing."""
    smooth = torch.nn.functional.interpolate(normal(400, 3, 5, 5), size=(24, 24), mode="bicubic")
    images = 0.5 + 2 * smooth
    made = IMAGE_KINDS[kind](images, seeded())
    assert abs(float(made.mean() - images.mean())) < 0.2 * float(images.std())
    assert 0.5 < float(made.std() / images.std()) < 2.0


@pytest.mark.parametrize("kind", ["random_phases", "patches_4", "patches_8"])
def test_phases_and_patches_keep_the_mean_of_each_image(kind: str) -> None:
    x = 3 + normal(10, 3, 16, 16)
    made = IMAGE_KINDS[kind](x, seeded())
    torch.testing.assert_close(made.mean((2, 3)), x.mean((2, 3)), atol=1e-4, rtol=0)


def test_random_phases_keep_the_power_of_each_image() -> None:
    """Parseval: the variance of pixels is the power of all frequencies but the first."""
    x = normal(10, 3, 32, 32)
    made = random_phases(x, seeded())
    torch.testing.assert_close(made.var((2, 3)), x.var((2, 3)), rtol=0.02, atol=0)


def test_tiles_repeat_a_crop_and_crops_enlarge_one() -> None:
    """Both show fewer different pixels of a ramp than there are, and none that it has not."""
    ramp = torch.linspace(0, 1, 24).expand(50, 1, 24, 24).contiguous()
    for kind in ("tiled_crops", "enlarged_crops"):
        made = IMAGE_KINDS[kind](ramp, seeded())
        span = made.amax((1, 2, 3)) - made.amin((1, 2, 3))
        assert (span < 0.6).all()
        assert made.min() >= 0
        assert made.max() <= 1


def test_silhouettes_have_two_colours_and_little_else() -> None:
    """A split into two colours explains most of the variance."""
    made = IMAGE_KINDS["silhouettes"](normal(100, 1, 16, 16), seeded()).flatten(1)
    middle = (made.amin(1, keepdim=True) + made.amax(1, keepdim=True)) / 2
    upper = (made > middle).float()
    means = [(made * m).sum(1, keepdim=True) / m.sum(1, keepdim=True) for m in (upper, 1 - upper)]
    within = (made - upper * means[0] - (1 - upper) * means[1]).var(1)
    assert float((within / made.var(1)).median()) < 0.35


@pytest.mark.parametrize("kind", ["silhouettes", "waves", "warped"])
def test_images_of_one_colour_stay_as_they_are(kind: str) -> None:
    """Patterns are made of an image's own colours, and grain is relative to their spread."""
    plain = torch.tensor([0.3, -1.0, 2.0])[:, None, None].expand(20, 3, 12, 12)
    torch.testing.assert_close(IMAGE_KINDS[kind](plain, seeded()), plain)


def test_waves_keep_the_moments_of_colours() -> None:
    """A mixture m a + (1 − m) b of two independent pixels has their mean and m² + (1 − m)² of their
    covariance, between half and all of it; grain adds a sixteenth on average."""
    mixing = torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.2, 0.0], [-0.7, 0.0, 0.5]])
    x = torch.einsum("ab,nbhw->nahw", mixing, normal(4000, 3, 12, 12))
    made = IMAGE_KINDS["waves"](1 + x, seeded()).movedim(1, -1).flatten(0, 2)
    assert (made.mean(0) - 1).abs().max() < 5 / 4000**0.5
    exact, found = mixing @ mixing.T, made.T.cov()
    ratio = found.diag() / exact.diag()
    assert 0.5 < ratio.min() <= ratio.max() < 1.1
    assert (found.sign() == exact.sign()).all()


def test_waves_have_nothing_where_the_image_has_it() -> None:
    """The pattern knows the colours alone: it is uncorrelated with the image, pixel by pixel."""
    x = torch.nn.functional.interpolate(normal(2000, 1, 5, 5), size=(16, 16), mode="bicubic")
    made = IMAGE_KINDS["waves"](x, seeded())
    before, after = (i.flatten(1) - i.flatten(1).mean(1, keepdim=True) for i in (x, made))
    found = torch.cosine_similarity(before, after)
    assert abs(float(found.mean())) < 5 * float(found.std()) / len(x) ** 0.5
    assert float(found.std()) < 0.5


def test_warped_images_move_pixels_and_mix_no_others() -> None:
    """Every colour lies between neighbours of the image, all channels move together, and nearby
    pixels stay near: of independent ones, neighbours of a ramp would differ by a third."""
    ramp = torch.linspace(0, 1, 24).expand(200, 24, 24)
    images = torch.stack([ramp, 1 - 2 * ramp, ramp + 3], dim=1)
    made = IMAGE_KINDS["warped"](images, seeded())
    assert made[:, 0].min() >= 0
    assert made[:, 0].max() <= 1
    torch.testing.assert_close(made[:, 1], 1 - 2 * made[:, 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(made[:, 2], made[:, 0] + 3, atol=1e-5, rtol=0)
    assert made[:, 0].diff(dim=2).abs().mean() < 0.1


def test_warped_images_lose_their_outline() -> None:
    """Of a disc in the middle, a displacement of half a radius or more leaves no disc."""
    line = torch.linspace(-1, 1, 24)
    disc = (line[:, None].square() + line.square() < 0.25).float()
    made = IMAGE_KINDS["warped"](disc.expand(200, 1, 24, 24), seeded())[:, 0]
    before, after = ((i - i.mean((-2, -1), keepdim=True)).flatten(-2) for i in (disc, made))
    assert torch.cosine_similarity(before[None], after).median() < 0.6


@pytest.mark.parametrize("kind", IMAGE_KINDS)
def test_the_generator_alone_decides_what_a_kind_makes(kind: str) -> None:
    x, before = normal(9, 3, 8, 8), torch.get_rng_state()
    first, second, other = (IMAGE_KINDS[kind](x, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())
