"""Which rows to label next, against brute force."""

import pytest
import torch
from torch import Tensor

from gpn.core.posterior.base import sample_covariance_root
from gpn.estimators.active_learning import reduce_exact_variance, reduce_variance


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def cholesky(covariance: Tensor) -> Tensor:
    """L of shape (1, n, n) with LᵀL this covariance."""
    return torch.linalg.cholesky(covariance).T[None]


def left_over(covariance: Tensor, rows: list[int], noise: float) -> float:
    """The exact summed variance once `rows` are labeled."""
    labeled = covariance[rows][:, rows] + noise * torch.eye(len(rows), dtype=covariance.dtype)
    cross = covariance[:, rows]
    return float((covariance - cross @ torch.linalg.inv(labeled) @ cross.T).diagonal().sum())


@pytest.mark.parametrize("noise", [0.01, 1.0])
def test_each_pick_is_the_best_next_one_by_the_exact_posterior(noise: float) -> None:
    x = torch.rand(30, 2, generator=seeded(1), dtype=torch.float64)
    covariance = torch.exp(-8 * torch.cdist(x, x) ** 2) + 1e-6 * torch.eye(30)
    picked = reduce_variance(cholesky(covariance), 5, noise).tolist()
    assert reduce_exact_variance(covariance[None], 5, noise).tolist() == picked
    for k in range(5):
        options = {i: left_over(covariance, [*picked[:k], i], noise) for i in range(30)}
        best = min(v for i, v in options.items() if i not in picked[:k])
        assert options[picked[k]] == pytest.approx(best, rel=1e-6)


def test_every_second_row_may_be_a_random_one() -> None:
    covariance = torch.diag(torch.arange(40, 0, -1).double())
    sure = reduce_exact_variance(covariance[None], 6).tolist()
    mixed = [
        reduce_exact_variance(covariance[None], 6, random_rows=seeded(seed)).tolist()
        for seed in range(50)
    ]
    assert sure == list(range(6))
    assert all(len(set(picked)) == 6 and picked[0] == 0 for picked in mixed)
    assert len({picked[1] for picked in mixed}) > 20
    for picked in mixed:  # the best of the rows that are left
        assert picked[2] == min(set(range(40)) - set(picked[:2]))


def test_several_outputs_count_together() -> None:
    wide, narrow = torch.diag(torch.tensor([1.0, 4.0, 2.0])), torch.diag(torch.tensor([9.0, 1, 1]))
    both = torch.cat([cholesky(c.double()) for c in (wide, narrow)])
    assert reduce_variance(both, 3, 0.1).tolist() == [0, 1, 2]
    assert reduce_exact_variance(both.mT @ both, 3, 0.1).tolist() == [0, 1, 2]


def test_a_batch_does_not_ask_twice_for_the_same() -> None:
    """Rows 0 to 4 are copies of each other and the most uncertain; row 5 stands alone."""
    covariance = torch.full((6, 6), 4.0, dtype=torch.float64)
    covariance[5], covariance[:, 5] = 0.0, 0.0
    covariance[5, 5] = 1.0
    covariance += 1e-6 * torch.eye(6)
    assert set(reduce_variance(cholesky(covariance), 2, 1e-3).tolist()) & {5}


@pytest.mark.parametrize("n", [3, 9])
def test_no_more_rows_than_there_are(n: int) -> None:
    picked = reduce_variance(sample_covariance_root(torch.randn(50, 4, 2, generator=seeded())), n)
    assert len(set(picked.tolist())) == len(picked) == min(n, 4)


def test_the_root_of_draws_is_that_of_their_covariance() -> None:
    draws = torch.randn(30, 4, 2, generator=seeded(), dtype=torch.float64)
    for output, root in enumerate(sample_covariance_root(draws)):
        assert torch.allclose(root.T @ root, draws[:, :, output].T.cov())
