"""Pool weights from a classifier, where the right weight 1 − π r(x) is known."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

import gpn
from gpn.methods.gpn.pool.density_ratio import (
    DensityRatioFitter,
    LogRatio,
    NetworkRatio,
    TreeRatio,
)
from gpn.methods.gpn.pool.mixture import (
    MIN_WEIGHT,
    PoolWeights,
    cross_fitted_log_ratios,
    mixture_weights,
    row_keys,
)
from gpn.training.progress import no_progress

Make = Callable[[torch.Generator], DensityRatioFitter]


def rows(n: int, dim: int, seed: int) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


def network(rng: torch.Generator) -> NetworkRatio:
    config = gpn.TrainConfig(steps=300, label_batch=128, learning_rate=0.01, weight_decay=0.05)
    return NetworkRatio(gpn.MLPTrunk(widths=(32, 32)), config, rng, no_progress)


both = pytest.mark.parametrize("make", [TreeRatio, network], ids=["trees", "network"])


def weigh(x_obs: Tensor, x_pool: Tensor, make: Make) -> PoolWeights:
    rng = torch.Generator().manual_seed(0)
    return mixture_weights(x_obs, x_pool, make(rng), folds=10 if make is TreeRatio else 2, rng=rng)


@both
@pytest.mark.parametrize("share", [0.2, 0.8])
def test_the_share_of_labeled_like_rows_is_estimated(share: float, make: Make) -> None:
    n_near = round(500 * share)
    near, far = rows(n_near, 1, seed=1), rows(500 - n_near, 1, seed=2) + 7.0
    found = weigh(rows(300, 1, seed=0), torch.cat([near, far]), make)
    assert found.composition.labeled_share == pytest.approx(share, abs=0.12)
    assert found.weights[:n_near].mean() < 0.25
    assert found.weights[n_near:].mean() > 0.85


@both
def test_a_pool_of_labeled_like_rows_has_small_weights_and_one_of_ood_rows_large_ones(
    make: Make,
) -> None:
    x_obs, near = rows(300, 1, seed=0), rows(300, 1, seed=1)
    labeled_like, ood = weigh(x_obs, near, make), weigh(x_obs, near + 7.0, make)
    assert labeled_like.weights.mean() < 0.3
    assert ood.weights.min() > 0.9
    for found in (labeled_like, ood):
        assert found.weights.min() >= MIN_WEIGHT
        assert found.weights.max() <= 1.0


@both
def test_few_labels_of_many_features_are_recognised(make: Make) -> None:
    near, far = rows(300, 20, seed=1), rows(300, 20, seed=2) + 4.0
    weights = weigh(rows(300, 20, seed=0), torch.cat([near, far]), make).weights
    assert weights[:300].median() < 0.5
    assert weights[300:].mean() > 0.9


@both
def test_six_labels_suffice_to_separate_near_from_far(make: Make) -> None:
    near, far = rows(100, 1, seed=1), rows(100, 1, seed=2) + 7.0
    weights = weigh(rows(6, 1, seed=0), torch.cat([near, far]), make).weights
    assert weights[:100].mean() < 0.6
    assert weights[100:].mean() > 0.8


@both
def test_the_same_weights_for_the_same_seed(make: Make) -> None:
    x_obs, pool = rows(40, 2, seed=0), rows(60, 2, seed=1)
    assert torch.equal(weigh(x_obs, pool, make).weights, weigh(x_obs, pool, make).weights)


@dataclass
class Recorded(DensityRatioFitter):
    """Records the rows that it is fitted to.

    log r(x) = −x₁, or, with `far`, that number where x₁ ≥ 4 and 0 elsewhere.
    """

    far: float | None = None
    labeled: list[Tensor] = field(default_factory=list)
    pool: list[Tensor] = field(default_factory=list)

    def fit(self, x_obs: Tensor, x_pool: Tensor) -> LogRatio:
        self.labeled.append(x_obs)
        self.pool.append(x_pool)
        if self.far is None:
            return lambda x: -x[:, 0]
        return lambda x: torch.where(x[:, 0] < 4.0, 0.0, self.far)


@pytest.mark.parametrize(("n_labels", "folds"), [(7, 3), (2, 10), (1, 2)])
def test_no_fit_scores_a_row_that_it_has_seen_or_a_duplicate_of_it(
    n_labels: int, folds: int
) -> None:
    """Every row comes twice. A single distinct label is in both halves: there is no other."""
    x_obs = torch.arange(n_labels)[:, None].double().repeat(2, 1)
    x_pool = torch.arange(100, 120)[:, None].double().repeat(2, 1)

    class Checked(Recorded):
        def fit(self, x_obs: Tensor, x_pool: Tensor) -> LogRatio:
            ratio, seen = super().fit(x_obs, x_pool), torch.cat([x_obs, x_pool])[:, 0]

            def log_ratio(x: Tensor) -> Tensor:
                assert n_labels == 1 or not torch.isin(x[:, 0], seen).any()
                return ratio(x)

            return log_ratio

    fitter, rng = Checked(), torch.Generator().manual_seed(0)
    labeled, pool = cross_fitted_log_ratios(fitter, x_obs, x_pool, folds, rng)
    assert len(fitter.labeled) == min(folds, n_labels)
    median = (-x_obs[:, 0]).median()
    assert torch.equal(labeled, -x_obs[:, 0] - median)
    assert torch.equal(pool, -x_pool[:, 0] - median)


def test_a_low_quantile_takes_the_weight_from_all_but_that_share_of_labeled_like_rows() -> None:
    x_obs, pool = rows(300, 2, seed=0), torch.cat([rows(300, 2, seed=1), rows(50, 2, seed=2) + 9])

    def light(typical: float) -> float:
        """The share of labeled-like rows with the smallest weight."""
        fitter = Recorded()
        found = mixture_weights(
            x_obs, pool, fitter, folds=2, rng=torch.Generator().manual_seed(0), typical=typical
        )
        return float((found.weights[:300] == MIN_WEIGHT).double().mean())

    assert light(0.5) == pytest.approx(0.5, abs=0.1)
    assert light(0.1) == pytest.approx(0.9, abs=0.06)


def test_pool_rows_that_duplicate_labeled_ones_are_labeled_like_and_not_classified() -> None:
    """OOD rows are counted among the others."""
    x_obs, far = rows(50, 3, seed=0), rows(30, 3, seed=1) + 9.0
    fitter, rng = Recorded(far=-5.0), torch.Generator().manual_seed(0)
    found = mixture_weights(x_obs, torch.cat([x_obs[:20], far]), fitter, folds=2, rng=rng)
    assert set(row_keys(torch.cat(fitter.pool)).tolist()) == set(row_keys(far).tolist())
    assert (found.weights[:20] == MIN_WEIGHT).all()
    assert (found.weights[20:] > 0.99).all()
    composition = found.composition
    assert composition.n_labels == 50
    assert (composition.n_duplicates, composition.n_classified) == (20, 30)
    assert composition.atypical_share == 1.0
    assert composition.labeled_share == pytest.approx(0.4, abs=0.01)
    n_fits = len(fitter.pool)
    same = mixture_weights(x_obs, x_obs, fitter, folds=2, rng=rng)
    assert len(fitter.pool) == n_fits, "no row is left to classify"
    assert (same.composition.labeled_share, same.composition.n_classified) == (1.0, 0)


def test_synthetic_rows_have_weights_but_are_no_part_of_the_composition() -> None:
    x_obs, near, far = rows(50, 3, seed=0), rows(30, 3, seed=1), rows(60, 3, seed=2) + 9.0
    rng = torch.Generator().manual_seed(0)
    pool, fitter = torch.cat([near, x_obs[:10], far]), Recorded(far=-5.0)
    found = mixture_weights(x_obs, pool, fitter, folds=2, rng=rng, n_real=40)
    assert len(found.weights) == 100
    assert (found.weights[40:] > 0.99).all()
    composition = found.composition
    assert (composition.n_classified, composition.n_duplicates) == (30, 10)
    assert composition.atypical_share < 0.1
    assert composition.labeled_share == 1.0


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
    with pytest.raises(KeyboardInterrupt):
        weigh(rows(20, 1, seed=0), rows(20, 1, seed=1), network)


def test_augmented_rows_are_what_the_classifier_sees() -> None:
    """Each step sees labeled and pool rows as they are changed; what it scores is left as it is."""
    seen: list[Tensor] = []

    def augmented(x: Tensor, rng: torch.Generator) -> Tensor:
        seen.append(x)
        return x + torch.randn(len(x), 1, generator=rng)

    x_obs, x_pool = rows(40, 1, seed=0), rows(40, 1, seed=1) + 20.0
    config = gpn.TrainConfig(steps=60, label_batch=16, learning_rate=0.01)
    fitter = NetworkRatio(
        gpn.MLPTrunk(widths=(8,)), config, torch.Generator().manual_seed(0), no_progress,
        augmented=augmented,
    )  # fmt: skip
    log_ratio = fitter.fit(x_obs, x_pool)
    assert len(seen) == 60
    assert all(len(x) == 32 and (x[:16] < 10).all() and (x[16:] > 10).all() for x in seen)
    assert log_ratio(x_obs).min() > log_ratio(x_pool).max()
    assert len(seen) == 60


def test_the_least_weight_is_an_argument() -> None:
    x = rows(50, 2, seed=0)
    rng = torch.Generator().manual_seed(0)
    found = mixture_weights(x, x, TreeRatio(rng), folds=2, rng=rng, least=0.001)
    assert (found.weights == 0.001).all(), "copies of labeled rows"
