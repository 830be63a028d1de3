"""Models in MLflow: `save_model`, `log_model` and `load_model`. Needs `pip install gpn[mlflow]`.

A logged model is one model file of gpn, without pickle, which MLflow also loads as a `pyfunc`: its
`predict` takes a frame and returns a frame with predictions, intervals, OOD scores and flags.
"""

import importlib
import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier

from gpn.estimators.base import Estimator
from gpn.saving.format import load
from gpn.tables.model import TableModel

__all__ = ["load_model", "log_model", "save_model"]
FILE = "model.gpn"
PARAMS = {"level": 0.95, "fpr": 0.05}  # what a caller may set, in the signature of each model


class PyFunc:
    """What MLflow calls: a frame in, a frame out."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def get_raw_model(self) -> Any:
        """The model itself, for MLflow."""
        return self.model

    def predict(self, rows: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Predictions with intervals or probabilities, `ood_score` and `is_ood` for each row.

        Of numbers `std` is the deviation of the function, `std_total` that of a new label.
        `params` may hold `level` (of intervals) and `fpr` (of flags), as `PARAMS` has them.
        """
        options = params or {}
        if isinstance(self.model, TableModel):
            return self.model.predict(rows, **options)
        index = rows.index if isinstance(rows, pd.DataFrame) else None
        fields = self.model.predict_all(rows, **options)._asdict()
        return pd.DataFrame(_columns(self.model, fields), index)


def _columns(model: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a prediction as columns; those of several outputs or classes are numbered."""
    columns: dict[str, Any] = {}
    for name, values in fields.items():
        if values is None:
            continue
        array = np.asarray(values)
        if array.ndim == 1:
            columns[name] = array
            continue
        ends = map(str, model.classes_ if is_classifier(model) else range(array.shape[1]))
        columns |= {f"{name}_{end}": array[:, i] for i, end in enumerate(ends)}
    return columns


def save_model(model: Any, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a fitted estimator or table model as an MLflow model; options go to MLflow."""
    with tempfile.TemporaryDirectory() as folder:
        pyfunc = _pyfunc()
        pyfunc.save_model(path=os.fspath(path), **_arguments(model, folder, options))


def log_model(model: Any, name: str = "model", **options: Any) -> Any:
    """Log a fitted estimator or table model to the active run; options go to MLflow."""
    with tempfile.TemporaryDirectory() as folder:
        pyfunc = _pyfunc()
        return pyfunc.log_model(name=name, **_arguments(model, folder, options))


def load_model(model_uri: str) -> Any:
    """The estimator or table model that was saved or logged, as `gpn.load` gives it."""
    return _pyfunc().load_model(model_uri).get_raw_model()


def _load_pyfunc(path: str) -> PyFunc:
    """MLflow calls this, by its name, with the path of the model file or of its folder."""
    file = Path(path)
    return PyFunc(load(file / FILE if file.is_dir() else file))


def _arguments(model: Any, folder: str, options: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(model, Estimator | TableModel):
        raise TypeError(
            "the model must be an estimator of gpn or a TableModel, got "
            f"{type(model).__name__}; fit a GPNRegressor, a GPNClassifier or a table."
        )
    path = Path(folder) / FILE
    model.save(path)
    requirements = {"pip_requirements": [f"gpn[mlflow]=={version('gpn')}"]}
    usual = {**requirements, "signature": _signature()}
    return {**usual, **options, "loader_module": __name__, "data_path": str(path)}


def _signature() -> Any:
    """One that declares `PARAMS`, without which MLflow would ignore them; rows may be any frame."""
    models, schema = map(importlib.import_module, ("mlflow.models", "mlflow.types.schema"))
    specs = [schema.ParamSpec(name, "double", value) for name, value in PARAMS.items()]
    return models.ModelSignature(params=schema.ParamSchema(specs))


def _pyfunc() -> Any:
    try:
        return importlib.import_module("mlflow.pyfunc")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"gpn.mlflow needs {error.name}, which is not installed; try pip install 'gpn[mlflow]'."
        ) from error
