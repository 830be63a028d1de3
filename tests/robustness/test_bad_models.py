"""Bad input to tasks, pools, posteriors, estimators, models of tables, files and reports."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

import gpn
from gpn.columns.column_types import TableError
from gpn.data import DataError, FlipAndShift, ImagePart, images, superconductivity
from gpn.report import write_report
from gpn.saving.format import SavedModel
from gpn.saving.validation import ModelError
from gpn.tables import files
from gpn.tables.model import TableModel, fit_table
from tests.fuzz import models

pytestmark = pytest.mark.usefixtures("as_users_have_it")
X, Y, WORDS, POOL = models.X, models.Y, models.WORDS, models.POOL
NAN = np.where(np.arange(24)[:, None] == 3, np.nan, X)
TEXT = np.array([["a", "b"]] * 24)
Call = Callable[[], Any]


@pytest.fixture(scope="module")
def regressor() -> gpn.GPNRegressor:
    return gpn.GPNRegressor(models.CONFIG, random_state=0).fit(X, Y, POOL)


@pytest.fixture(scope="module")
def classifier() -> gpn.GPNClassifier:
    return gpn.GPNClassifier(models.CONFIG, random_state=0).fit(X, WORDS, POOL)


@pytest.fixture(scope="module")
def model() -> TableModel:
    return models.model("yield")


def new(kind: str = "GPNRegressor") -> Any:
    return getattr(gpn, kind)(models.CONFIG, random_state=0)


FITS: dict[str, tuple[Call, str]] = {
    "y NaN": (lambda: new().fit(X, NAN[:, 0], POOL), "y contains NaN in .*X_unlabeled"),
    "text": (lambda: new().fit(TEXT, Y, POOL), "could not convert string to float: .*'a'"),
    "vector": (lambda: new().fit(X[:, 0], Y), "Expected 2D array, got 1D array"),
    "lengths": (lambda: new().fit(X, Y[:5]), r"inconsistent numbers of samples: \[24, 5\]"),
    "empty": (lambda: new().fit(X[:0], Y[:0]), r"0 sample\(s\) .* minimum of 1"),
    "pool width": (lambda: new().fit(X, Y, POOL[:, :1]), "has 1 features, but .* expecting 2"),
    "weights": (lambda: new().fit(X, Y, POOL, -np.ones(24)), "Negative values"),
    "large": (lambda: new().fit(X * 1e200, Y, POOL), "must be small enough to be squared, "),
    "one class": (
        lambda: new("GPNClassifier").fit(X, ["a"] * 24, POOL),
        "y must hold two classes at least, got one class only: .*'a'",
    ),
    "continuous": (lambda: new("GPNClassifier").fit(X, Y, POOL), "Unknown label type: continuous"),
    "method": (
        lambda: gpn.PosteriorRegressor("magic").fit(X, Y, POOL),
        "a method must be one of .*got 'magic'",
    ),
}


@pytest.mark.filterwarnings("ignore:a fit should see unlabeled rows")
@pytest.mark.parametrize(("fit", "message"), FITS.values(), ids=FITS.keys())
def test_bad_fits(fit: Call, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        fit()


QUESTIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "infinite": (lambda m: m.predict(np.where(np.isnan(NAN), np.inf, NAN)), "X contains infinity"),
    "width": (lambda m: m.ood_score(X[:, :1]), "has 1 features, but .* is expecting 2"),
    "vector": (lambda m: m.is_ood(X[:, 0]), "Expected 2D array, got 1D"),
    "fpr": (lambda m: m.threshold(1), "fpr must lie strictly between 0 and 1, got 1"),
    "fpr NaN": (lambda m: m.is_ood(X, np.nan), "fpr must lie strictly .*got nan"),
    "no rows to pick": (lambda m: m.suggest(X, 0), "must be a whole number of at least 1, got 0"),
    "no functions": (lambda m: m.functions(0), "draws must be a whole .* at least 1, got 0"),
    "half a function": (lambda m: m.functions(1.5), r"draws must be a whole .*got 1\.5"),
    "suggest text": (lambda m: m.suggest(TEXT), "could not convert string to float: .*'a'"),
}


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
@pytest.mark.parametrize(("ask", "message"), QUESTIONS.values(), ids=QUESTIONS.keys())
def test_bad_questions(
    ask: Callable[[Any], Any], message: str, kind: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(ValueError, match=message):
        ask(request.getfixturevalue(kind))


def test_bad_questions_of_their_own(
    regressor: gpn.GPNRegressor, classifier: gpn.GPNClassifier
) -> None:
    for call, message in (
        (lambda: regressor.sample_y(X, 0), "draws must be a whole number .*got 0"),
        (lambda: regressor.predict_interval(X, 0), "level must lie strictly .*got 0"),
        (lambda: classifier.sample_proba(X, -1), "draws must be a whole number .*got -1"),
        (lambda: classifier.entropy(X[:, :1]), "has 1 features, but .* is expecting 2"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("name", ["predict", "ood_score", "is_ood", "suggest", "save", "functions"])
def test_nothing_is_asked_before_the_fit(name: str) -> None:
    for kind in ("GPNRegressor", "GPNClassifier"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(new(kind), name)(3 if name == "functions" else X)


POSTERIOR: dict[str, tuple[Callable[[Any], Any], str]] = {
    "width": (lambda p: p.sample(torch.zeros(3, 5), 2), r"shape \(n, 2\), got \(3, 5\)"),
    "NaN": (lambda p: p.mean(NAN), r"x must be finite, got NaN .* 1 of 24 rows \(first: row 3\)"),
    "NaN drawn": (lambda p: p.sample(NAN, 3), r"x must be finite, got NaN .* 1 of 24 rows"),
    "text": (lambda p: p.std(TEXT), "x must be a table of numbers .*got ndarray"),
    "level": (lambda p: p.interval(X, 1), "level must lie strictly .*got 1"),
    "draws": (lambda p: p.draw_many(0), "draws must be a whole number .*got 0"),
    "rng": (lambda p: p.sample(X, 2, rng="a"), "rng must be a torch.Generator, .*got 'a'"),
    "classes": (lambda p: p.probabilities(X), "need a classification task, .* regression"),
    "function": (lambda p: p.draw(rng=0)(X[:, 0]), r"shape \(n, 2\), got \(24,\)"),
    "no save": (lambda p: gpn.save(X, "m.gpn"), "must have config, .*got ndarray"),
}


@pytest.mark.parametrize(("ask", "message"), POSTERIOR.values(), ids=POSTERIOR.keys())
def test_bad_questions_to_a_posterior(
    ask: Callable[[Any], Any], message: str, regressor: gpn.GPNRegressor
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        ask(regressor.posterior_)


def table(**changes: Any) -> pd.DataFrame:
    return models.table().assign(**changes)


def doubled() -> pd.DataFrame:
    return pd.concat([table(), table()[["heat"]]], axis=1)


LEVELS = pd.DataFrame(np.ones((4, 2)), columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]))
TABLES: dict[str, tuple[Callable[[TableModel], Any], str]] = {
    "no table": (lambda m: m.predict(X), "a table must be a pandas DataFrame, got ndarray"),
    "no rows": (lambda m: m.predict(table().head(0)), "at least one row, got none"),
    "column gone": (lambda m: m.predict(table().drop(columns="heat")), "'heat' is missing"),
    "twice": (lambda m: m.suggest(doubled(), 2), "column names must differ, got 'heat' twice"),
    "levels": (lambda m: m.predict(LEVELS), "must have one name, got 2 levels"),
    "words": (lambda m: m.predict(table(heat="hot")), "'heat' must hold finite .*got 'hot' in row"),
    "complex": (lambda m: m.predict(table(heat=1j)), "must hold real numbers, got complex128"),
    "infinite": (lambda m: m.predict(table(size=np.inf)), "'size' must hold finite .*got inf"),
    "no target": (
        lambda m: m.evaluate(table().drop(columns="yield")),
        "the target must be a column, got 'yield'; there are size, heat",
    ),
    "target gone": (
        lambda m: m.evaluate(table(**{"yield": np.nan})),
        "must be known in some rows, it is missing in all 24",
    ),
    "target words": (
        lambda m: m.evaluate(table(**{"yield": "much"})),
        "'yield' must hold finite numbers, got 'much' in row 0",
    ),
    "OOD rows": (lambda m: m.evaluate(table(), X), "must be a pandas DataFrame, got ndarray"),
    "fit words": (
        lambda m: fit_table(table(**{"yield": "much"}), "yield", classes=False),
        "'yield' must hold finite numbers, got 'much'",
    ),
    "fit infinite": (
        lambda m: fit_table(table(**{"yield": np.inf}), "yield"),
        "'yield' must hold finite numbers, got inf",
    ),
    "fit twice": (
        lambda m: fit_table(doubled(), "yield"),
        "column names must differ, got 'heat' twice",
    ),
    "report": (lambda m: write_report(m, X), "must be a pandas DataFrame, got ndarray"),
    "report rows": (lambda m: write_report(m, table().head(0)), "at least one row, got none"),
    "report column": (
        lambda m: write_report(m, table(), table().drop(columns="size")),
        "'size' is missing",
    ),
    "no model": (lambda m: write_report(m.estimator, table()), "must be a TableModel, got GPNReg"),
    "read": (lambda m: files.read_table(Path("none.csv")), "there is no table none.csv"),
}


@pytest.mark.parametrize(("ask", "message"), TABLES.values(), ids=TABLES.keys())
def test_bad_tables(
    ask: Callable[[TableModel], Any],
    message: str,
    model: TableModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TableError, match=message):
        ask(model)
    assert list(tmp_path.iterdir()) == []


OTHERS: dict[str, tuple[Call, type[Exception], str]] = {
    "box of text": (lambda: gpn.box("a", "b"), ValueError, "a box must be finite .*got low=.*'a'"),
    "box of one": (lambda: gpn.box(0.0, 1.0), ValueError, "a box must be finite .*got low=0.0"),
    "vector pool": (lambda: gpn.TensorPool(torch.zeros(3)), ValueError, r"rows .*got \(3,\)"),
    "no sampler": (lambda: gpn.SamplerPool(3), TypeError, "must be a function .*got int"),
    "no length": (
        lambda: gpn.DatasetPool(iter([])),
        TypeError,
        "a Dataset with a length, .*got list_iterator",
    ),
    "no features": (
        lambda: gpn.Task(np.zeros((3, 0)), [0.0, 1.0, 2.0]),
        ValueError,
        r"at least one number in each row, got shape \(3, 0\)",
    ),
    "images": (lambda: images("../x"), DataError, "the name of an image set must be .*got '../x'"),
    "image part": (
        lambda: ImagePart(torch.zeros(3, 2), None),
        ValueError,
        r"images must be bytes of shape .*got torch.float32 of shape \(3, 2\)",
    ),
    "augment": (
        lambda: FlipAndShift()(torch.zeros(3, 2), torch.Generator()),
        ValueError,
        r"images must have the shape .*got \(3, 2\)",
    ),
    "no data": (lambda: superconductivity("nowhere"), DataError, "train.csv .* must be at"),
    "no config": (lambda: gpn.GPNConfig(n_anchor=3), TypeError, "got 'n_anchor'; did you mean"),
}


@pytest.mark.parametrize(("call", "kind", "message"), OTHERS.values(), ids=OTHERS.keys())
def test_bad_parts(call: Call, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.gpn").write_text("hello")
    with pytest.raises(ModelError, match=r"m\.gpn must be a complete file that gpn\.save wrote"):
        gpn.load(tmp_path / "m.gpn")
    with pytest.raises(ValueError, match="device must be"):
        gpn.load(tmp_path / "m.gpn", device="abacus")
    with pytest.raises(OSError, match="absent"):
        gpn.load(tmp_path / "absent.gpn")


def test_numbers_that_fail_later_are_refused_at_once(tmp_path: Path) -> None:
    """An empty list of scores, scales of 1e-320 and weights of 1e300 opened, and failed in use."""
    path = tmp_path / "m.gpn"
    gpn.GPNRegressor(mean=None, random_state=0).fit(X, Y, POOL).save(path)
    saved = SavedModel.read(path)
    tensors, header = saved.tensors, saved.header
    config = json.loads(header["config"])
    config["settings"]["prior"]["settings"]["column_scales"] = [1e-320, 1e-320]
    bad: dict[str, tuple[Any, Any]] = {
        "one at least": (
            {**tensors, "estimator/reference_scores": torch.ones(0).double()},
            header,
        ),
        "x_scale_ must be at least": (
            {**tensors, "estimator/x_scale_scale": torch.full((2,), 1e-320).double()},
            header,
        ),
        "numbers must be at most 1e\\+150": (
            {**tensors, "weights": torch.full_like(tensors["weights"], 1e300)},
            header,
        ),
        "column_scales.*1e-320": (
            tensors,
            {**header, "config": json.dumps(config)},
        ),
    }
    for message, (values, facts) in bad.items():
        dataclasses.replace(saved, tensors=values, header=facts).write()
        with pytest.raises(ModelError, match=message):
            gpn.load(path)
