"""`gpn.Scorer`: batches of any kind become what `TableModel.predict` says, in any process."""

import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpn
from gpn.columns.column_types import TableError
from gpn.saving.validation import ModelError
from gpn.tables.engines import scorer as module
from gpn.tables.model import TableModel, fit_table
from tests.cli.command import rows


def fitted(target: str) -> TableModel:
    other = {"yield": "grade", "grade": "yield"}[target]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_table(
            rows(120).drop(columns=other), target, mean=None, random_state=0, device="cpu"
        )


@pytest.fixture(scope="module", params=["yield", "grade"])
def model(request: pytest.FixtureRequest) -> TableModel:
    return fitted(request.param)


@pytest.fixture
def path(model: TableModel, tmp_path: Path) -> Path:
    model.save(tmp_path / "m.gpn")
    return tmp_path / "m.gpn"


@pytest.fixture
def table() -> pd.DataFrame:
    new = rows(30, 3).drop(columns=["yield", "grade"]).dropna()
    return new.assign(id=[f"row {i}" for i in range(len(new))])


@pytest.fixture
def expected(model: TableModel, table: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([table, model.predict(table)], axis=1)


def test_batches_come_back_as_what_they_are(
    path: Path, table: pd.DataFrame, expected: pd.DataFrame
) -> None:
    scorer = gpn.Scorer(path)
    pd.testing.assert_frame_equal(scorer(table), expected)
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    found = scorer(arrow)
    assert isinstance(found, pa.Table)
    pd.testing.assert_frame_equal(found.to_pandas(), expected.reset_index(drop=True))
    (batch,) = arrow.to_batches()
    found = scorer(batch)
    assert isinstance(found, pa.RecordBatch)
    pd.testing.assert_frame_equal(found.to_pandas(), expected.reset_index(drop=True))
    arrays = scorer({name: table[name].to_numpy() for name in table})
    assert set(arrays) == set(expected.columns)
    np.testing.assert_array_equal(arrays["ood_score"], expected["ood_score"])


def test_an_arrow_batch_with_a_new_value_is_read_by_pandas(model: TableModel, path: Path) -> None:
    new = rows(20, 3).assign(colour="violet")
    with pytest.warns(gpn.GPNWarning, match="20 of 20 rows hold values"):
        found = gpn.Scorer(path)(pa.Table.from_pandas(new)).to_pandas()
    assert found["is_ood"].all()


def test_columns_say_what_is_passed_on(path: Path, table: pd.DataFrame) -> None:
    for batch in (table, pa.Table.from_pandas(table)):
        found = gpn.Scorer(path, columns=["id"])(batch)
        names = list(found.columns) if isinstance(batch, pd.DataFrame) else found.column_names
        assert names[0] == "id"
        assert not {"size", "heat", "colour"} & set(names)
    with pytest.raises(TableError, match="'name' is not; there are size"):
        gpn.Scorer(path, columns=["name"])(table)


def test_an_empty_partition_has_the_columns_and_types(
    path: Path, table: pd.DataFrame, expected: pd.DataFrame
) -> None:
    """Engines send empty partitions, and ask for the columns before there are rows."""
    scorer = gpn.Scorer(path)
    for empty in (scorer(table.head(0)), scorer.meta(table)):
        assert len(empty) == 0
        pd.testing.assert_series_equal(empty.dtypes, expected.dtypes)
    arrow = scorer(pa.Table.from_pandas(table.head(0), preserve_index=False))
    assert arrow.column_names == list(expected.columns)
    assert [list(found.columns) for found in scorer.of_batches([table, table])] == [
        list(expected.columns)
    ] * 2


def test_a_pickle_is_a_path_and_a_digest(
    path: Path, table: pd.DataFrame, expected: pd.DataFrame
) -> None:
    """Another process loads the file, once; another file at the path is refused."""
    scorer = gpn.Scorer(path)
    content = pickle.dumps(scorer)
    assert len(content) < 1000
    (path.parent / "s.pickle").write_bytes(content)
    table.to_pickle(path.parent / "t.pickle")
    code = (
        "import pickle, pandas as pd; from gpn.tables.engines import scorer\n"
        "made = pickle.load(open('s.pickle', 'rb')); table = pd.read_pickle('t.pickle')\n"
        "assert not scorer.MODELS\n"
        "found = made(table); model = made.model; made(table)\n"
        "assert made.model is model and len(scorer.MODELS) == 1\n"
        "found.to_pickle('o.pickle')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=path.parent)
    found = pd.read_pickle(path.parent / "o.pickle")
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9)


def test_another_file_at_the_path_is_refused(path: Path, table: pd.DataFrame) -> None:
    scorer = gpn.Scorer(path)
    module.MODELS.clear()
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(
        ModelError, match="must be the file that the scorer was made of, got another"
    ):
        scorer(table)
    module.MODELS.clear()
    path.unlink()
    with pytest.raises(ValueError, match=r"there is no model file .*; gpn fit --out"):
        scorer(table)


@pytest.mark.parametrize("kind", ["shipped", "in memory"])
def test_a_model_goes_where_its_path_does_not(
    kind: str, model: TableModel, path: Path, table: pd.DataFrame, expected: pd.DataFrame
) -> None:
    scorer = gpn.Scorer(path, shipped=True) if kind == "shipped" else gpn.Scorer(model)
    content = pickle.dumps(scorer)
    shutil.rmtree(path.parent)
    module.MODELS.clear()
    pd.testing.assert_frame_equal(pickle.loads(content)(table), expected, rtol=1e-9)


def test_a_process_holds_few_models(path: Path) -> None:
    one, two = gpn.Scorer(path), gpn.Scorer(path, level=0.5)
    assert one.model is two.model
    loaded, others = one.model, dict.fromkeys("abcd", one.model)
    module.MODELS.clear()
    module.MODELS.update(others)
    assert one.model is not loaded
    assert len(module.MODELS) == module.MAX_MODELS
    module.MODELS.clear()


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "level": ({"level": 1.5}, "level"),
    "fpr": ({"fpr": 0}, "fpr must lie strictly between 0 and 1, got 0"),
    "columns": ({"columns": "id"}, r"columns must be names in a list, got 'id'; try \['id'\]"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_options_are_refused_at_once(kind: str, path: Path) -> None:
    options, message = BAD[kind]
    with pytest.raises((ValueError, TypeError), match=message):
        gpn.Scorer(path, **options)


def test_what_is_no_model_of_a_table_is_refused(tmp_path: Path, path: Path) -> None:
    with pytest.raises(ValueError, match="there is no model file"):
        gpn.Scorer(tmp_path / "none.gpn")
    x = np.random.default_rng(0).normal(size=(20, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gpn.GPNRegressor(random_state=0, mean=None).fit(x, x[:, 0]).save(tmp_path / "e.gpn")
    with pytest.raises(ValueError, match="it holds a GPNRegressor without columns"):
        gpn.Scorer(tmp_path / "e.gpn")
    with pytest.raises(TypeError, match=r"a batch must be a frame of pandas, .* got list"):
        gpn.Scorer(path)([1, 2])


def test_ray_maps_batches(path: Path, table: pd.DataFrame, expected: pd.DataFrame) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    data = pytest.importorskip("ray.data", reason="ray[data] is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"include_dashboard": False, "log_to_driver": False, "logging_level": 40}
        ray.init(num_cpus=2, object_store_memory=80 << 20, ignore_reinit_error=True, **options)
        data.DataContext.get_current().enable_progress_bars = False
        rows_of = data.from_pandas([table.iloc[:11], table.iloc[11:]])
        found = rows_of.map_batches(
            gpn.Scorer, fn_constructor_args=(str(path),), concurrency=1, batch_format="pyarrow"
        ).to_pandas()
        ray.shutdown()
    found = found.sort_values("id", key=lambda ids: ids.str[4:].astype(int))
    pd.testing.assert_frame_equal(
        found.reset_index(drop=True),
        expected.reset_index(drop=True),
        rtol=1e-9,
        check_dtype=False,
    )


def test_dask_maps_partitions(path: Path, table: pd.DataFrame, expected: pd.DataFrame) -> None:
    frames = pytest.importorskip("dask.dataframe", reason="dask is not installed")
    scorer = gpn.Scorer(path)
    parts = frames.from_pandas(table, npartitions=3)
    found = parts.map_partitions(scorer, meta=scorer.meta(table)).compute(scheduler="synchronous")
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-9)


def test_spark_maps_frames(
    path: Path, table: pd.DataFrame, expected: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("java") is None:
        pytest.skip("there is no Java here")
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    scorer = gpn.Scorer(path, columns=["id"])
    schema = f"id string, {scorer.spark_columns}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = sql.SparkSession.builder.master("local[1]").getOrCreate()
        try:
            frame = session.createDataFrame(table)
            found = frame.mapInPandas(scorer.of_batches, schema=schema).toPandas()
        finally:
            session.stop()
    np.testing.assert_allclose(found["ood_score"], expected["ood_score"])
    assert found["id"].tolist() == expected["id"].tolist()


def test_spark_columns_are_a_schema(path: Path, model: TableModel) -> None:
    found = gpn.Scorer(path).spark_columns
    assert "`is_ood` boolean" in found
    assert ("`mean` double" in found) != model.is_classifier
    assert ("`class` string" in found) == model.is_classifier
