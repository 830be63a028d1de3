"""Pools: the distribution of draws, and that no more is read than is drawn."""

import math

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from gpn.core.pools.base import SamplerPool, TensorPool, box
from gpn.core.pools.rows import DatasetPool


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Counted(Dataset):
    """Row i is (i, i²), with a label if asked for; remembers which rows were read."""

    def __init__(self, length: int, *, labeled: bool = False) -> None:
        self.length = length
        self.labeled = labeled
        self.reads: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Tensor | tuple[Tensor, int]:
        self.reads.append(index)
        row = torch.tensor([float(index), float(index) ** 2])
        return (row, -1) if self.labeled else row


@pytest.mark.parametrize(
    "pool",
    [TensorPool(torch.arange(5.0)[:, None]), DatasetPool(Counted(5))],
    ids=["tensor", "dataset"],
)
def test_rows_are_drawn_uniformly(pool: TensorPool | DatasetPool) -> None:
    counts = pool.draw(20_000, seeded())[:, 0].long().bincount(minlength=5)
    error = math.sqrt(20_000 * 0.2 * 0.8)
    assert len(pool) == 5
    assert (counts - 4000).abs().max() < 5 * error


def test_tensor_pool_keeps_rows_whole() -> None:
    rows = torch.arange(24.0).reshape(4, 2, 3)
    drawn = TensorPool(rows).draw(50, seeded())
    assert drawn.shape == (50, 2, 3)
    assert all(any(torch.equal(row, own) for own in rows) for row in drawn)


def test_sampler_pool_passes_size_and_generator_on() -> None:
    pool = SamplerPool(lambda m, rng: torch.randn(m, 2, generator=rng))
    torch.testing.assert_close(pool.draw(7, seeded(3)), torch.randn(7, 2, generator=seeded(3)))


def test_box_is_uniform() -> None:
    """Mean (a + b)/2, variance (b − a)²/12, nothing outside, dimensions uncorrelated."""
    low, high = torch.tensor([-2.0, 1.0]), torch.tensor([2.0, 1.5])
    rows = box(low.tolist(), high.tolist()).draw(40_000, seeded())
    width = high - low
    assert (rows >= low).all()
    assert (rows <= high).all()
    error = width / math.sqrt(12 * 40_000)
    assert ((rows.mean(0) - (low + high) / 2).abs() < 5 * error).all()
    torch.testing.assert_close(rows.var(0), width**2 / 12, rtol=0.03, atol=0.0)
    assert rows.T.corrcoef()[0, 1].abs() < 5 / math.sqrt(40_000)


@pytest.mark.parametrize("labeled", [False, True])
def test_dataset_pool_reads_only_what_it_draws(labeled: bool) -> None:
    dataset = Counted(1_000_000, labeled=labeled)
    pool = DatasetPool(dataset)
    assert len(pool) == 1_000_000
    assert dataset.reads == [], "making the pool must not read it"
    rows = pool.draw(8, seeded())
    read = torch.tensor(dataset.reads, dtype=torch.float32)
    assert len(dataset.reads) == 8
    torch.testing.assert_close(rows, torch.stack([read, read**2], dim=1))


@pytest.mark.parametrize(
    "pool",
    [
        TensorPool(torch.randn(30, 2, generator=seeded())),
        SamplerPool(lambda m, rng: torch.rand(m, 2, generator=rng)),
        box([0.0, 0.0], [1.0, 2.0]),
        DatasetPool(Counted(30)),
    ],
    ids=["tensor", "sampler", "box", "dataset"],
)
class TestEveryPool:
    def test_same_seed_same_rows(self, pool: TensorPool) -> None:
        assert torch.equal(pool.draw(9, seeded(1)), pool.draw(9, seeded(1)))
        assert not torch.equal(pool.draw(9, seeded(1)), pool.draw(9, seeded(2)))

    def test_global_random_state_is_untouched(self, pool: TensorPool) -> None:
        before = torch.get_rng_state()
        pool.draw(9, seeded())
        assert torch.equal(torch.get_rng_state(), before)

    def test_casting_changes_the_dtype_and_not_the_rows(self, pool: TensorPool) -> None:
        cast = pool.to(torch.device("cpu"), torch.float64).draw(9, seeded())
        assert cast.dtype == torch.float64
        assert torch.equal(cast, pool.draw(9, seeded()).double())


def test_empty_pools_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at least one row, got 0; .*gpn\.box"):
        TensorPool(torch.zeros(0, 2))
    with pytest.raises(ValueError, match=r"at least one row, got an empty dataset"):
        DatasetPool(Counted(0))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_the_first_bad_row_is_named(bad: float) -> None:
    rows = torch.zeros(5, 2)
    rows[3, 1] = rows[4, 0] = bad
    with pytest.raises(ValueError, match=r"must be finite, got .* in 2 of 5 rows \(first: row 3\)"):
        TensorPool(rows)


def test_a_vector_is_not_rows() -> None:
    with pytest.raises(ValueError, match=r"must be rows .* got \(4,\); .*reshape\(-1, 1\)"):
        TensorPool(torch.zeros(4))


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([0.0, 1.0], [1.0, 1.0]),
        ([0.0], [1.0, 2.0]),
        ([math.nan], [1.0]),
        ([0.0], [math.inf]),
    ],
)
def test_bad_boxes_are_refused(low: list[float], high: list[float]) -> None:
    with pytest.raises(
        ValueError, match=r"finite and have low < high .*got low=\[.*\] and high=\[.*\]"
    ):
        box(low, high)


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (torch.zeros(3, 2), r"\(3, 2\)"),
        (torch.zeros(4), r"\(4,\)"),
        ([[0.0]] * 4, "list"),
    ],
)
def test_a_sampler_must_return_the_rows_asked_for(made: object, found: str) -> None:
    pool = SamplerPool(lambda m, rng: made)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match=rf"must return a tensor of 4 rows.*got {found}"):
        pool.draw(4, seeded())


def test_a_changed_pool_of_rows_keeps_all_of_them() -> None:
    rows = torch.arange(9000.0)[:, None]
    pool = TensorPool(rows).mapped(lambda part: 2 * part)
    assert len(pool) == 9000
    drawn = pool.sample(9000, seeded())
    torch.testing.assert_close(drawn.sort(0).values, 2 * rows)
