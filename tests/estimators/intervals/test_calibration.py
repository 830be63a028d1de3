"""Calibrated intervals and sets hold their level for any model, and are saved with it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

import gpn
from gpn.cli.commands import app
from gpn.columns.column_types import TableError
from gpn.report import measure
from gpn.saving.validation import ModelError
from tests.fuzz import models
from tests.saving.test_format import rewrite_tensors

LEVELS = (0.5, 0.9, 0.95)
WITHIN = 0.015
TINY = gpn.GPNConfig(
    anchor="independent",
    beta=0.1,
    noise_std=0.02,
    n_axes=4,
    reference_rows=32,
    pool_weights="equal",
    trunk=gpn.MLPTrunk(widths=(8,)),
    train=gpn.TrainConfig(steps=5, label_batch=16, pool_batch=16, device="cpu"),
)
Data = Callable[[np.random.Generator, int], tuple[Any, Any]]


def numbers(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Noise of heavy tails that grows with x, which the model knows nothing of."""
    x = rng.normal(size=(n, 2))
    noise = (0.3 + x[:, 0] ** 2) * rng.standard_t(3, size=n)
    return x, 10 * np.sin(2 * x[:, 1]) + noise


def two_targets(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    x, y = numbers(rng, n)
    return x, np.stack([y, 1000 * rng.exponential(size=n)], axis=1)


def classes(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Three classes, and one label in five that is wrong."""
    x = rng.normal(size=(n, 2))
    right = np.digitize(x[:, 0], [-0.5, 0.5])
    return x, np.where(rng.random(n) < 0.2, rng.integers(0, 3, n), right)


def new(data: Data, rng: np.random.Generator) -> Any:
    kind = gpn.GPNClassifier if data is classes else gpn.GPNRegressor
    x, y = data(rng, 30)
    return kind(TINY, random_state=0).fit(x, y, x)


def covered(model: Any, data: Data, rng: np.random.Generator, n: int = 400) -> Iterator[Any]:
    """The share of new labels inside at each level, once calibrated on 99 rows."""
    model.calibrate(*data(rng, 99))
    x, y = data(rng, n)
    for level in LEVELS:
        if data is classes:
            yield model.predict_set(x, level)[np.arange(len(x)), y].mean()
        else:
            low, high = model.predict_interval(x, level)
            yield ((low <= y) & (y <= high)).mean(0)


@pytest.mark.parametrize(
    ("data", "times", "within"),
    [(numbers, 200, WITHIN), (two_targets, 100, 2 * WITHIN)],
)
def test_coverage_over_many_calibrations_of_one_model(
    data: Data, times: int, within: float
) -> None:
    rng = np.random.default_rng(0)
    model = new(data, rng)
    found = np.mean([list(covered(model, data, rng, 100)) for _ in range(times)], axis=0)
    np.testing.assert_allclose(found.T, np.broadcast_to(LEVELS, found.T.shape), atol=within)


def test_sets_cover_at_least_their_level() -> None:
    """More than it where the most probable class alone does."""
    rng = np.random.default_rng(0)
    model = new(classes, rng)
    found = np.mean([list(covered(model, classes, rng, 100)) for _ in range(20)], axis=0)
    assert (found > np.array(LEVELS) - 4 * WITHIN).all()
    assert found[-1] == pytest.approx(LEVELS[-1], abs=4 * WITHIN)


@pytest.mark.slow
@pytest.mark.parametrize("data", [numbers, two_targets])
def test_coverage_over_200_data_sets(data: Data) -> None:
    """Each data set has its fit, its calibration and its test."""
    rng = np.random.default_rng(1)
    found = np.mean([list(covered(new(data, rng), data, rng)) for _ in range(200)], axis=0)
    print(f"\nconformal coverage over 200 data sets, {data.__name__}: {found.round(4).tolist()}")
    np.testing.assert_allclose(found.T, np.broadcast_to(LEVELS, found.T.shape), atol=WITHIN)


def test_the_same_model_without_it_covers_too_little() -> None:
    rng = np.random.default_rng(0)
    model, (x, y) = new(numbers, rng), numbers(rng, 2000)
    low, high = model.predict_interval(x, 0.95)
    assert ((low <= y) & (y <= high)).mean() < 0.9
    model.calibrate(*numbers(rng, 500))
    low, high = model.predict_interval(x, 0.95)
    assert ((low <= y) & (y <= high)).mean() > 0.93


@pytest.fixture(scope="module")
def regressor() -> Any:
    rng = np.random.default_rng(0)
    return new(numbers, rng).calibrate(*numbers(rng, 40))


@pytest.fixture(scope="module")
def classifier() -> Any:
    rng = np.random.default_rng(0)
    return new(classes, rng).calibrate(*classes(rng, 40))


def test_the_interval_of_the_function_is_not_calibrated(regressor: Any) -> None:
    x, _ = numbers(np.random.default_rng(3), 20)
    ends = regressor.predict_interval(x, observation_noise=False)
    plain = regressor._posterior.interval(regressor.x_scale_.apply(x))
    np.testing.assert_allclose(ends[0], regressor.y_scale_.undo(plain[0].numpy())[:, 0])
    both = [regressor.predict_interval(x, observation_noise=on) for on in (True, None)]
    np.testing.assert_array_equal(*both)


def test_too_few_rows_for_a_level_are_refused(regressor: Any, classifier: Any) -> None:
    x, _ = numbers(np.random.default_rng(3), 5)
    for ask in (regressor.predict_interval, classifier.predict_set):
        with pytest.raises(ValueError, match=r"0\.99 needs at least 99 .* rows, got 40.*at most"):
            ask(x, 0.99)


def test_a_new_fit_forgets_the_calibration() -> None:
    rng = np.random.default_rng(0)
    model = new(numbers, rng).calibrate(*numbers(rng, 30))
    assert model.fit(*numbers(rng, 30), numbers(rng, 30)[0]).calibration_scores_ is None


def test_sets_grow_with_the_level(classifier: Any) -> None:
    x, _ = classes(np.random.default_rng(4), 200)
    sizes = [classifier.predict_set(x, level).sum(1).mean() for level in (0.5, 0.8, 0.95)]
    assert sizes == sorted(sizes)
    assert classifier.predict_set(x).dtype == bool
    assert sizes[0] < sizes[-1]


BAD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "infinite": (lambda m: m.calibrate([[np.inf, 0.0]], [1]), "X contains infinity"),
    "width": (lambda m: m.calibrate(np.zeros((30, 1)), np.zeros(30)), "has 1 features, but .* 2"),
    "lengths": (lambda m: m.calibrate(np.zeros((30, 2)), [0, 1]), "inconsistent numbers of sam"),
    "none": (lambda m: m.calibrate(np.zeros((0, 2)), []), r"0 sample\(s\) .* minimum of 1"),
}


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
@pytest.mark.parametrize(("ask", "message"), BAD.values(), ids=BAD.keys())
def test_bad_calibrations(
    ask: Callable[[Any], Any], message: str, kind: str, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(kind)
    before = model.calibration_scores_
    with pytest.raises(ValueError, match=message):
        ask(model)
    assert model.calibration_scores_ is before


def test_bad_labels_and_unfitted_models(regressor: Any, classifier: Any) -> None:
    x, fresh = np.zeros((30, 2)), new(classes, np.random.default_rng(0))
    for call, message in (
        (lambda: regressor.calibrate(x, np.zeros((30, 2))), "y must have 1 targets .*got 2"),
        (lambda: regressor.calibrate(x, ["a"] * 30), "could not convert string"),
        (lambda: classifier.calibrate(x, [7] * 30), r"those of the fit, \[0, 1, 2\], got 7, too"),
        (lambda: classifier.predict_set(x, 1.0), "level must lie strictly .*got 1"),
        (lambda: fresh.predict_set(x), r"must rest on labeled rows .*call calibrate\(X, y\)"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for unfitted in (gpn.GPNRegressor().calibrate, gpn.GPNClassifier().calibrate):
        with pytest.raises(NotFittedError):
            unfitted(x, x[:, 0])
    numbers, words = gpn.GPNRegressor(), gpn.GPNClassifier()
    for ask in (words.predict_set, words.entropy, words.predict_all, numbers.predict_all):
        with pytest.raises(NotFittedError):
            ask(x)
    for ask in (numbers.ood_score, numbers.predict_interval, numbers.sample_y, numbers.suggest):
        with pytest.raises(NotFittedError):
            ask(x)


def test_it_is_saved_with_the_model(regressor: Any, classifier: Any, tmp_path: Path) -> None:
    x, _ = numbers(np.random.default_rng(3), 20)
    path = tmp_path / "m.gpn"
    regressor.save(path)
    np.testing.assert_array_equal(
        gpn.load(path).predict_interval(x, 0.9), regressor.predict_interval(x, 0.9)
    )
    classifier.save(path)
    np.testing.assert_array_equal(gpn.load(path).predict_set(x), classifier.predict_set(x))
    new(classes, np.random.default_rng(0)).save(path)
    assert gpn.load(path).calibration_scores_ is None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda scores: scores[:, [0, 0]], "must be 1 columns"),
        (lambda scores: -scores, "numbers from 0 on"),
        (lambda scores: scores.flip(0), "got 'another order'"),
        (lambda scores: scores * float("inf"), "got 'others'"),
        (lambda scores: scores[:0], "got 'others'"),
    ],
)
def test_spoilt_scores_in_a_file_are_refused(
    spoil: Callable[[Any], Any], message: str, regressor: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.gpn"
    regressor.save(path)
    rewrite_tensors(path, **{"estimator/calibration": spoil})
    with pytest.raises(ModelError, match=message):
        gpn.load(path)


def test_positions_of_calibrated_labels_are_uniform(regressor: Any) -> None:
    rng = np.random.default_rng(5)
    model = new(numbers, rng).calibrate(*numbers(rng, 999))
    found = measure.coverage(measure.pit(model, *numbers(rng, 3000)))
    assert np.abs(found["shares"] - found["levels"]).max() < 0.05
    low, high = model.predict_interval(x := numbers(rng, 50)[0], 0.8)
    for end, place in ((low, 0.1), (high, 0.9)):
        np.testing.assert_allclose(measure.pit(model, x, end), place, atol=2e-3)


def tables(target: str, folder: Path) -> tuple[Path, Path, Path]:
    """A model's file, labeled rows that it has not seen, and those of its fit."""
    model, seen, others = folder / "m.gpn", folder / "seen.csv", folder / "others.csv"
    models.model(target).save(model)
    models.table().to_csv(seen, index=False)
    rng = np.random.default_rng(9)
    moved = pd.concat([models.table()] * 2, ignore_index=True)
    moved[["size", "heat"]] += rng.normal(size=(48, 2))
    moved.to_csv(others, index=False)
    return model, others, seen


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("target", ["yield", "grade"])
def test_the_command_line_calibrates(target: str, tmp_path: Path) -> None:
    model, others, _ = tables(target, tmp_path)
    out = tmp_path / "c.gpn"
    result = run("calibrate", model, others, "--out", out, "--json")
    said = json.loads(result.stdout)
    assert (said["rows"], said["out"]) == (48, str(out))
    assert set(said) == {"rows", "out", "before", "after"}
    measured = json.loads(run("evaluate", out, others, "--json").stdout)
    name = "coverage_95" if target == "yield" else "set_coverage_95"
    assert measured[name] >= 47 / 48 - 1e-9
    scored = tmp_path / "scored.csv"
    assert run("predict", out, others, "--out", scored, "--level", 0.9).exit_code == 0
    found = pd.read_csv(scored)
    if target == "grade":
        right = np.where(found["grade"] == "left", found["in_left"], found["in_right"])
    else:
        right = (found["lower"] <= found["yield"]) & (found["yield"] <= found["upper"])
    assert right.mean() >= 45 / 48
    assert "in_left" not in models.model("grade").predict(models.table()).columns


def test_rows_of_the_fit_are_refused(tmp_path: Path) -> None:
    model, others, seen = tables("yield", tmp_path)
    result = run("calibrate", model, seen, "--out", tmp_path / "c.gpn")
    assert result.exit_code == 1
    assert "has not seen, got a table that shares 100% with those it learnt from" in result.stderr
    assert not (tmp_path / "c.gpn").exists()
    few = pd.read_csv(others).head(18)
    with pytest.raises(TableError, match="at least 19 labeled rows, the least for 95 %, got 18"):
        gpn.load(model).calibrate(few)
