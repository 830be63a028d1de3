"""Pools of images: as many OOD images as labeled ones; label files must exist."""

import gzip
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.paper.tasks.images import cifar10, mnist
from experiments.paper.tasks.split import Split, balanced_pool
from gpn.core.pools.base import TensorPool
from gpn.data import MissingData


def check_halves(split: Split) -> None:
    """The first half are the labeled rows, the second OOD rows."""
    assert isinstance(split.task.pool, TensorPool)
    known, ood = split.task.pool.rows.chunk(2)
    assert torch.equal(known, split.task.x_obs)
    assert len(ood) == len(known)
    where = {tuple(row) for row in split.pool_ood.flatten(1).tolist()}
    assert {tuple(row) for row in ood.flatten(1).tolist()} <= where


@pytest.mark.parametrize("count", [1, 3, 7, 10, 11, 25])
def test_halves_are_equal_for_any_number_of_ood_rows(count: int) -> None:
    known, ood = torch.zeros(10, 2), torch.arange(1.0, count + 1)[:, None].expand(-1, 2)
    pool = balanced_pool(known, ood)
    assert torch.equal(pool[:10], known)
    often = pool[10:, 0].long().bincount(minlength=count + 1)[1:]
    assert often.sum() == 10
    assert often.max() - often.min() <= 1


@pytest.mark.parametrize("make", [mnist, cifar10])
def test_they_stay_equal_once_validation_images_join(make: Any, pictures: None) -> None:
    split = make(0)
    check_halves(split)
    merged = split.merged()
    check_halves(merged)
    assert len(merged.task.x_obs) == 90
    assert len(merged.pool_ood) == len(split.pool_ood) + len(split.valid.x_ood)


@pytest.mark.parametrize("make", [mnist, cifar10])
def test_a_quick_run_has_halves_too(make: Any, pictures: None) -> None:
    sample = make(0).sample(0.5, seed=0)
    check_halves(sample)
    check_halves(sample.merged())


def test_a_contaminated_pool_is_not_balanced_again(pictures: None) -> None:
    split = cifar10(0).merged().contaminated(0.1, seed=0)
    assert isinstance(split.task.pool, TensorPool)
    assert len(split.task.pool.rows) == 100


def test_the_pools_ood_set_is_not_unseen(pictures: None) -> None:
    assert list(cifar10(0).unseen) == ["textures"]
    assert not cifar10(0, ood="textures32").unseen


@pytest.mark.usefixtures("unchecked")
def test_images_without_labels_say_which_file_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.paper.tasks.images.N_VALID", 5)
    content = struct.pack(">4I", 0x0803, 20, 28, 28) + bytes(20 * 28 * 28)
    for name in ("mnist", "fashion-mnist"):
        (tmp_path / name).mkdir()
        for part in ("train", "t10k"):
            path = tmp_path / name / f"{part}-images-idx3-ubyte.gz"
            path.write_bytes(gzip.compress(content))
    with pytest.raises(MissingData, match=r"train-labels-idx1-ubyte of mnist.*yann.*LeCun"):
        mnist(0, tmp_path)
