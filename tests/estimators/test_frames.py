"""Estimators take frames: any dtype of pandas and polars, gaps, sparse matrices, pipelines."""

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import sparse
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import gpn
from gpn.columns.encoder import UnseenWarning
from gpn.columns.frames import ColumnsWarning
from gpn.estimators import GPNClassifier, GPNRegressor

pytestmark = pytest.mark.filterwarnings("ignore:a fit should see unlabeled rows")

N = 80
RNG = np.random.default_rng(0)
SIZE, COLOUR = RNG.normal(size=N), RNG.choice(["red", "green", "blue"], N)
Y = SIZE + 2.0 * (COLOUR == "red")


def frame() -> pd.DataFrame:
    """One column of each dtype; the target depends on two of them."""
    return pd.DataFrame(
        {
            "size": SIZE,
            "colour": COLOUR,
            "category": pd.Categorical(RNG.choice(["a", "b"], N)),
            "flag": RNG.random(N) > 0.5,
            "count": pd.array(RNG.integers(0, 50, N), dtype="Int64"),
            "day": pd.date_range("2024-01-01", periods=N)[RNG.permutation(N)],
            "text": pd.array(RNG.choice(["u", "v"], N), dtype="string"),
        }
    )


def test_a_frame_of_any_dtype_is_fitted_and_saved(tmp_path: Path) -> None:
    table = frame()
    model = GPNRegressor(random_state=0).fit(table, Y)
    assert model.feature_names_in_.tolist() == table.columns.tolist()
    assert model.n_features_in_ == 7
    assert model.score(table, Y) > 0.9
    model.save(tmp_path / "m.gpn")
    loaded = gpn.load(tmp_path / "m.gpn")
    np.testing.assert_allclose(loaded.predict(table), model.predict(table))
    assert loaded.n_features_in_ == 7
    new = table.head(10).assign(colour="purple")
    with pytest.warns(UnseenWarning, match="such as 'purple'"):
        assert model.is_ood(new).all(), "a colour that was never seen"
    with pytest.warns(UnseenWarning):
        assert model.predict_all(new).is_ood.all()
    with pytest.raises(ValueError, match="must be a frame with the columns of the fit"):
        model.predict(np.zeros((3, 7)))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename(columns={"size": "other"}))


def test_polars_gives_what_pandas_gives() -> None:
    table = frame()
    labels = np.where(Y > 0.5, "high", "low")
    model = GPNClassifier(random_state=0).fit(table, labels, X_unlabeled=table)
    other = pl.DataFrame({name: table[name].tolist() for name in table.columns}).with_columns(
        pl.col("category").cast(pl.Categorical), pl.col("day").cast(pl.Date)
    )
    again = GPNClassifier(random_state=0).fit(other, labels, X_unlabeled=other)
    np.testing.assert_allclose(again.predict_proba(other), model.predict_proba(table), atol=1e-8)
    clock = pl.DataFrame({"t": [datetime.time(i % 24, 5) for i in range(N)], "size": SIZE})
    timed = GPNRegressor(random_state=0).fit(clock, SIZE)
    assert timed.encoder_.times == {"t": "time of day"}


def test_missing_values_are_imputed_and_said_once(tmp_path: Path) -> None:
    x = np.c_[SIZE, COLOUR == "red", RNG.normal(size=N)]
    x[:5, 2] = np.nan
    with pytest.warns(
        ColumnsWarning, match=r"taken as the median of their column in the fit: column 2 \(5\)"
    ):
        model = GPNRegressor(random_state=0).fit(x, Y, X_unlabeled=x)
    new = x[5:9].copy()
    new[:, 1] = np.nan
    filled = new.copy()
    filled[:, 1] = np.median(x[:, 1])
    np.testing.assert_array_equal(model.predict(new), model.predict(filled))
    model.save(tmp_path / "m.gpn")
    with pytest.warns(ColumnsWarning, match=r"column 1 \(4\)"):  # a file does not say so
        loaded = gpn.load(tmp_path / "m.gpn").predict(new)
    np.testing.assert_allclose(loaded, model.predict(new))
    with pytest.raises(ValueError, match="infinity"):
        model.predict(np.full((2, 3), np.inf))
    mixed = frame().assign(size=np.where(np.arange(N) < 3, np.nan, SIZE))
    with pytest.warns(ColumnsWarning, match="3 missing values of 'size' are taken as its median"):
        GPNRegressor(random_state=0).fit(mixed, Y)


def test_what_is_left_out_of_a_frame_is_said() -> None:
    table = frame().assign(id=range(N), name=[f"n{i}" for i in range(N)])
    with pytest.warns(ColumnsWarning, match="'id' numbers the rows.*'name' has 80 values"):
        model = GPNRegressor(random_state=0).fit(table, Y)
    assert not {"id", "name"} & set(model.encoder_.names)


def test_thousands_of_categories_are_fitted() -> None:
    rng = np.random.default_rng(1)
    n = 2500
    shop = rng.integers(0, 40, n) ** 2 + rng.integers(0, 900, n) // 300
    table = pd.DataFrame({"size": rng.normal(size=n), "shop": [f"s{i}" for i in shop]})
    assert table["shop"].nunique() > 100
    with pytest.warns(ColumnsWarning, match="most frequent are categories, all others are one"):
        model = GPNRegressor(random_state=0).fit(table, table["size"])
    assert model._n_inputs == 101


def test_sparse_one_hot_is_fitted() -> None:
    dense = np.c_[SIZE, *(name == COLOUR for name in ("red", "green", "blue"))]
    model = GPNRegressor(random_state=0).fit(sparse.csr_array(dense), Y)
    plain = GPNRegressor(random_state=0).fit(dense, Y)
    np.testing.assert_array_equal(model.predict(sparse.csc_matrix(dense)), plain.predict(dense))
    with pytest.raises(ValueError, match=r"must fit into 4 GiB once it is dense, got \(100000, 1"):
        GPNRegressor().fit(sparse.csr_array((100_000, 100_000)), np.zeros(100_000))


def test_unlabeled_rows_go_through_a_pipeline() -> None:
    """X_unlabeled is transformed by the steps before, as X is."""
    table = frame()[["size", "colour"]]
    pool = pd.concat([table, table.assign(size=table["size"] + 3)])
    columns = make_column_transformer(
        (OneHotEncoder(), ["colour"]),
        (StandardScaler(), make_column_selector(dtype_include="number")),
    )
    with sklearn.config_context(enable_metadata_routing=True):
        gpn_step = GPNRegressor(random_state=0).set_fit_request(X_unlabeled=True)
        steps = [("columns", columns), ("gpn", gpn_step)]
        pipeline = Pipeline(steps, transform_input=["X_unlabeled"])
        pipeline.fit(table, Y, X_unlabeled=pool)
    by_hand = GPNRegressor(random_state=0).fit(
        columns.fit_transform(table), Y, X_unlabeled=columns.transform(pool)
    )
    rows = columns.transform(table)
    np.testing.assert_array_equal(pipeline.predict(table), by_hand.predict(rows))
    np.testing.assert_array_equal(pipeline[-1].ood_score(rows), by_hand.ood_score(rows))


def test_arrays_need_no_pandas() -> None:
    code = (
        "import sys\n"
        "class NoPandas:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name.partition('.')[0] == 'pandas': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, NoPandas())\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "import numpy as np; from gpn import GPNRegressor\n"
        "x = np.random.default_rng(0).normal(size=(20, 2)); x[0, 0] = np.nan\n"
        "print(GPNRegressor(random_state=0).fit(x, x[:, 1]).predict(x).shape)"
    )
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "(20,)\n", done.stderr
