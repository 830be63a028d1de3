"""An ONNX graph says what `TableModel.predict` says, in onnxruntime; what has no such form is
refused."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor
from typer.testing import CliRunner

import gpn
from gpn.cli.commands import app
from gpn.core.priors.ard import ARDPrior
from gpn.estimators.closed_form.mean import MeanModel
from gpn.tables.engines.onnx_graph import ExportError
from gpn.tables.model import TableModel, fit_table
from tests.cli.command import rows


def table(n: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + rng.normal(0, 0.1, n)
    return pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=y)


def quiet(work: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


def fitted(labeled: pd.DataFrame, target: str = "y", **options: Any) -> TableModel:
    options = {"mean": None, "random_state": 0, "device": "cpu", **options}
    return quiet(lambda: fit_table(labeled, target, **options))


def with_kernel(activation: str) -> TableModel:
    prior = ARDPrior(column_scales=(1.0, 2.0, 5.0), activation=activation, linear=0.1)
    return fitted(table(), config=gpn.GPNConfig(prior=prior, noise_std=0.2))


def with_trees() -> TableModel:
    steps = table(400)
    steps["y"] += 3 * (steps["c"] > 0)
    model = fitted(steps, mean="auto")
    assert model.estimator.mean_ is not None
    return model


def with_pool() -> TableModel:
    pool = table(800, 1).drop(columns="y")
    pool["c"] = pool["a"]
    return fitted(table(300), unlabeled=pool)


def with_freedom(freedom: float) -> TableModel:
    model = fitted(table())
    noise = replace(model.estimator.label_noise_[0], freedom=freedom)
    model.estimator.label_noise_ = (noise,)
    return model


def with_tail() -> TableModel:
    long_tail = table()
    long_tail["b"] = np.sinh(3 * long_tail["b"])
    return fitted(long_tail)


def with_varying_noise() -> TableModel:
    many = table(700)
    many["y"] += many["a"].abs() * np.random.default_rng(5).normal(size=700)
    model = fitted(many)
    assert model.estimator.label_noise_[0].varying is not None
    return model


MODELS = {
    "usual": lambda: fitted(table()),
    "Gaussian kernel": lambda: with_kernel("cos"),
    "Matérn kernel": lambda: with_kernel("matern"),
    "pool": with_pool,
    "trees as a mean": with_trees,
    "short tails": lambda: with_freedom(np.inf),
    "long tails": lambda: with_freedom(2.5),
    "a bent column": with_tail,
    "varying noise": with_varying_noise,
    "few labels": lambda: fitted(table(14)),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(("level", "fpr"), [(0.95, 0.05), (0.5, 0.2)])
def test_onnxruntime_says_what_predict_says(
    kind: str, level: float, fpr: float, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = MODELS[kind]()
    quiet(lambda: model.export_onnx(tmp_path / "m.onnx", level=level, fpr=fpr))
    near, far = table(200, 3).drop(columns="y"), 20 * table(30, 4).drop(columns="y")
    new = pd.concat([near, far, table(14).drop(columns="y")], ignore_index=True)
    expected = quiet(lambda: model.predict(new, level, fpr))
    session = runtime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"rows": new.to_numpy()}), strict=True))
    assert names == list(expected.columns)
    for name in set(names) - {"is_ood"}:
        size = 1.0 if name == "ood_score" else expected["std"].to_numpy() + expected["mean"].abs()
        gap = np.abs(found[name] - expected[name].to_numpy()) / size
        assert gap.max() < 1e-5, name
    np.testing.assert_array_equal(found["is_ood"], expected["is_ood"])
    assert session.get_modelmeta().custom_metadata_map["columns"].split("\n") == ["a", "b", "c"]


def categories() -> TableModel:
    return fitted(rows(80).drop(columns="grade"), "yield")


def classes() -> TableModel:
    return fitted(rows(80)[["size", "heat", "grade"]].dropna(), "grade")


def calibrated() -> TableModel:
    model = fitted(table())
    quiet(lambda: model.calibrate(table(60, 9)))
    return model


def own_mean() -> TableModel:
    model = fitted(table())
    model.estimator.mean_ = MeanModel(models=((DummyRegressor(),),))
    return model


def constant() -> TableModel:
    return fitted(table().assign(site="north"))


REFUSED = {
    "categories": (categories, "it reads categories"),
    "classes": (classes, "it predicts classes"),
    "another method": (lambda: fitted_by("gp"), "it is no GPN in closed form"),
    "calibration": (calibrated, "it is calibrated"),
    "own mean": (own_mean, "its mean is a model of your own"),
    "constant": (constant, "it has constant columns"),
    "kernel": (lambda: with_kernel("relu"), "its prior has a kernel that ONNX lacks"),
    "very few": (lambda: fitted(table(7)), "it has too few labels"),
}


def fitted_by(method: str) -> TableModel:
    return quiet(lambda: fit_table(table(40), "y", method=method, random_state=0))


@pytest.mark.parametrize("kind", REFUSED)
def test_what_has_no_onnx_form_is_refused(kind: str, tmp_path: Path) -> None:
    make, reason = REFUSED[kind]
    with pytest.raises(ExportError, match=f"in closed form to have an ONNX form; {reason}"):
        make().export_onnx(tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_bad_options_and_a_missing_package_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fitted(table())
    with pytest.raises(ValueError, match="level"):
        model.export_onnx(tmp_path / "m.onnx", level=2)
    with pytest.raises(ValueError, match="fpr must lie strictly"):
        model.export_onnx(tmp_path / "m.onnx", fpr=0)
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ImportError, match=r"an export needs onnx .*; pip install 'gpn\[onnx\]'"):
        model.export_onnx(tmp_path / "m.onnx")


def test_the_command_exports(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    fitted(table()).save(tmp_path / "m.gpn")
    out = str(tmp_path / "m.onnx")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "m.gpn"), "--out", out, "--json"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "m.onnx").stat().st_size > 1000
    categories().save(tmp_path / "c.gpn")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "c.gpn"), "--out", out])
    assert done.exit_code == 1
    assert "it reads categories. Use gpn predict" in done.output
