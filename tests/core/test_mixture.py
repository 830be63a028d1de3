"""Pool weights from a classifier, where the right answer is known: 1 − π r(x)."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import gpn
from gpn.core.mixture import Learner, MixtureWeights, mixture_weights
from gpn.methods.gpn.density_ratio import network_ratio, tree_ratio

Make = Callable[[torch.Generator], Learner]


def rows(n: int, dim: int, seed: int) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


def network(rng: torch.Generator) -> Learner:
    config = gpn.TrainConfig(steps=300, label_batch=128, learning_rate=0.01, weight_decay=0.05)
    trunk = gpn.MLPTrunk(widths=(32, 32))
    return network_ratio(trunk, config, rng, lambda step, steps, values: None)


both = pytest.mark.parametrize("make", [tree_ratio, network], ids=["trees", "network"])


def weigh(x_obs: Tensor, x_pool: Tensor, make: Make) -> MixtureWeights:
    rng = torch.Generator().manual_seed(0)
    return mixture_weights(x_obs, x_pool, make(rng), 0.05, rng)


@both
@pytest.mark.parametrize("share", [0.2, 0.8])
def test_the_share_of_labeled_like_rows_is_found(share: float, make: Make) -> None:
    n_near = round(500 * share)
    near, far = rows(n_near, 1, seed=1), rows(500 - n_near, 1, seed=2) + 7.0
    given = weigh(rows(300, 1, seed=0), torch.cat([near, far]), make)
    assert given.labeled_share == pytest.approx(share, abs=0.12)
    assert given.weights[:n_near].mean() < 0.25
    assert given.weights[n_near:].mean() > 0.9


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
    assert given.weights[100:].mean() > 0.85


@both
def test_the_seed_decides_and_nothing_else(make: Make) -> None:
    x_obs, pool = rows(40, 2, seed=0), rows(60, 2, seed=1)
    assert torch.equal(weigh(x_obs, pool, make).weights, weigh(x_obs, pool, make).weights)


def test_ctrl_c_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr("torch.nn.functional.softplus", interrupted)
    with pytest.warns(UserWarning, match="stopped"), pytest.raises(KeyboardInterrupt):
        weigh(rows(20, 1, seed=0), rows(20, 1, seed=1), network)
