"""Models in MLflow: what is loaded predicts as what was saved, with a store in a local folder."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own, of its file store

import gpn.mlflow  # noqa: E402
from gpn import GPNClassifier, GPNRegressor  # noqa: E402
from gpn.tables.model import fit_table  # noqa: E402

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.uniform(-1, 1, (50, 2)), columns=["a", "b"])
Y = X["a"] + RNG.normal(0, 0.1, 50)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())


def fitted(name: str) -> Any:
    if name == "table":
        return fit_table(X.assign(y=Y), "y", random_state=0)
    if name == "classifier":
        return GPNClassifier(mean=None, random_state=0).fit(X, np.where(Y > 0, "up", "down"))
    return GPNRegressor(mean=None, random_state=0).fit(X, Y)


@pytest.mark.parametrize("name", ["regressor", "classifier", "table"])
def test_a_saved_model_predicts_the_same(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    gpn.mlflow.save_model(model, tmp_path / "saved")
    uri = (tmp_path / "saved").as_uri()
    back, pyfunc = gpn.mlflow.load_model(uri), mlflow.pyfunc.load_model(uri)
    assert type(back) is type(model)
    found = pyfunc.predict(X.iloc[:5])
    assert {"ood_score", "is_ood"} <= set(found.columns)
    assert len(found) == 5
    if name == "regressor":
        assert found["mean"].to_numpy() == pytest.approx(model.predict(X.iloc[:5]))
        total = model.predict_distribution(X.iloc[:5]).std()
        assert found["std_total"].to_numpy() == pytest.approx(total)
    if name == "classifier":
        assert any(column.endswith("_up") for column in found.columns)
    if name == "table":
        pd.testing.assert_frame_equal(found, model.predict(X.iloc[:5]))


def test_a_logged_model_is_found_again() -> None:
    model = fitted("regressor")
    with mlflow.start_run():
        logged = gpn.mlflow.log_model(model, "yield")
    back = gpn.mlflow.load_model(logged.model_uri)
    assert back.predict(X) == pytest.approx(model.predict(X))


@pytest.mark.parametrize("name", ["regressor", "table"])
def test_a_caller_sets_the_level_of_intervals(name: str, tmp_path: Path) -> None:
    gpn.mlflow.save_model(fitted(name), tmp_path / "saved", input_example=X.iloc[:2])
    pyfunc = mlflow.pyfunc.load_model((tmp_path / "saved").as_uri())
    wide, narrow = pyfunc.predict(X), pyfunc.predict(X, params={"level": 0.5})
    assert (narrow["upper"] < wide["upper"]).all()
    assert pyfunc.predict(X, params={"fpr": 0.3})["is_ood"].sum() > wide["is_ood"].sum()


def test_the_code_of_the_reference_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[1] / "docs" / "reference" / "integrations.md").read_text()
    exec(page.partition("``` { .python }\n")[2].partition("```")[0], {})
    assert "std_total" in capsys.readouterr().out


def test_nothing_is_pickled(tmp_path: Path) -> None:
    gpn.mlflow.save_model(fitted("regressor"), tmp_path / "saved")
    assert list((tmp_path / "saved").rglob("*.pkl")) == []


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="an estimator of gpn or a TableModel, got dict"):
        gpn.mlflow.save_model({}, tmp_path / "saved")
