"""Codes for missing values, such as -999, are warned of and do not spoil a column's scale."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpn import GPNRegressor, MLPTrunk, TrainConfig
from gpn.estimators import OneValueWarning, SentinelWarning
from gpn.estimators.scaling import Scale, scale_of_rows
from gpn.estimators.validation import CopiesWarning, warn_of_copies
from tests.estimators.small import SMALL

RNG = np.random.default_rng(0)
X, POOL = RNG.uniform(-1, 1, (100, 2)), RNG.uniform(-2, 2, (300, 2))
NEW = RNG.uniform(-1, 1, (200, 2))
QUICK = SMALL.replace(
    trunk=MLPTrunk(widths=(32,)), train=TrainConfig(steps=200, learning_rate=0.01)
)


def truth(x: Any) -> Any:
    return np.sin(2 * x[:, 0]) + x[:, 1]


def spoilt(rows: Any, column: int = 1, count: int = 1) -> Any:
    changed = rows.copy()
    changed[:count, column] = -999
    return changed


@pytest.mark.parametrize(
    ("x", "pool", "message"),
    [
        (X, spoilt(POOL), r"column 1 has -999 in 1 of 400 rows, \S+ standard"),
        (spoilt(X), POOL, r"column 1 has -999 in 1 of 400 rows, .*Impute or drop"),
    ],
)
def test_a_code_for_missing_values_does_not_spoil_the_fit(x: Any, pool: Any, message: str) -> None:
    """R² was 0.2 and below."""
    with pytest.warns(SentinelWarning, match=message) as caught:
        model = GPNRegressor(QUICK, random_state=0).fit(x, truth(X), pool)
    assert caught[0].filename == __file__
    assert model.score(NEW, truth(NEW)) > 0.9
    assert model.x_scale_.scale[1] == pytest.approx(0.7, abs=0.5)


ORDINARY = {
    "alike": (X, POOL),
    "no pool": (X, None),
    "nine times as wide": (X, 9 * RNG.uniform(-1, 1, (300, 2))),
    "two labels that are close": (X[:2] / 1000, POOL),
    "a rare category": (np.eye(200)[:, :2], np.eye(2)[np.arange(300) % 2]),
    "a long tail": (np.exp(2 * RNG.normal(size=(400, 2))), np.exp(2 * RNG.normal(size=(900, 2)))),
    "mostly zero": (np.where(RNG.uniform(size=(99, 2)) < 0.1, 500.0, 0.0), None),
    "constant": (np.full((30, 2), 7.0), POOL),
    "images": (np.zeros((4, 1, 3, 3)), np.full((4, 1, 3, 3), -999.0)),
}


@pytest.mark.parametrize(("x", "pool"), ORDINARY.values(), ids=ORDINARY.keys())
def test_ordinary_columns_are_scaled_by_all_rows(x: Any, pool: Any) -> None:
    """To the last digit, and without a warning."""
    scale, whole = scale_of_rows(x, pool, None), x if pool is None else np.concatenate([x, pool])
    np.testing.assert_array_equal(scale.shift, Scale.of(whole).shift)
    np.testing.assert_array_equal(scale.scale, Scale.of(whole).scale)


def test_other_columns_keep_their_scale_and_many_codes_are_counted() -> None:
    pool = spoilt(POOL, column=0, count=120)
    with pytest.warns(SentinelWarning, match="'a' has -999 in 120 of 400 rows"):
        scale = scale_of_rows(X, pool, np.array(["a", "b"], dtype=object))
    rest = np.concatenate([X, pool[120:]])[:, 0]
    assert (scale.shift[0], scale.scale[0]) == pytest.approx((rest.mean(), rest.std()))
    assert scale.scale[1] == Scale.of(np.concatenate([X, pool])).scale[1]


@pytest.mark.parametrize("n", [10, 20, 50, 500])
def test_small_tables_with_long_tails_clusters_and_wide_pools_are_left_alone(n: int) -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        tails = np.exp(rng.normal(size=(n, 3)) * [1, 2, 3])
        counts = np.stack([rng.zipf(2.0, n) + 0.5, rng.pareto(1.0, n)], 1)
        cluster = np.where(rng.uniform(size=(n, 1)) < 0.2, rng.normal(100, 5, (n, 1)), tails[:, :1])
        x = np.concatenate([tails, counts, cluster, rng.uniform(0, 31, (n, 1))], 1)
        pool = np.concatenate([x[:, :-1], rng.uniform(0, 500, (n, 1))], 1)
        np.testing.assert_array_equal(
            scale_of_rows(x, pool, None).scale, Scale.of(np.concatenate([x, pool])).scale
        )


def test_a_column_is_called_by_its_name() -> None:
    frame = pd.DataFrame(spoilt(POOL), columns=["age", "dose"])
    with pytest.warns(SentinelWarning, match="column 'dose' has -999 in 1 of 500"):
        GPNRegressor(SMALL, random_state=0).fit(frame[100:], truth(X[:1])[0] + POOL[100:, 0], frame)


def test_another_value_far_from_all_others_is_named() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    x[:8, 1] = -7.0
    with pytest.warns(SentinelWarning, match="column 1 has -7 in 8 of 100 rows.*replace them by"):
        scale_of_rows(x, None, None)


def test_copies_are_said_where_labels_repeat_too() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 2)).repeat(2, 0), rng.normal(size=(40, 1)).repeat(2, 0)
    with pytest.warns(CopiesWarning, match="got 40 of 80 that are copies of others"):
        warn_of_copies(x, y)
    warn_of_copies(x, rng.normal(size=(80, 1)))  # measured again
    warn_of_copies(x, (y > 0).astype(float))  # a target of two values
    warn_of_copies(x[::2], y[::2])


def test_a_sentinel_among_targets_is_warned_of_and_fitted() -> None:
    y = truth(X)
    y[3] = -999
    with pytest.warns(SentinelWarning, match=r"y should hold no codes .*, got -999 in 1 of"):
        model = GPNRegressor(SMALL, random_state=0).fit(X, y, POOL)
    assert model.y_scale_.scale[0] == pytest.approx(y.std())


def test_one_value_has_no_scale() -> None:
    """A prior chosen by its evidence was sure of something: 18 % of values in intervals of 95 %."""
    quick = GPNRegressor(random_state=0).set_params(
        config__train=TrainConfig(steps=100, learning_rate=0.01)
    )
    with pytest.warns(
        OneValueWarning, match=r"y should hold two values at least, got 3 only.*were 1"
    ):
        model = quick.fit(X[:1], [3.0], POOL)
    low, high = model.predict_interval(POOL)
    assert (high - low).min() > 0.5
    assert np.median(high - low) > 5
