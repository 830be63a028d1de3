"""Far rows, heavy tails and wide pools do not spoil a model of a table."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpn import GPNRegressor

pytestmark = pytest.mark.filterwarnings("ignore:columns should hold no codes")
Table = Any


def truth(x: Table) -> Table:
    return np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]


def labels(n: int = 100, seed: int = 0) -> tuple[Table, Table]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    return x, truth(x) + 0.05 * rng.normal(size=n)


def quality(x: Table, y: Table, pool: Table) -> tuple[float, float]:
    """R² and the coverage of 95 % intervals on new rows in ±1."""
    model = GPNRegressor(mean=None, random_state=0).fit(x, y, pool)
    new, values = labels(400, 1)
    low, high = model.predict_interval(new)
    r2 = 1 - np.mean((model.predict(new) - values) ** 2) / values.var()
    return float(r2), float(np.mean((low <= values) & (values <= high)))


def with_far_row(rows: Table, far: float) -> Table:
    return np.concatenate([rows, [[far, 0.0]]])


POOLS: dict[str, Callable[[np.random.Generator], Table]] = {
    "clean": lambda rng: rng.uniform(-1, 1, (300, 2)),
    "a row at 500": lambda rng: with_far_row(rng.uniform(-1, 1, (300, 2)), 500.0),
    "a row at 4821": lambda rng: with_far_row(rng.uniform(-1, 1, (300, 2)), 4821.0),
    "a cell of 2**70": lambda rng: with_far_row(rng.uniform(-1, 1, (300, 2)), 2.0**70),
    "log-normal": lambda rng: rng.lognormal(0, 2, (300, 2)),
    "Cauchy": lambda rng: rng.standard_cauchy((300, 2)),
    "±30": lambda rng: rng.uniform(-30, 30, (300, 2)),
    "labels outside": lambda rng: rng.uniform(2, 3, (300, 2)),
}


@pytest.mark.parametrize("make", POOLS.values(), ids=POOLS.keys())
def test_no_pool_spoils_the_model(make: Callable[[np.random.Generator], Table]) -> None:
    r2, coverage = quality(*labels(), make(np.random.default_rng(2)))
    assert r2 > 0.97
    assert 0.88 <= coverage <= 1.0


@pytest.mark.parametrize("far", [500.0, 4821.0, 2.0**70])
def test_no_labeled_row_spoils_the_model(far: float) -> None:
    x, y = labels()
    pool = np.random.default_rng(2).uniform(-1, 1, (300, 2))
    r2, coverage = quality(with_far_row(x, far), np.append(y, 0.3), pool)
    assert r2 > 0.95
    assert 0.88 <= coverage <= 1.0


def test_the_fiftieth_label_does_not_hurt() -> None:
    pool = np.random.default_rng(2).uniform(-1, 1, (300, 2))
    x, y = labels(50)
    before, after = (1 - quality(x[:n], y[:n], pool)[0] for n in (49, 50))
    assert after < 1.2 * before
