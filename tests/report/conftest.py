"""Small models of synthetic tables, with names and categories that look like markup."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier

import gpn
from gpn.columns.encoder import TableEncoder
from gpn.report import write_report
from gpn.tables.fit_record import FitRecord
from gpn.tables.model import TableModel

MARKUP = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
WORD = "<b onclick=1>&amp; %{x} blue</b>"


def table(n: int, seed: int, spread: float = 1.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    made = pd.DataFrame(
        {
            "size": rng.uniform(-spread, spread, n),
            MARKUP: 300 + 50 * rng.uniform(-spread, spread, n),
            "colour": rng.choice(["red", "green", WORD], n),
        }
    )
    made["yield <i>"] = 10 * made["size"] + 3 * (made["colour"] == "red") + rng.normal(0, 0.3, n)
    made["grade"] = np.where(made["size"] > 0.3, "good", np.where(made["size"] < -0.3, "bad", WORD))
    return made


TARGETS = {"regression": "yield <i>", "classification": "grade"}
TRAIN = gpn.TrainConfig(steps=60, label_batch=64, pool_batch=64, learning_rate=5e-3, device="cpu")
SETTINGS: dict[str, Any] = {"anchor": "independent", "beta": 0.1, "noise_std": 0.2, "train": TRAIN}


def model_of(estimator: Any, labeled: pd.DataFrame, target: str, pool: Any) -> TableModel:
    """An estimator fitted to a table, with the record of a fit that warned."""
    columns = TableEncoder.fit(labeled, target)
    x, y = columns.transform(labeled), labeled[target].to_numpy()
    estimator.fit(x, y, columns.transform(pool))
    numbers = np.searchsorted(estimator.classes_, y) if is_classifier(estimator) else y
    warned = ["a warning with <script>window.hacked = 3</script>"]
    rows = x, np.asarray(numbers, float)
    trial = {"beta": 0.1, "score": -0.51234, "error": 0.0123, "coverage": 0.95, "noise_std": 0.2}
    found = {"prior_variance_kept": 0.9, "beta_search": [trial, {**trial, "beta": 0.3}]}
    record = FitRecord(len(x), len(pool), columns.notes, warned, found, *rows)
    return TableModel(estimator, columns, target, record)


def fitted(kind: str) -> TableModel:
    """A GPN regressor or classifier."""
    others = [name for name in TARGETS.values() if name != TARGETS[kind]]
    made = gpn.GPNClassifier if kind == "classification" else gpn.GPNRegressor
    config = gpn.GPNConfig(**SETTINGS, trunk=gpn.MLPTrunk(widths=(32, 32)), n_axes=20)
    labeled = table(150, 0).drop(columns=others)
    return model_of(made(config, random_state=0), labeled, TARGETS[kind], table(300, 1, 2.5))


def ensemble() -> gpn.PosteriorRegressor:
    """Quick to fit, and without codes."""
    settings = {"n_members": 3, "train": TRAIN, "trunk": gpn.MLPTrunk(widths=(16,))}
    return gpn.PosteriorRegressor("ensemble", settings=settings, random_state=0)


@pytest.fixture(scope="session")
def regression_model() -> TableModel:
    return fitted("regression")


@pytest.fixture(scope="session")
def classification_model() -> TableModel:
    return fitted("classification")


@pytest.fixture(scope="session")
def ensemble_model() -> TableModel:
    labeled = table(60, 0).drop(columns="grade")
    return model_of(ensemble(), labeled, "yield <i>", table(60, 1, 2.5))


@pytest.fixture(scope="session")
def test_rows() -> pd.DataFrame:
    return table(120, 2, 1.4)


@pytest.fixture(scope="session")
def pool_rows() -> pd.DataFrame:
    return table(200, 3, 2.5).drop(columns=list(TARGETS.values()))


@pytest.fixture(scope="session")
def pages(
    tmp_path_factory: pytest.TempPathFactory,
    regression_model: TableModel,
    classification_model: TableModel,
    ensemble_model: TableModel,
    test_rows: pd.DataFrame,
    pool_rows: pd.DataFrame,
) -> Path:
    """A folder with regression.html, classification.html and ensemble.html."""
    folder = tmp_path_factory.mktemp("pages")
    models = {
        "regression": regression_model,
        "classification": classification_model,
        "ensemble": ensemble_model,
    }
    for name, model in models.items():
        write_report(model, test_rows, pool_rows, folder / f"{name}.html")
    return folder
