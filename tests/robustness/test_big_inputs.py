"""Estimators and the command line on tables that stay on disk."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, TensorDataset
from typer.testing import CliRunner

import gpn
from gpn.cli import commands as cli
from gpn.estimators import base, chunks
from gpn.tables import files

Array = NDArray[Any]
CONFIG = gpn.GPNConfig(
    anchor="independent",
    beta=0.1,
    noise_std=0.2,
    pool_weights="equal",
    trunk=gpn.MLPTrunk(widths=(16,)),
    train=gpn.TrainConfig(steps=40),
)


def rows(n: int, seed: int = 0) -> Array:
    """Two columns, one of them of another size."""
    return np.random.default_rng(seed).normal([0.0, 50.0], [1.0, 10.0], (n, 2))


X = rows(60)
Y = X[:, 0] + 0.1 * X[:, 1]
POOL = rows(300, 1)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    np.save(tmp_path / "pool.npy", POOL)
    return tmp_path / "pool.npy"


def of_tensor(path: Path) -> Dataset[Any]:
    return TensorDataset(torch.from_numpy(np.load(path)))


SOURCES = {
    "path": gpn.DiskPool,
    "mapped": lambda path: np.load(path, mmap_mode="r"),
    "dataset": of_tensor,
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, saved: Path) -> Any:
    return SOURCES[request.param](saved)


def test_columns_are_scaled_as_in_memory(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All 300 rows are in the sample, so that the scale is the same but for rounding."""
    tasks: list[gpn.Task] = []
    monkeypatch.setattr(base, "Task", lambda *a, **k: tasks.append(gpn.Task(*a, **k)) or tasks[-1])
    there = gpn.GPNRegressor(CONFIG, random_state=0).fit(X, Y, X_unlabeled=source)
    here = gpn.GPNRegressor(CONFIG, random_state=0).fit(X, Y, X_unlabeled=POOL)
    np.testing.assert_allclose(there.x_scale_.shift, here.x_scale_.shift, rtol=1e-9)
    np.testing.assert_allclose(there.x_scale_.scale, here.x_scale_.scale, rtol=1e-9)
    scaled, same = (task.pool.sample(300, torch.Generator()).sort(0).values for task in tasks)
    assert not isinstance(tasks[0].pool, gpn.TensorPool)
    torch.testing.assert_close(scaled, same)


def test_a_pool_far_away_is_scaled_by_a_bounded_sample(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "max_sampled_rows", lambda size: 20)
    model = gpn.GPNRegressor(CONFIG, random_state=0).fit(X, Y, X_unlabeled=gpn.DiskPool(saved))
    both = np.concatenate([X, POOL])
    assert (model.x_scale_.shift != both.mean(0)).all()
    np.testing.assert_allclose(model.x_scale_.shift, both.mean(0), atol=5.0)


def test_a_pool_of_other_columns_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "pool.npy", rows(20)[:, :1])
    with pytest.raises(ValueError, match="1 features"):
        gpn.GPNRegressor(CONFIG).fit(X, Y, X_unlabeled=gpn.DiskPool(tmp_path / "pool.npy"))


@pytest.fixture(scope="module")
def regressor() -> gpn.GPNRegressor:
    return gpn.GPNRegressor(CONFIG, random_state=0).fit(X, Y, X_unlabeled=POOL)


@pytest.fixture(scope="module")
def classifier() -> gpn.GPNClassifier:
    return gpn.GPNClassifier(CONFIG, random_state=0).fit(X, Y > 5, X_unlabeled=POOL)


