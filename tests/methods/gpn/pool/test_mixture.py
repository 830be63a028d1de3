"""Pool weights from a classifier, where the right answer is known: 1 − π r(x)."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import gpn
from gpn.methods.gpn.pool.density_ratio import network_ratio, tree_ratio
from gpn.methods.gpn.pool.mixture import (
    Judge,
    LogRatio,
    MixtureWeights,
    cross_fitted,
    mixture_weights,
    row_keys,
)

Make = Callable[[torch.Generator], Judge]


def rows(n: int, dim: int, seed: int) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


def network(rng: torch.Generator) -> Judge:
    config = gpn.TrainConfig(steps=300, label_batch=128, learning_rate=0.01, weight_decay=0.05)
    trunk = gpn.MLPTrunk(widths=(32, 32))
    return cross_fitted(network_ratio(trunk, config, rng, lambda step, steps, values: None), 2, rng)


def trees(rng: torch.Generator) -> Judge:
    return cross_fitted(tree_ratio(rng), 10, rng)


both = pytest.mark.parametrize("make", [trees, network], ids=["trees", "network"])


def weigh(x_obs: Tensor, x_pool: Tensor, make: Make) -> MixtureWeights:
    rng = torch.Generator().manual_seed(0)
    return mixture_weights(x_obs, x_pool, make(rng), 0.05)


@both
@pytest.mark.parametrize("share", [0.2, 0.8])
def test_the_share_of_labeled_like_rows_is_found(share: float, make: Make) -> None:
    n_near = round(500 * share)
    near, far = rows(n_near, 1, seed=1), rows(500 - n_near, 1, seed=2) + 7.0
    given = weigh(rows(300, 1, seed=0), torch.cat([near, far]), make)
    assert given.labeled_share == pytest.approx(share, abs=0.12)
    assert given.weights[:n_near].mean() < 0.25
    assert given.weights[n_near:].mean() > 0.85


@both
def test_a_pool_without_strangers_is_anchored_little_and_one_of_strangers_fully(
    make: Make,
) -> None:
    x_obs, like = rows(300, 1, seed=0), rows(300, 1, seed=1)
    alike, strange = weigh(x_obs, like, make), weigh(x_obs, like + 7.0, make)
    assert alike.weights.mean() < 0.3
    assert strange.weights.min() > 0.9
    for given in (alike, strange):
        assert given.weights.min() >= 0.05
        assert given.weights.max() <= 1.0


@both
def test_few_labels_of_many_features_are_recognised(make: Make) -> None:
    near, far = rows(300, 20, seed=1), rows(300, 20, seed=2) + 4.0
    given = weigh(rows(300, 20, seed=0), torch.cat([near, far]), make)
    assert given.weights[:300].median() < 0.5
    assert given.weights[300:].mean() > 0.9


@both
def test_a_handful_of_labels_still_tells_near_from_far(make: Make) -> None:
    near, far = rows(100, 1, seed=1), rows(100, 1, seed=2) + 7.0
    given = weigh(rows(6, 1, seed=0), torch.cat([near, far]), make)
    assert given.weights[:100].mean() < 0.6
    assert given.weights[100:].mean() > 0.8


@both
def test_the_seed_decides_and_nothing_else(make: Make) -> None:
    x_obs, pool = rows(40, 2, seed=0), rows(60, 2, seed=1)
    assert torch.equal(weigh(x_obs, pool, make).weights, weigh(x_obs, pool, make).weights)


@pytest.mark.parametrize(("n_labels", "folds"), [(7, 3), (2, 10), (1, 2)])
def test_no_row_is_judged_by_who_learnt_from_it_or_a_copy(n_labels: int, folds: int) -> None:
    """Every row comes twice; a single one has nobody else to judge it."""
    x_obs = torch.arange(n_labels)[:, None].double().repeat(2, 1)
    pool, learners = torch.arange(100, 120)[:, None].double().repeat(2, 1), []

    def learn(seen: Tensor, seen_pool: Tensor) -> LogRatio:
        known = torch.cat([seen, seen_pool])[:, 0]
        learners.append(known)

        def log_ratio(x: Tensor) -> Tensor:
            assert n_labels == 1 or not torch.isin(x[:, 0], known).any()
            return -x[:, 0]

        return log_ratio

    labeled, theirs = cross_fitted(learn, folds, torch.Generator().manual_seed(0))(x_obs, pool)
    assert len(learners) == min(folds, n_labels)
    typical = (-x_obs[:, 0]).median()
    assert torch.equal(labeled, -x_obs[:, 0] - typical)
    assert torch.equal(theirs, -pool[:, 0] - typical)


def test_labeled_rows_in_the_pool_are_known_and_not_judged() -> None:
    """Strangers then are counted among the others."""
    x_obs, far = rows(50, 3, seed=0), rows(30, 3, seed=1) + 9.0
    judged: list[Tensor] = []

    def judge(labeled: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
        judged.append(pool)
        return torch.zeros(len(labeled)), torch.full((len(pool),), -5.0)

    given = mixture_weights(x_obs, torch.cat([x_obs[:20], far]), judge, 0.05)
    assert torch.equal(torch.cat(judged), far)
    assert (given.weights[:20] == 0.05).all()
    assert (given.weights[20:] > 0.99).all()
    assert given.unlike.tolist() == given.judged.tolist() == [False] * 20 + [True] * 30
    alone = mixture_weights(x_obs, x_obs, judge, 0.05)
    assert len(judged) == 1, "nobody is left to judge"
    assert alone.labeled_share == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5000, 3), (40, 3, 8, 8)])
def test_keys_are_equal_where_rows_are(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    x[1] = x[0]
    x[2], x[3] = 0.0, -0.0
    keys = row_keys(x)
    assert keys[0] == keys[1]
    assert keys[2] == keys[3]
    assert len(keys.unique()) == len(x) - 2
    assert torch.equal(row_keys(x.flip(0)), keys.flip(0))
    if x.ndim == 4:
        assert torch.equal(row_keys(x.contiguous(memory_format=torch.channels_last)), keys)


def test_ctrl_c_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr("torch.nn.functional.softplus", interrupted)
    with pytest.warns(UserWarning, match="stopped"), pytest.raises(KeyboardInterrupt):
        weigh(rows(20, 1, seed=0), rows(20, 1, seed=1), network)
