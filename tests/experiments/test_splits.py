"""Splits without leaks, and pools with a given share of OOD rows."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import gpn
from experiments.paper.contamination import contaminated
from experiments.paper.tasks.images import cifar10, mnist
from experiments.paper.tasks.split import Split
from experiments.paper.tasks.superconductor import superconductor, superconductor_grouped
from gpn.core.pools.base import TensorPool


def as_set(x: Tensor) -> set[tuple[float, ...]]:
    return {tuple(row) for row in x.flatten(1).tolist()}


def pool_rows(split: Split) -> Tensor:
    assert isinstance(split.task.pool, TensorPool)
    return split.task.pool.rows


class TestSuperconductor:
    def test_warm_rows_are_labeled_and_all_training_rows_are_in_the_pool(
        self, table: SimpleNamespace
    ) -> None:
        split = superconductor(0)
        everything = len(pool_rows(split)) + sum(
            len(x) for part in (split.valid, split.test) for x in (part.x_id, part.x_ood)
        )
        assert everything == 400
        assert len(pool_rows(split)) == 280
        assert as_set(split.task.x_obs) <= as_set(pool_rows(split))
        limit = split.task.y_obs.min()
        assert split.test.y_ood is not None
        assert (split.test.y_id >= limit - 0.2).all()
        assert split.test.y_ood.max() < limit + 0.2
        assert split.test.y_ood.max() < split.test.y_id.min()

    def test_training_rows_alone_set_the_scale(self, table: SimpleNamespace) -> None:
        pool = pool_rows(superconductor(0)).double()
        torch.testing.assert_close(pool.mean(0), torch.zeros(3).double(), atol=1e-6, rtol=0)
        torch.testing.assert_close(pool.std(0), torch.ones(3).double(), atol=1e-6, rtol=0)

    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("group", [2, 7, 40])
    def test_only_the_grouped_split_keeps_identical_rows_together(
        self, seed: int, group: int, table: SimpleNamespace
    ) -> None:
        """Whatever the size of the groups, and wherever the cuts would fall in them."""
        table.x = table.x[: -(-400 // group)].repeat_interleave(group, dim=0)[:400]
        for make, leaks in ((superconductor, True), (superconductor_grouped, False)):
            split = make(seed).merged()
            test = as_set(torch.cat([split.test.x_id, split.test.x_ood]))
            assert bool(test & as_set(pool_rows(split))) == leaks

    def test_seeds_differ(self, table: SimpleNamespace) -> None:
        assert as_set(superconductor(0).test.x_id) != as_set(superconductor(1).test.x_id)


class TestImages:
    @pytest.mark.parametrize("make", [mnist, cifar10])
    def test_half_of_the_pool_is_ood_and_no_test_image_is_in_it(
        self, make: Any, pictures: None
    ) -> None:
        split = make(0)
        pool = as_set(pool_rows(split))
        assert len(split.task.x_obs) == 60
        known = sum(
            row in as_set(split.task.x_obs)
            for row in map(tuple, pool_rows(split).flatten(1).tolist())
        )
        assert known / len(pool_rows(split)) == pytest.approx(0.5, abs=0.1)
        for part in (split.valid.x_id, split.valid.x_ood, split.test.x_id, split.test.x_ood):
            assert not as_set(part) & pool
        for unseen in split.unseen.values():
            assert not as_set(unseen) & pool

    def test_objects_are_flipped_and_digits_are_not(self, pictures: None) -> None:
        assert mnist(0).task.augment == gpn.data.FlipAndShift(shift=2, flip=False)
        assert cifar10(0).task.augment == gpn.data.FlipAndShift(shift=4, flip=True)

    def test_any_image_set_can_be_the_ood_set(self, pictures: None) -> None:
        other = cifar10(0, ood="my-own")
        assert as_set(other.test.x_ood) != as_set(cifar10(0).test.x_ood)


def test_merging_gives_the_validation_rows_to_the_training_rows(table: SimpleNamespace) -> None:
    split = superconductor(0)
    merged = split.merged()
    assert len(merged.task.x_obs) == len(split.task.x_obs) + len(split.valid.x_id)
    assert len(pool_rows(merged)) == 320
    assert as_set(split.valid.x_ood) <= as_set(pool_rows(merged))
    assert len(split.task.x_obs) < len(merged.task.x_obs), "the first one is as it was"


@pytest.mark.parametrize("share", [0.5, 0.1, 0.0])
def test_ood_rows_are_the_given_share_of_the_pool(share: float, table: SimpleNamespace) -> None:
    split = superconductor(0).contaminated(share, seed=0)
    labeled = as_set(split.task.x_obs)
    ood = [tuple(row) not in labeled for row in pool_rows(split).tolist()]
    assert sum(ood) / len(ood) == pytest.approx(share, abs=0.01)


def test_a_synthetic_pool_stays_in_the_range_of_the_labeled_rows(table: SimpleNamespace) -> None:
    split = contaminated(superconductor(0), "none", seed=0)
    x, made = split.task.x_obs, pool_rows(split)
    assert made.shape == x.shape
    assert not as_set(made) & as_set(x)
    assert (made >= x.amin(0)).all()
    assert (made <= x.amax(0)).all()
