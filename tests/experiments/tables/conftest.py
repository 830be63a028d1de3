"""Small synthetic tables, and fast settings of every method."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import harness
from experiments.tables.methods import METHODS
from experiments.tables.methods.gaussian_process import GaussianProcess, Sizes

NOISE = 0.1
FAST = {
    "gradient-boosting": {"max_iter": 20},
    "random-forest": {"trees": 40},
    "gp-ard": {"steps": 40},
    "deep-ensemble": {"widths": (32, 32), "max_steps": 600, "patience": 3},
    "ngboost": {"max_iterations": 60},
    "catboost": {"max_iterations": 200},
}
VARIATIONAL = GaussianProcess(
    cpu=Sizes(evidence_labels=60, exact_labels=100), inducing=30, epochs=30, batch=16, steps=30
)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, changes in FAST.items():
        monkeypatch.setitem(METHODS, name, replace(METHODS[name], **changes))


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def write_table(tmp_path: Path) -> Callable[..., Path]:
    """Write `<folder>/<name>.npz`: y = x₀ + 0.5 x₁ with noise, and a column that says nothing."""

    def write(name: str = "line", n: int = 200) -> Path:
        rng = np.random.default_rng(n)
        x = rng.uniform(-1, 1, (n, 3))
        y = 20 + x[:, 0] + 0.5 * x[:, 1] + NOISE * rng.standard_normal(n)
        folder = tmp_path / "tables"
        folder.mkdir(exist_ok=True)
        np.savez(folder / f"{name}.npz", x=x, y=y, fold=(np.arange(n) % 10).astype(np.int8))
        return folder

    return write
