"""What a saved model is asked, and its answers as JSON can hold them."""

import csv
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import is_classifier

import gpn
from tests.compat.command import command

EXPECTED = "expected.json"  # the answers of all files of a version
DIGITS = 10  # significant ones: far more than the tolerance of the test needs


@dataclass(frozen=True)
class Saved:
    """A model, its file, and the rows to ask it about: numbers, or the text of a table."""

    path: Path
    model: Any
    rows: Any

    @property
    def x(self) -> Any:
        """The rows, with the names that the fit's columns had."""
        names = getattr(self.model, "feature_names_in_", None)
        return np.array(self.rows) if names is None else pd.DataFrame(self.rows, columns=names)


Question = Callable[[Saved], Any]


def opened(path: Path, rows: Any) -> Saved:
    return Saved(path, gpn.load(path), rows)


def questions_for(saved: Saved) -> dict[str, Question]:
    """All that can be asked of such a model, by name."""
    model = saved.model
    if isinstance(model, gpn.Posterior):
        classes = model.signature.is_classification
        return POSTERIOR | (CLASSES if classes else NUMBERS)
    if hasattr(model, "target"):
        steady = isinstance(model.estimator, gpn.GPNRegressor | gpn.GPNClassifier)
        return TABLE | (TABLE_FUNCTIONS if steady else {})
    if not is_classifier(model):
        return ESTIMATOR | REGRESSOR
    sets = SETS if model.calibration_scores_ is not None else {}
    return ESTIMATOR | CLASSIFIER | sets


def answer(saved: Saved, question: str) -> Any:
    """The answer to one question as plain lists and numbers."""
    return plain(questions_for(saved)[question](saved))


def plain(value: Any) -> Any:
    """Lists, texts and numbers of ten digits."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, torch.Tensor):
        return plain(value.double().tolist())
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _label_interval(saved: Saved) -> Any:
    """Of a new label, where the posterior knows the noise of labels."""
    if saved.model.noise_std is None:
        return None
    return saved.model.interval(saved.x, observation_noise=True)


def _verdicts(saved: Saved) -> dict[str, Any]:
    found = saved.model.diagnostics()
    return {name: [check.value, check.verdict] for name, check in found.items()}


def _options(saved: Saved) -> dict[str, Any]:
    """The plain options that the estimator was given, in so far as they are not the default."""
    default, given = type(saved.model)().get_params(), saved.model.get_params()
    kinds = bool | int | float | str | tuple
    return {
        name: value
        for name, value in given.items()
        if isinstance(value, kinds) and value != default.get(name)
    }


def _features(saved: Saved) -> list[str] | None:
    names = getattr(saved.model, "feature_names_in_", None)
    return None if names is None else list(names)


def _columns(*arguments: str) -> Question:
    """The columns of the table that the command line writes, texts as they stand."""

    def asked(saved: Saved) -> dict[str, list[Any]]:
        with TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", gpn.GPNWarning)  # a category that the fit has not seen
            table, out = Path(folder) / "asked.csv", Path(folder) / "answers.csv"
            table.write_text(saved.rows)
            command(arguments[0], saved.path, table, "--out", out, *arguments[1:])
            return _read(out)

    return asked


def _read(path: Path) -> dict[str, list[Any]]:
    with path.open(newline="") as file:
        names, *rows = csv.reader(file)
    return {name: [_cell(row[i]) for row in rows] for i, name in enumerate(names)}


def _cell(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


POSTERIOR: dict[str, Question] = {
    "noise_std": lambda saved: saved.model.noise_std,
    "mean": lambda saved: saved.model.mean(saved.x),
    "variance": lambda saved: saved.model.variance(saved.x),
    "sample": lambda saved: saved.model.sample(saved.x, 2, rng=0),
    "functions": lambda saved: saved.model.draw_many(2, rng=0)(saved.x),
    "verdicts": _verdicts,
}
NUMBERS: dict[str, Question] = {
    "interval": lambda saved: saved.model.interval(saved.x),
    "label_interval": _label_interval,
}
CLASSES: dict[str, Question] = {
    "probabilities": lambda saved: saved.model.probabilities(saved.x),
    "mutual_information": lambda saved: saved.model.mutual_information(saved.x),
}
ESTIMATOR: dict[str, Question] = {
    "kind": lambda saved: type(saved.model).__name__,
    "options": _options,
    "features": _features,
    "ood_score": lambda saved: saved.model.ood_score(saved.x),
    "threshold": lambda saved: saved.model.threshold(),
    "is_ood": lambda saved: saved.model.is_ood(saved.x),
    "predict": lambda saved: saved.model.predict(saved.x),
    "suggest": lambda saved: saved.model.suggest(saved.x, 2),
}
REGRESSOR: dict[str, Question] = {
    "std": lambda saved: saved.model.predict(saved.x, return_std=True)[1],
    "interval": lambda saved: saved.model.predict_interval(saved.x),
    "narrow_interval": lambda saved: saved.model.predict_interval(saved.x, 0.5),
    "quantiles": lambda saved: saved.model.predict_quantiles(saved.x, [0.1, 0.5, 0.9]),
    "sample": lambda saved: saved.model.sample_y(saved.x, 2, random_state=0),
}
CLASSIFIER: dict[str, Question] = {
    "classes": lambda saved: saved.model.classes_,
    "probabilities": lambda saved: saved.model.predict_proba(saved.x),
    "entropy": lambda saved: saved.model.entropy(saved.x),
    "sample": lambda saved: saved.model.sample_proba(saved.x, 2, random_state=0),
}
SETS: dict[str, Question] = {
    "set": lambda saved: saved.model.predict_set(saved.x),
    "narrow_set": lambda saved: saved.model.predict_set(saved.x, 0.5),
}
TABLE: dict[str, Question] = {
    "predict": _columns("predict"),
    "predict_half": _columns("predict", "--level", "0.5", "--fpr", "0.2"),
}
# An exact GP magnifies the rounding of its random numbers, which is not the same on all processors.
TABLE_FUNCTIONS: dict[str, Question] = {"sample": _columns("sample", "-n", "2")}