@pytest.mark.parametrize(
    ("kind", "ask"),
    [
        ("regressor", "predict"),
        ("regressor", "is_ood"),
        ("regressor", "ood_score"),
        ("classifier", "predict"),
        ("classifier", "predict_proba"),
        ("classifier", "entropy"),
        ("classifier", "is_ood"),
    ],
)
def test_predictions_in_chunks_are_those_of_all_rows(
    kind: str, ask: str, source: Any, request: pytest.FixtureRequest, monkeypatch: Any
) -> None:
    model, most = request.getfixturevalue(kind), []
    inputs = type(model)._inputs
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 70)
    monkeypatch.setattr(
        type(model), "_inputs", lambda self, X: (most.append(len(X)), inputs(self, X))[1]
    )
    answer = getattr(model, ask)(source)
    assert max(most) <= 70
    assert len(answer) == 300
    whole = getattr(model, ask)(POOL)
    if answer.dtype.kind == "f":
        np.testing.assert_allclose(answer, whole, rtol=1e-4, atol=1e-5)
    else:
        assert (answer == whole).mean() > 0.99


def test_tuples_of_predictions_are_joined(
    regressor: gpn.GPNRegressor, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 70)
    mapped = np.load(saved, mmap_mode="r")
    for there, here in (
        (regressor.predict(mapped, return_std=True), regressor.predict(POOL, return_std=True)),
        (
            regressor.predict_interval(mapped, observation_noise=False),
            regressor.predict_interval(POOL, observation_noise=False),
        ),
    ):
        for found, expected in zip(there, here, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_a_sample_of_a_file_is_uniform(name: str, tmp_path: Path) -> None:
    """200 of 1,000 rows, read in chunks: each with the same chance, in their order."""
    table = pd.DataFrame({"number": np.arange(45_000), "word": ["a", "b", "c"] * 15_000})
    (table.to_csv if name.endswith("csv") else table.to_parquet)(tmp_path / name, index=False)
    counts: list[int] = []
    some, count = files.sample_rows(tmp_path / name, ["word"], 900, counts.append)
    numbers = some["number"].to_numpy()
    assert (count, len(some), counts[-1]) == (45_000, 900, 45_000)
    assert (np.diff(numbers) > 0).all()
    parts = np.bincount(numbers // 5000, minlength=9)
    assert abs(parts - 100).max() < 5 * 10
    assert (some["word"] == np.array(["a", "b", "c"])[numbers % 3]).all()


def test_a_small_file_is_taken_whole(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1.5, 2.5, 3.5], "b": [1, 2, 3]})
    table.to_csv(tmp_path / "x.csv", index=False)
    some, count = files.sample_rows(tmp_path / "x.csv", [], 3, lambda rows: None)
    assert count == 3
    pd.testing.assert_frame_equal(some, files.read_table(tmp_path / "x.csv"))


def test_the_command_says_that_it_takes_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpn.core.pools.base.MAX_SAMPLED_ROWS", 100)
    monkeypatch.setattr(
        "gpn.tables.model.GPNRegressor", lambda **options: gpn.GPNRegressor(CONFIG, **options)
    )
    labeled = pd.DataFrame(X, columns=["a", "b"]).assign(y=Y)
    labeled.to_csv("labeled.csv", index=False)
    pd.DataFrame(POOL, columns=["a", "b"]).to_parquet("pool.parquet", index=False)
    arguments = ["fit", "labeled.csv", "--target", "y", "--unlabeled", "pool.parquet"]
    result = CliRunner().invoke(cli.app, [*arguments, "--out", "m.gpn"])
    assert result.exit_code == 0, result.output
    assert "300 unlabeled rows, of which 100 are taken at random" in result.output
    assert gpn.load("m.gpn").record.unlabeled == 100


def test_the_documented_memory_is_that_of_the_benchmark() -> None:
    root = Path(__file__).parents[2]
    measured = json.loads((root / "benchmarks" / "results" / "big_pool.json").read_text())["rows"]
    of = "default_fit, {} rows of 81 float32 in .npy: peak memory"
    small, large = (
        next(row["value"] for row in measured if row["what"] == of.format(n))
        for n in ("100,000", "10,000,000")
    )
    sentence = f"peak memory of such a fit goes from {small:.0f} to {large:.0f} MB"
    page = (root / "docs" / "tutorials" / "huge-pools.md").read_text()
    assert sentence in " ".join(page.split())
    assert large <= 1.2 * small
