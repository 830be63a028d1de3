"""Small synthetic data in place of the paper's, for tests of the experiments."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import gpn
from experiments.paper import context
from experiments.paper.plans import PLANS
from experiments.paper.tasks.superconductor import THRESHOLD_KELVIN


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick runs in the user's own cache are neither read nor changed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def quiet(line: str) -> None:
    pass


def tiny(monkeypatch: pytest.MonkeyPatch, task: str, **changes: Any) -> None:
    """The task's plan with small networks and few steps."""
    small = gpn.MLPTrunk(widths=(8,) * 2, activation="relu")
    train = gpn.TrainConfig(steps=40, label_batch=16, pool_batch=16)
    plan = replace(PLANS[task], trunk=small, ensemble_trunk=small, train=train, seeds=2)
    monkeypatch.setitem(PLANS, task, replace(plan, **changes))


def rows(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Four hundred rows of three features, each twice, with temperatures around the threshold."""
    x = rows(200, 3).double().repeat(2, 1)
    y = THRESHOLD_KELVIN + 10 * x[:, 0] + rows(400, seed=1).double()
    made = SimpleNamespace(x=x, y=y)
    monkeypatch.setattr(gpn.data, "superconductivity", lambda folder=None: made)
    context._split.cache_clear()
    return made


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small image sets under every name: each has its own brightness."""

    def images(name: str, folder: Any = None) -> SimpleNamespace:
        channels, size = (1, 28) if "mnist" in name else (3, 32)
        level = 20 * (1 + sum(map(ord, name)) % 10)
        rng = torch.Generator().manual_seed(level)

        def part(n: int) -> gpn.data.ImagePart:
            noise = torch.randint(50, (n, channels, size, size), generator=rng)
            y = torch.randint(10, (n,), generator=rng)
            return gpn.data.ImagePart((noise + level).clamp(max=255).to(torch.uint8), y)

        return SimpleNamespace(train=part(90), test=part(20))

    monkeypatch.setattr(gpn.data, "images", images)
    monkeypatch.setattr("experiments.paper.tasks.images.N_VALID", 30)
    context._split.cache_clear()
