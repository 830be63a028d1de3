"""Model files: posteriors of every method, estimators, and models of tables with their rows."""

import json
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch

import gpn
from gpn.columns.encoder import TableEncoder
from gpn.estimators.ood import detector
from gpn.tables.fit_record import FitRecord
from gpn.tables.model import TableModel
from gpn.training.checkpoint import CheckpointSession
from gpn.training.state import TrainingState
from tests.fuzz import formats
from tests.fuzz.mutate import mutated
from tests.fuzz.reader import Reader

RNG = np.random.default_rng(0)
X, POOL = RNG.normal(size=(24, 2)), RNG.normal(size=(40, 2))
Y, WORDS = X[:, 0] * 3 + 50, np.where(X[:, 0] > 0, "right", "left")
TRAIN = gpn.TrainConfig(steps=2, label_batch=8, pool_batch=8, device="cpu")
TRUNK = gpn.MLPTrunk(widths=(4,))
SMALL: dict[str, Any] = {"trunk": TRUNK, "train": TRAIN}
METHODS: dict[str, dict[str, Any]] = {
    "gpn": {**SMALL, "anchor": "independent", "beta": 0.1, "noise_std": 0.2, "n_axes": 4},
    "gpn-paper": {**SMALL, "prior": gpn.MLPPrior(widths=(8,)), "n_anchors": 9, "code_dim": 2},
    "dropout": {**SMALL, "trunk": gpn.MLPTrunk(widths=(4,), fourier=3)},
    "ensemble": {**SMALL, "n_members": 2},
    "sngp": {**SMALL, "n_features": 8},
    "gp": {},
}
CONFIG = gpn.GPNConfig(**METHODS["gpn"])


def readers(folder: Path) -> Iterator[Reader]:
    """A posterior, an estimator and a model of a table, each asked a question once it is read.

    Detectors have few trees, so that the files are small, and most damage hits something else.
    """
    path, changes = folder / "m.gpn", (mutated, formats.model_header, formats.model_header)
    for name, seeds in (("posterior", posteriors), ("estimator", estimators), ("model", models)):
        with mock.patch.multiple(detector, N_TREES=1, POOL_TREES=1, OUTLIERS=(20, 30)):
            made = seeds(path)
        yield Reader(f"{name} file", path, made, asked(path), changes)
    path = folder / "fit.ckpt"
    yield Reader("checkpoint", path, [half_done(path)], resumed(path), changes)


def saved(model: Any, path: Path) -> bytes:
    """The file's bytes, with a header in a fixed order and no checksum to stop at."""
    gpn.save(model, path) if isinstance(model, gpn.Posterior) else model.save(path)
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    fields = json.loads(content[8 : 8 + size])
    del fields["__metadata__"]["checksum"]
    header = json.dumps(fields, sort_keys=True).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def posteriors(path: Path) -> list[bytes]:
    numbers = gpn.Task(X, Y[:, None], pool=POOL)
    classes = gpn.Task(X, (X[:, 0] > 0).astype(int), pool=POOL)
    fitted = [gpn.methods.get(name, **more).fit(numbers, rng=0) for name, more in METHODS.items()]
    fitted.append(gpn.methods.get("gpn", **METHODS["gpn"]).fit(classes, rng=0))
    return [saved(posterior, path) for posterior in fitted]


class Stopped(BaseException):
    """Stands for a kill."""


def half_done(path: Path) -> bytes:
    """The checkpoint of a fit that was killed after its first step."""

    def write_and_stop(session: CheckpointSession, state: TrainingState) -> None:
        session.write(state)
        raise Stopped

    with mock.patch.object(CheckpointSession, "after_step", write_and_stop):
        try:
            resumed(path)()
        except Stopped:
            return path.read_bytes()
    raise AssertionError("the fit must stop at its first step")


def resumed(path: Path) -> Callable[[], Any]:
    """Go on with the fit of a checkpoint."""
    task = gpn.Task(X, Y[:, None] - 50, pool=POOL)
    method = gpn.methods.get("gpn", **METHODS["gpn"])
    return lambda: method.fit(task, rng=0, checkpoint=path)


def estimators(path: Path) -> list[bytes]:
    settings = {"n_members": 2, **SMALL}
    fitted = [
        gpn.GPNRegressor(CONFIG, random_state=0).fit(X, Y, POOL).calibrate(X, Y),
        gpn.GPNClassifier(CONFIG, random_state=0).fit(X, WORDS, POOL).calibrate(X, WORDS),
        gpn.PosteriorRegressor("ensemble", settings=settings, random_state=0).fit(X, Y, POOL),
    ]
    return [saved(model, path) for model in fitted]


def table(n: int = 24) -> pd.DataFrame:
    made = pd.DataFrame({"size": X[:n, 0], "heat": X[:n, 1], "colour": ["red", "blue"] * (n // 2)})
    made.loc[3, "heat"] = np.nan
    return made.assign(**{"yield": Y[:n], "grade": WORDS[:n]})


def model(target: str) -> TableModel:
    """A model of one of the two targets, with rows and what a fit would remember."""
    labeled = table().drop(columns={"yield", "grade"} - {target})
    columns = TableEncoder.fit(labeled, target)
    x, y = columns.transform(labeled), labeled[target].to_numpy()
    kind = gpn.GPNRegressor if target == "yield" else gpn.GPNClassifier
    estimator: Any = kind(CONFIG, random_state=0).fit(x, y, columns.transform(table()))
    numbers = y if target == "yield" else np.searchsorted(estimator.classes_, y)
    rows = x, np.asarray(numbers, float)
    record = FitRecord(len(x), 24, columns.notes, ["careful"], {"steps": 2.0}, *rows)
    return TableModel(estimator, columns, target, record)


def models(path: Path) -> list[bytes]:
    return [saved(model(target), path) for target in ("yield", "grade")]


def asked(path: Path) -> Callable[[], Any]:
    """Load, and predict with what was loaded."""

    def ask() -> None:
        loaded = gpn.load(path)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            if isinstance(loaded, gpn.Posterior):
                loaded.draw_many(2, rng=0)(X), loaded.variance(X, 8)
            elif isinstance(loaded, TableModel):
                loaded.predict(table(4))
            else:
                rows = np.ones((4, loaded.n_features_in_))
                loaded.predict(rows), loaded.is_ood(rows)
                ask_labels(loaded, rows)

    return ask


def ask_labels(loaded: Any, rows: Any) -> None:
    """Intervals, or sets of classes where there are any."""
    if isinstance(loaded, gpn.GPNRegressor | gpn.PosteriorRegressor):
        loaded.predict_interval(rows, 0.5)
    elif loaded.calibration_scores_ is not None:
        loaded.predict_set(rows, 0.5)
