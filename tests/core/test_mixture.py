"""Pool weights from a classifier, where the right answer is known: 1 − π r(x)."""

import pytest
import torch
from torch import Tensor

import gpn
from gpn.core.mixture import FLOOR, MixtureWeights, mixture_weights


def rows(n: int, dim: int, seed: int) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


def weigh(x_obs: Tensor, x_pool: Tensor) -> MixtureWeights:
    config = gpn.TrainConfig(steps=300, label_batch=128, learning_rate=0.01, weight_decay=0.05)
    rng = torch.Generator().manual_seed(0)
    trunk = gpn.MLPTrunk(widths=(32, 32))
    return mixture_weights(x_obs, x_pool, trunk, config, rng, lambda step, steps, values: None)


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_the_share_of_labeled_like_rows_is_found(share: float) -> None:
    n_near = round(500 * share)
    near, far = rows(n_near, 1, seed=1), rows(500 - n_near, 1, seed=2) + 7.0
    given = weigh(rows(300, 1, seed=0), torch.cat([near, far]))
    assert given.labeled_share == pytest.approx(share, abs=0.1)
    assert given.weights[:n_near].mean() < 0.25
    assert given.weights[n_near:].mean() > 0.95


def test_a_pool_without_strangers_is_anchored_little_and_one_of_strangers_fully() -> None:
    x_obs = rows(300, 1, seed=0)
    alike, strange = weigh(x_obs, rows(300, 1, seed=1)), weigh(x_obs, rows(300, 1, seed=1) + 7.0)
    assert alike.weights.mean() < 0.3
    assert strange.weights.min() > 0.9
    for given in (alike, strange):
        assert given.weights.min() >= FLOOR
        assert given.weights.max() <= 1.0


def test_few_labels_of_many_features_are_recognised() -> None:
    near, far = rows(300, 20, seed=1), rows(300, 20, seed=2) + 4.0
    given = weigh(rows(300, 20, seed=0), torch.cat([near, far]))
    assert given.weights[:300].median() < 0.5
