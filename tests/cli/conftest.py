"""Commands in a folder of their own, and the tables there."""

from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gpn
from gpn.cli.commands import app
from tests.cli.command import Command, rows


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`run("fit", "a.csv", ...)` in a folder of its own, with short fits."""
    monkeypatch.chdir(tmp_path)
    short = gpn.TrainConfig(steps=60, label_batch=64, pool_batch=64, learning_rate=5e-3)
    for name in ("GPNRegressor", "GPNClassifier"):
        kind = getattr(gpn, name)
        config = gpn.GPNConfig(anchor="independent", beta=0.1, noise_std=0.2, train=short)
        made = partial(kind, config)
        monkeypatch.setattr(f"gpn.tables.model.{name}", made)
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def tables(run: Command, tmp_path: Path) -> Path:
    """labeled.csv, pool.csv, test.csv and ood.csv."""
    rows().drop(columns="grade").to_csv("labeled.csv", index=False)
    rows(400, 1, 3.0).drop(columns=["yield", "grade"]).to_csv("pool.csv", index=False)
    rows(100, 2).drop(columns="grade").to_csv("test.csv", index=False)
    ood = rows(100, 3)
    ood["size"] += 2.5
    ood.to_csv("ood.csv", index=False)
    return tmp_path
