"""GPN end to end on problems small enough that the result is known."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

import gpn
from gpn.core.pools.base import Pool


class TinyImages(Dataset):
    """4×4 images with one bright half, left (class 0) or right (class 1); counts its reads."""

    def __init__(self, length: int) -> None:
        rng = torch.Generator().manual_seed(0)
        self.images = 0.3 * torch.randn(length, 1, 4, 4, generator=rng)
        self.labels = torch.arange(length) % 2
        self.images[self.labels == 0, :, :, :2] += 2.0
        self.images[self.labels == 1, :, :, 2:] += 2.0
        self.reads = 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.reads += 1
        return self.images[index], int(self.labels[index])


@pytest.mark.parametrize(("pairing", "pool_batch", "factor"), [("every", 16, 2.0), ("one", 128, 1)])
def test_certain_at_the_labels_and_uncertain_away_from_them(
    quick: gpn.GPNConfig, line: gpn.Task, pairing: str, pool_batch: int, factor: float
) -> None:
    """The functions meet where there are labels, and spread towards the prior elsewhere."""
    train = gpn.TrainConfig(steps=200, pool_batch=pool_batch, learning_rate=0.03)
    posterior = gpn.GPN(quick.replace(pairing=pairing, train=train)).fit(line, rng=0)
    assert (posterior.mean(line.x_obs) - line.y_obs).abs().max() < 0.2
    away = posterior.std(torch.tensor([[-2.0], [2.0]]))
    assert away.mean() > factor * posterior.std(line.x_obs).mean()
    checks = posterior.fit_report.history.checks
    assert checks[-1]["codes"] < 0.1 * checks[0]["codes"], "the codes must end near N(0, I)"


def test_a_larger_beta_follows_the_prior_more(quick: gpn.GPNConfig, line: gpn.Task) -> None:
    """β weighs the prior against the labels: the larger it is, the more spread at the labels."""
    train = quick.train.replace(steps=100, learning_rate=0.03)
    spreads = []
    for beta in (0.001, 0.1, 10.0):
        posterior = gpn.GPN(quick.replace(beta=beta, train=train)).fit(line, rng=0)
        spreads.append(float(posterior.std(line.x_obs).mean()))
    assert 3 * spreads[0] < spreads[1] < spreads[2] / 3


def test_classes_end_to_end(quick: gpn.GPNConfig, classes: gpn.Task) -> None:
    train = gpn.TrainConfig(steps=100, pool_batch=16, learning_rate=0.02)
    posterior = gpn.GPN(quick.replace(train=train)).fit(classes, rng=0)
    probabilities = posterior.probabilities(classes.x_obs, 200)
    accuracy = (probabilities.argmax(-1) == classes.y_obs).float().mean()
    assert accuracy > 0.9
    assert posterior.sample(classes.x_obs, 4, rng=0).shape == (4, 30, 3)
    corners = torch.tensor([[2.0, 2.0], [2.0, -2.0], [-2.0, 0.0]])
    uncertain, certain = (posterior.entropy(x).mean() for x in (corners, classes.x_obs))
    assert uncertain > certain


def test_an_unseen_class_has_a_logit(quick: gpn.GPNConfig, classes: gpn.Task) -> None:
    task = gpn.Task(classes.x_obs, classes.y_obs, pool=classes.pool, n_classes=5)
    posterior = gpn.GPN(quick).fit(task, rng=0)
    probabilities = posterior.probabilities(task.x_obs, 50)
    assert probabilities.shape == (30, 5)
    assert probabilities[:, 3:].mean() < probabilities[:, :3].mean(), "no label is of that class"


def test_several_outputs_are_learnt(quick: gpn.GPNConfig, line: gpn.Task) -> None:
    targets = torch.cat([line.y_obs, 1.0 - line.y_obs], dim=1)
    train = gpn.TrainConfig(steps=200, pool_batch=16, learning_rate=0.03)
    task = gpn.Task(line.x_obs, targets, pool=line.pool)
    posterior = gpn.GPN(quick.replace(train=train)).fit(task, rng=0)
    assert posterior.sample(line.x_obs, 6, rng=0).shape == (6, 4, 2)
    assert (posterior.mean(line.x_obs) - targets).abs().mean() < 0.2


def test_images_with_convolutions_from_a_dataset_pool(quick: gpn.GPNConfig) -> None:
    """Each step reads its pool batch and nothing more; the classes are separated."""
    labeled, unlabeled = TinyImages(16), TinyImages(500)
    pool = gpn.DatasetPool(unlabeled, prefetch=0)
    task = gpn.Task(labeled.images, labeled.labels, pool=pool)
    reads_before = unlabeled.reads
    config = quick.replace(
        prior=gpn.ConvPrior(channels=(4,)),
        trunk=gpn.ConvTrunk(channels=(4,), widths=(16,)),
        train=gpn.TrainConfig(steps=80, pool_batch=8, learning_rate=0.02),
    )
    posterior = gpn.GPN(config).fit(task, rng=0)
    assert unlabeled.reads - reads_before == 80 * 8
    fresh = unlabeled.images[16:116]
    predicted = posterior.probabilities(fresh, 100).argmax(-1)
    assert (predicted == unlabeled.labels[16:116]).float().mean() > 0.9


def test_fourier_features_let_a_small_network_follow_a_rough_prior(
    quick: gpn.GPNConfig, line: gpn.Task
) -> None:
    train = quick.train.replace(steps=100, learning_rate=0.03)
    gaps = []
    for count in (0, 32):
        trunk = gpn.MLPTrunk(widths=(32, 32), fourier=count)
        posterior = gpn.GPN(quick.replace(trunk=trunk, train=train)).fit(line, rng=0)
        checks = posterior.fit_report.history.checks
        gaps.append(sum(check["anchor"] for check in checks[-10:]))
    assert gaps[1] < 0.9 * gaps[0]


@pytest.fixture
def short(quick: gpn.GPNConfig) -> gpn.GPNConfig:
    """Five steps, for what does not depend on how well a fit went."""
    return quick.replace(train=quick.train.replace(steps=5))


def float64_task(pool: Any) -> gpn.Task:
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None]
    return gpn.Task(x, x.sin(), pool=pool)


POOLS = {
    "tensor": torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None],
    "float32 tensor": torch.linspace(-2, 2, 9)[:, None],
    "integer rows": torch.tensor([[-1], [0], [1]]),
    "box": gpn.box([-2.0], [2.0]),
    "sampler": lambda m, rng: torch.rand(m, 1, generator=rng),
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS.keys())
def test_a_float64_task_stays_float64(short: gpn.GPNConfig, pool: Any) -> None:
    posterior = gpn.GPN(short).fit(float64_task(pool), rng=0)
    x = torch.zeros(2, 1)
    assert all(p.dtype == torch.float64 for p in posterior.generator.parameters())
    assert posterior.dtype == torch.float64
    assert posterior.sample(x, 3, rng=0).dtype == torch.float64
    assert posterior.mean(x).dtype == torch.float64
    assert posterior.draw(rng=0)(x).dtype == torch.float64


def test_float32_labels_with_a_float64_pool(short: gpn.GPNConfig, line: gpn.Task) -> None:
    task = gpn.Task(line.x_obs, line.y_obs, pool=line.x_obs.double().numpy())
    assert gpn.GPN(short).fit(task, rng=0).dtype == torch.float32


def test_the_dtype_of_the_configuration_is_used(short: gpn.GPNConfig, line: gpn.Task) -> None:
    config = short.replace(train=short.train.replace(dtype="float64"))
    assert gpn.GPN(config).fit(line, rng=0).dtype == torch.float64


@pytest.mark.filterwarnings("ignore::gpn.GPNWarning")  # without a seed a short fit may be doubtful
def test_global_random_state_is_untouched(short: gpn.GPNConfig, line: gpn.Task) -> None:
    before = torch.get_rng_state()
    posterior = gpn.GPN(short).fit(line, rng=0)
    posterior.sample(line.x_obs, 5, rng=0)
    gpn.GPN(short.replace(pairing="one")).fit(line)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_task_is_not_changed(short: gpn.GPNConfig, line: gpn.Task) -> None:
    x, y, pool = line.x_obs.clone(), line.y_obs.clone(), line.pool
    gpn.GPN(short).fit(line, rng=0)
    assert torch.equal(line.x_obs, x)
    assert torch.equal(line.y_obs, y)
    assert line.pool is pool


def test_a_posterior_is_frozen(short: gpn.GPNConfig, line: gpn.Task) -> None:
    posterior = gpn.GPN(short).fit(line, rng=0)
    assert not posterior.generator.training
    assert not any(p.requires_grad for p in posterior.generator.parameters())
    assert posterior.config == short
    assert not posterior.sample(line.x_obs.clone().requires_grad_(), 3).requires_grad


def test_a_draw_is_the_generator_at_one_standard_code(short: gpn.GPNConfig, line: gpn.Task) -> None:
    """Every function is g(·, z) for some z, and z ~ N(0, I)."""
    posterior = gpn.GPN(short).fit(line, rng=0)
    batch: Any = posterior.functions(20_000, torch.Generator().manual_seed(0))
    codes = batch.keywords["codes"]
    assert codes.mean(0).abs().max() < 5 / 20_000**0.5
    torch.testing.assert_close(codes.T.cov(), torch.eye(3), rtol=0.0, atol=0.05)
    expected = posterior.generator(line.x_obs, codes[:7])
    torch.testing.assert_close(batch(line.x_obs)[:7], expected)


@pytest.mark.parametrize("n_anchors", [3, 2])
def test_codes_need_more_anchors_than_dimensions(
    short: gpn.GPNConfig, line: gpn.Task, n_anchors: int
) -> None:
    message = rf"exceed code_dim .*n_anchors={n_anchors} and code_dim=3; try n_anchors=30"
    with pytest.raises(ValueError, match=message):
        gpn.GPN(short.replace(n_anchors=n_anchors)).fit(line, rng=0)


def test_a_pool_is_needed(short: gpn.GPNConfig, line: gpn.Task) -> None:
    with pytest.raises(ValueError, match=r"must have a pool .*got pool=None; .*gpn\.box"):
        gpn.GPN(short).fit(gpn.Task(line.x_obs, line.y_obs), rng=0)


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"GPNConfig .*got 'n_anchor'; did you mean 'n_anchors'\?"):
        gpn.GPNConfig(n_anchor=5)
    with pytest.raises(TypeError, match=r"did you mean 'code_dim'\?"):
        gpn.GPNConfig.paper(code_dims=5)


def test_a_users_pool_needs_only_draw(short: gpn.GPNConfig, line: gpn.Task) -> None:
    """A user's Pool is asked for `pool_batch` rows at each step."""

    class Uniform(Pool):
        sizes: list[int] = []  # noqa: RUF012

        def draw(self, m: int, rng: torch.Generator) -> Tensor:
            self.sizes.append(m)
            return torch.rand(m, 1, generator=rng)

    pool = Uniform()
    task = gpn.Task(line.x_obs, line.y_obs, pool=pool)
    pool.sizes.clear()
    gpn.GPN(short).fit(task, rng=0)
    assert pool.sizes == [16] * 5
