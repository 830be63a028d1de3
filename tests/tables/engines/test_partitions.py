"""A fit over partitions is the fit of all rows at once, however they are dealt."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gpn.columns.column_types import TableError
from gpn.core.priors.ard import ARDPrior
from gpn.methods.gpn.model.kernel_generator import FeatureSums
from gpn.tables.engines import partitions
from gpn.tables.engines.partitions import fit_partitions
from gpn.tables.model import TableModel

N = 900
OPTIONS: dict[str, Any] = {"landmarks": 40, "sample_rows": 300}


@pytest.fixture(autouse=True)
def few_labels_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "MAX_EXACT_LABELS", 200)
    monkeypatch.setattr(partitions, "MAX_UNSEEN", 60)


def table(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    new = pd.DataFrame({"a": rng.normal(size=n), "b": rng.uniform(size=n)})
    new["kind"] = rng.choice(["x", "y", "z"], n)
    noise = rng.normal(0, 0.1, n)
    return new.assign(y=np.sin(2 * new["a"]) + (new["kind"] == "x") * new["b"] + noise)


def fitted(parts: Any, **options: Any) -> TableModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_partitions(parts, "y", **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def whole() -> pd.DataFrame:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "MAX_EXACT_LABELS", 200)
        patch.setattr(partitions, "MAX_UNSEEN", 60)
        return fitted([table()]).predict(table(200, 1))


def check_equal(model: TableModel, whole: pd.DataFrame) -> None:
    found = model.predict(table(200, 1))
    pd.testing.assert_frame_equal(found, whole, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("deal", ["blocks", "every fifth", "shuffled", "with empty ones"])
def test_predictions_do_not_depend_on_how_rows_are_dealt(deal: str, whole: pd.DataFrame) -> None:
    rows = table()
    if deal == "blocks":
        parts = [rows.iloc[i : i + 250] for i in range(0, N, 250)]
    elif deal == "every fifth":
        parts = [rows.iloc[i::5] for i in range(5)]
    elif deal == "shuffled":
        shuffled = rows.sample(frac=1, random_state=1)
        parts = [shuffled.iloc[:100], shuffled.iloc[100:]]
    else:
        parts = [rows.head(0), rows, rows.head(7).assign(y=np.nan)]
    check_equal(fitted(parts), whole)


def test_files_are_partitions(whole: pd.DataFrame, tmp_path: Path) -> None:
    for number in range(3):
        table().iloc[number::3].to_parquet(tmp_path / f"{number}.parquet")
    check_equal(fitted(sorted(tmp_path.glob("*.parquet"))), whole)


def test_dask_adds_up_the_same_sums(whole: pd.DataFrame) -> None:
    frames = pytest.importorskip("dask.dataframe", reason="dask is not installed")
    import dask

    with dask.config.set(scheduler="threads"):
        check_equal(fitted(frames.from_pandas(table(), npartitions=5)), whole)


def test_ray_adds_up_the_same_sums(whole: pd.DataFrame) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    data = pytest.importorskip("ray.data", reason="ray[data] is not installed")
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": 40}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=2, object_store_memory=80 << 20, ignore_reinit_error=True, **options)
        data.DataContext.get_current().enable_progress_bars = False
        model = fitted(data.from_pandas([table().iloc[i::3] for i in range(3)]))
        ray.shutdown()
    check_equal(model, whole)


def test_all_labels_count_not_those_of_the_sample_alone(whole: pd.DataFrame) -> None:
    """With ten times the labels the function's deviation shrinks."""
    more = fitted([table(N, seed) for seed in range(10)]).predict(table(200, 1))
    assert more["std"].median() < 0.7 * whole["std"].median()


def test_sums_over_parts_are_the_sums_over_all() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = (torch.randn(50, d, generator=rng, dtype=torch.float64) for d in (2, 1))
    sums = FeatureSums(ARDPrior(column_scales=(1.0, 2.0)), x[:9], 1, 0.1)
    both = sums.emptied().add([(x[:20], y[:20])]).plus(sums.emptied().add([(x[20:], y[20:])]))
    every = sums.emptied().add([(x, y)])
    assert float(sums.squares.abs().max()) == 0
    torch.testing.assert_close(both.squares, every.squares)
    torch.testing.assert_close(both.products, every.products)


def test_a_value_that_no_sampled_row_has_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table()
    rows.loc[rows.index[:4], "kind"] = "rare"
    hashes = partitions.row_hashes(rows)
    order = np.argsort(hashes)
    rows["kind"] = np.where(np.isin(rows.index, order[-4:]), "late", rows["kind"])
    model = fitted([rows.iloc[::2], rows.iloc[1::2]])
    assert "late" in model.encoder.categories["kind"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(rows.loc[order[-4:]])


def test_few_labels_are_fitted_together() -> None:
    model = fitted([table(60).iloc[:30], table(60).iloc[30:]])
    assert model.record is not None
    assert model.record.labeled == 60


def test_the_model_is_saved_and_opened(tmp_path: Path, whole: pd.DataFrame) -> None:
    import gpn

    model = fitted([table().iloc[:300], table().iloc[300:]])
    model.save(tmp_path / "m.gpn")
    check_equal(gpn.load(tmp_path / "m.gpn"), whole)
    assert model.record is not None
    assert model.record.labeled == N
    assert model.record.summary["r2"] > 0.8
    assert 0.85 < model.record.summary["coverage_95"] <= 1


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a frame": (table(9), {}, r"partitions must be a list of frames .* got DataFrame"),
    "a path": ("t.parquet", {}, "partitions must be a list"),
    "a generator": ((each for each in ()), {}, "partitions must be a list"),
    "nothing": ([], {}, "partitions must be one at least"),
    "numbers": ([1, 2], {}, "a partition must be a frame of pandas or a path"),
    "no labels": ([table(9).assign(y=np.nan)], {}, "must be known in some rows of the partitions"),
    "no target": ([table(9).drop(columns="y")], {}, "the target must be a column, got 'y'"),
    "classes": ([table().assign(y="a")], {}, "'y' holds classes; fit a sample"),
    "landmarks": ([table()], {"landmarks": 3}, "landmarks must be a whole number of at least 10"),
    "sample": ([table()], {"sample_rows": 20}, "sample_rows must be a whole number of at least 1"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_fitted_is_refused_in_a_sentence(kind: str) -> None:
    parts, options, message = BAD[kind]
    with pytest.raises((TypeError, ValueError, TableError), match=message):
        fitted(parts, **options)
