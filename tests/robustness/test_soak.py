"""The soak of `gpn predict`: its parts here, and a short run of it in the slow tests."""

import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

import gpn
from benchmarks import soak
from benchmarks.context import BenchmarkContext


def test_a_model_of_numbers_alone_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are stored column by column, which a file must not mind."""
    short = soak.CONFIG.replace(train=gpn.TrainConfig(steps=2, device="cpu"))
    monkeypatch.setattr(soak, "CONFIG", short)
    soak.write_model(tmp_path / "m.gpn")
    record = gpn.load(tmp_path / "m.gpn").record
    assert (record.x == soak.table(500, 0).drop(columns="y").to_numpy()).all()


@pytest.mark.parametrize("rows", [7, 20_000, 40_003])
def test_as_many_rows_as_asked_for(rows: int, tmp_path: Path) -> None:
    soak.write_rows(tmp_path / "new.csv", rows)
    assert pd.read_csv(tmp_path / "new.csv").shape == (rows, soak.N_COLUMNS)


def test_growing_memory_shows() -> None:
    growing = soak.report(100, 2.0, [100.0, 100.0, 150.0, 200.0], 1.0)
    assert growing[-1].value == 2.0
    assert (growing[1].value, growing[1].unit) == (50, "rows/s")


def test_a_command_that_fails_is_named() -> None:
    with pytest.raises(RuntimeError, match="must end well, got status 3"):
        soak.watch([sys.executable, "-c", "raise SystemExit(3)"], {})


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads memory by Linux's means")
def test_memory_is_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "N_ROWS", 400_000)
    found = list(soak.soak(BenchmarkContext(torch.device("cpu"))))
    print({row.what: row.value for row in found})
    growth = found[-1].value
    assert growth is not None
    assert growth <= soak.MAX_GROWTH
