"""The theorem of split conformal prediction: coverage is ⌈(n + 1) level⌉ / (n + 1), exactly."""

import math
from fractions import Fraction

import pytest
import torch

from gpn.estimators.intervals.conformal import (
    class_scores,
    conformal_quantile,
    conformal_rank,
    fewest_rows,
    interval_scores,
)

LEVELS = (0.5, 0.8, 0.9, 0.95)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [19, 20, 37, 99, 100])
def test_coverage_is_exact_under_exchangeability(n: int, level: float) -> None:
    """Each of the n + 1 scores is the new one with the same probability."""
    scores = torch.randperm(n + 1, generator=torch.Generator().manual_seed(n)).double()[:, None]
    rows = torch.arange(n + 1)
    inside = [bool(scores[i] <= conformal_quantile(scores[rows != i], level)) for i in rows]
    exact = Fraction(str(level)) * (n + 1)
    assert Fraction(sum(inside), n + 1) == Fraction(math.ceil(exact), n + 1)
    assert sum(inside) / (n + 1) >= level


def test_ties_never_lower_coverage() -> None:
    scores = torch.tensor([0.0, 0, 1, 1, 1, 2, 2, 3, 3, 3])[:, None].double()
    rows = torch.arange(10)
    for level in (0.3, 0.5, 0.8):
        inside = [bool(scores[i] <= conformal_quantile(scores[rows != i], level)) for i in rows]
        assert sum(inside) / 10 >= level


@pytest.mark.parametrize(("level", "fewest"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19)])
def test_the_fewest_rows_are_the_first_that_suffice(level: float, fewest: int) -> None:
    assert fewest_rows(level) == fewest
    assert conformal_rank(fewest, level) <= fewest
    assert fewest == 1 or conformal_rank(fewest - 1, level) > fewest - 1
    conformal_quantile(torch.rand(fewest, 1), level)
    if fewest > 1:
        with pytest.raises(ValueError, match=f"needs at least {fewest} calibration rows, got"):
            conformal_quantile(torch.rand(fewest - 1, 1), level)


def test_rounding_does_not_raise_the_rank() -> None:
    assert 100 * 0.07 > 7
    assert conformal_rank(99, 0.07) == 7
    assert conformal_rank(9, 0.3) == 3


def test_each_output_has_its_own_quantile() -> None:
    scores = torch.arange(9.0)[:, None] * torch.tensor([1.0, 10.0])
    assert conformal_quantile(scores, 0.5).tolist() == [4.0, 40.0]


def test_scores() -> None:
    y, mean = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.0, 2.0]])
    assert interval_scores(y, mean, torch.tensor([[2.0, 4.0]])).tolist() == [[0.5, 1.0]]
    probabilities = torch.tensor([[0.25, 0.75], [1.0, 0.0]])
    assert class_scores(probabilities, torch.tensor([1, 1])).tolist() == [[0.25], [1.0]]
