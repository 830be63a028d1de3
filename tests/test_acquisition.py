"""Which rows to label next, against brute force."""

import pytest
import torch
from torch import Tensor

from gpn.acquisition import batch_bald, reduce_variance


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def root_of(covariance: Tensor) -> Tensor:
    """L of shape (1, n, n) with LᵀL this covariance."""
    return torch.linalg.cholesky(covariance).T[None]


def left_over(covariance: Tensor, rows: list[int], noise: float) -> float:
    """The exact summed variance once `rows` are labeled."""
    given = covariance[rows][:, rows] + noise * torch.eye(len(rows), dtype=covariance.dtype)
    cross = covariance[:, rows]
    return float((covariance - cross @ torch.linalg.inv(given) @ cross.T).diagonal().sum())


@pytest.mark.parametrize("noise", [0.01, 1.0])
def test_each_pick_is_the_best_next_one_by_the_exact_posterior(noise: float) -> None:
    x = torch.rand(30, 2, generator=seeded(1), dtype=torch.float64)
    covariance = torch.exp(-8 * torch.cdist(x, x) ** 2) + 1e-6 * torch.eye(30)
    picked = reduce_variance(root_of(covariance), 5, noise).tolist()
    for k in range(5):
        options = {i: left_over(covariance, [*picked[:k], i], noise) for i in range(30)}
        best = min(v for i, v in options.items() if i not in picked[:k])
        assert options[picked[k]] == pytest.approx(best, rel=1e-6)


def test_several_outputs_count_together() -> None:
    wide, narrow = torch.diag(torch.tensor([1.0, 4.0, 2.0])), torch.diag(torch.tensor([9.0, 1, 1]))
    both = torch.cat([root_of(c.double()) for c in (wide, narrow)])
    assert reduce_variance(both, 3, 0.1).tolist() == [0, 1, 2]


def test_a_batch_does_not_ask_twice_for_the_same() -> None:
    """Rows 0 to 4 are copies of each other and the most uncertain; row 5 stands alone."""
    covariance = torch.full((6, 6), 4.0, dtype=torch.float64)
    covariance[5], covariance[:, 5] = 0.0, 0.0
    covariance[5, 5] = 1.0
    covariance += 1e-6 * torch.eye(6)
    assert set(reduce_variance(root_of(covariance), 2, 1e-3).tolist()) & {5}


def test_bald_wants_disagreement_and_not_doubt() -> None:
    """Row 0: every function is unsure. Row 1: they are sure of different classes. Row 2: sure."""
    half = torch.arange(100) % 2 == 0
    logits = torch.zeros(100, 3, 2)
    logits[:, 1, 0] = torch.where(half, 8.0, -8.0)
    logits[:, 2, 0] = 8.0
    assert batch_bald(logits, 1, seeded()).tolist() == [1]


def test_bald_does_not_ask_twice_for_the_same() -> None:
    """Rows 0 to 3 hang on one coin, row 4 on a fainter one of its own."""
    coins = torch.randint(2, (400, 2), generator=seeded()) * 2.0 - 1
    logits = torch.zeros(400, 5, 2)
    logits[:, :4, 0] = 6 * coins[:, :1]
    logits[:, 4, 0] = 3 * coins[:, 1]
    picked = batch_bald(logits, 2, seeded()).tolist()
    assert 4 in picked
    assert picked[0] in range(4)


@pytest.mark.parametrize("n", [3, 9])
def test_no_more_rows_than_there_are(n: int) -> None:
    draws = torch.randn(50, 4, 2, generator=seeded())
    for picked in (reduce_variance(draws.permute(2, 0, 1), n), batch_bald(draws, n, seeded())):
        assert len(set(picked.tolist())) == len(picked) == min(n, 4)
