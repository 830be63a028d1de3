"""Every method that trains on batches augments its rows, and only during training."""

from typing import Any

import pytest
import torch
from torch import Tensor

import gpn
from gpn import methods

SMALL: dict[str, Any] = {
    "trunk": gpn.MLPTrunk(widths=(8,), activation="relu"),
    "train": gpn.TrainConfig(steps=3, label_batch=4, pool_batch=4),
}


@pytest.mark.parametrize(
    "name", ["gpn", "gpn-paper", "dropout", "sngp", "dkl", "ensemble", "ensemble-pr", "ensemble-or"]
)
def test_training_rows_go_through_the_augmentation(name: str) -> None:
    seen: list[tuple[int, ...]] = []

    def recorded(x: Tensor, rng: torch.Generator) -> Tensor:
        seen.append(tuple(x.shape))
        return x + torch.rand(x.shape, generator=rng, device=rng.device).to(x)

    x = torch.linspace(-1, 1, 24).reshape(12, 2)
    plain = gpn.Task(x, x[:, 0], pool=x)
    augmented = gpn.Task(x, x[:, 0], pool=x, augment=recorded)
    settings = {"beta": 0.1, "anchor": "independent"} if name == "gpn" else {}
    fits = [methods.get(name, **SMALL, **settings).fit(task, rng=0) for task in (plain, augmented)]
    assert len(seen) == 3, "once a step"
    n_calls = len(seen)
    draws = [fit.sample(x, 2, rng=0) for fit in fits]
    assert not torch.equal(*draws), "augmentation changes the fit"
    assert len(seen) == n_calls, "not when the posterior draws"
