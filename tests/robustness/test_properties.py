"""What holds for whatever numbers, labels and tables come: tasks, estimators, metrics."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import gpn
from gpn import metrics
from tests.fuzz import models

settings.register_profile("gpn", deadline=None, derandomize=True, database=None, max_examples=25)
settings.load_profile("gpn")

FLOATS = st.floats(-1e3, 1e3, allow_nan=False, width=32)
KINDS = [np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_]
SHAPES = arrays.array_shapes(min_dims=2, max_dims=4, max_side=5)
X, Y, WORDS, POOL = models.X, models.Y, models.WORDS, models.POOL
ROWS = arrays.arrays(np.float64, st.tuples(st.integers(1, 20), st.just(2)), elements=FLOATS)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(st.sampled_from(KINDS).flatmap(lambda kind: arrays.arrays(kind, SHAPES)), st.data())
def test_a_task_keeps_values_and_shapes_of_every_kind(x: Any, data: st.DataObject) -> None:
    as_given = data.draw(st.sampled_from([lambda a: a, torch.from_numpy, lambda a: a.tolist()]))
    y = data.draw(arrays.arrays(np.float64, len(x), elements=FLOATS))
    if not np.isfinite(x).all():
        with pytest.raises(ValueError, match=r"x must be finite, got NaN or infinity in \d+ of"):
            gpn.Task(as_given(x), y)
        return
    task = gpn.Task(as_given(x), y, pool=as_given(x))
    assert task.x_obs.is_floating_point()
    kind = x.dtype if x.dtype.kind == "f" else np.float32  # torch's own for whole numbers
    np.testing.assert_array_equal(task.x_obs.double().numpy(), x.astype(kind).astype(float))
    assert task.input_shape == x.shape[1:]
    assert (task.n_outputs, task.is_classification) == (1, False)
    assert task.y_obs.dtype == task.x_obs.dtype


@given(arrays.arrays(st.sampled_from([np.int16, np.int64, np.uint8, np.uint32, np.bool_]), 3))
def test_whole_numbers_are_classes_from_zero_on(y: Any) -> None:
    if y.min() < 0 or y.max() > 99_999:
        with pytest.raises(ValueError, match=r"class numbers must be 0, 1, 2, \.\.\., got -?\d+"):
            gpn.Task(X[:3], y)
        return
    task = gpn.Task(X[:3], y)
    assert task.is_classification
    assert task.n_outputs == max(2, int(y.max()) + 1)
    assert task.y_obs.tolist() == y.astype(int).tolist()


@given(st.integers(100_001, 2**40))
def test_many_classes_must_be_meant(n: int) -> None:
    with pytest.raises(ValueError, match=rf"got {n - 1}; renumber .* n_classes={n} "):
        gpn.Task(X[:2], [0, n - 1])
    assert gpn.Task(X[:2], [0, n - 1], n_classes=n).n_outputs == n


LABELS: dict[str, Any] = {
    "texts": WORDS,
    "unicode": np.where(WORDS == "left", "ünï\u202e<b>", "日本 [/b]"),
    "objects": WORDS.astype(object),
    "bools": WORDS == "left",
    "gaps": np.where(WORDS == "left", -7, 900),
    "huge": np.where(WORDS == "left", 2**62, -(2**62)),
    "unsigned": np.where(WORDS == "left", np.uint64(2**64 - 1), np.uint64(3)),
    "floats": np.where(WORDS == "left", 1.0, 3.0),
    "float32": np.where(WORDS == "left", np.float32(2.0), np.float32(7.0)),
}


@pytest.mark.parametrize("name", LABELS)
def test_classes_of_every_kind_come_back_as_they_were(name: str, tmp_path: Path) -> None:
    y = LABELS[name]
    model = gpn.GPNClassifier(models.CONFIG, random_state=0).fit(X, y, POOL)
    model.save(tmp_path / "m.gpn")
    for one in (model, gpn.load(tmp_path / "m.gpn")):
        assert one.classes_.tolist() == sorted(set(y.tolist()))
        assert one.classes_.dtype == y.dtype
        assert set(one.predict(POOL).tolist()) <= set(y.tolist())


@pytest.fixture(scope="module")
def regressor() -> gpn.GPNRegressor:
    frame = pd.DataFrame(X, columns=["a", "b"])
    pool = pd.DataFrame(POOL, columns=["a", "b"])
    return gpn.GPNRegressor(models.CONFIG, random_state=0).fit(frame, Y, pool)


@pytest.fixture(scope="module")
def classifier() -> gpn.GPNClassifier:
    return gpn.GPNClassifier(models.CONFIG, random_state=0).fit(X, WORDS, POOL)


def close(left: Any, right: Any) -> None:
    np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5 * (1 + np.abs(right).max()))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@given(rows=ROWS, seed=st.integers(0, 99))
def test_a_prediction_depends_on_its_row_alone(
    regressor: gpn.GPNRegressor, classifier: gpn.GPNClassifier, rows: Any, seed: int
) -> None:
    """In any order of rows, and with any other rows in the call."""
    order, half = np.random.default_rng(seed).permutation(len(rows)), len(rows) // 2
    asked = (
        regressor.predict,
        regressor.ood_score,
        lambda x: regressor.predict(x, return_std=True)[1],
        regressor.functions(2, 0),
        classifier.predict_proba,
        classifier.ood_score,
        classifier.entropy,
    )
    for ask in asked:
        whole = ask(rows)
        assert np.isfinite(whole).all()
        close(ask(rows[order]), whole[order])
        parts = [ask(part) for part in (rows[:half], rows[half:]) if len(part)]
        close(np.concatenate(parts), whole)


@given(rows=ROWS)
def test_a_frame_is_its_numbers_and_columns_have_their_order(
    regressor: gpn.GPNRegressor, rows: Any
) -> None:
    frame = pd.DataFrame(rows, columns=["a", "b"])
    named = regressor.predict(frame)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(regressor.predict(rows), named)
    np.testing.assert_array_equal(regressor.predict(pl.DataFrame(frame.to_dict("list"))), named)
    with pytest.raises(ValueError, match="feature names should match"):
        regressor.predict(frame[["b", "a"]])


@given(rows=ROWS, bad=st.sampled_from([np.nan, np.inf, -np.inf]), data=st.data())
def test_missing_values_give_a_warning_and_infinite_ones_are_refused(
    classifier: gpn.GPNClassifier, rows: Any, bad: float, data: st.DataObject
) -> None:
    rows = rows.copy()
    rows[data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, 1))] = bad
    for ask in (classifier.predict, classifier.ood_score, classifier.is_ood, classifier.suggest):
        if np.isnan(bad):
            with pytest.warns(gpn.GPNWarning, match="taken as the median of their column"):
                ask(rows)
        else:
            with pytest.raises(ValueError, match="X contains infinity"):
                ask(rows)


DRAWS = arrays.arrays(
    np.float64, st.tuples(st.integers(2, 9), st.integers(1, 6), st.integers(1, 3)), elements=FLOATS
).map(torch.from_numpy)


@given(DRAWS, st.floats(0.05, 0.95), st.floats(0.1, 10.0), st.floats(-10.0, 10.0))
def test_intervals_follow_shifts_and_scales(
    draws: Any, level: float, scale: float, shift: float
) -> None:
    targets = draws.mean(0)
    width = metrics.interval_width(draws, level)
    assert (width >= 0).all()
    moved = scale * draws + shift
    torch.testing.assert_close(metrics.interval_width(moved, level), scale * width)
    share = metrics.interval_coverage(draws, targets, level)
    assert ((share >= 0) & (share <= 1)).all()
    shuffled = draws[torch.randperm(len(draws), generator=seeded(0))]
    torch.testing.assert_close(metrics.interval_coverage(shuffled, targets, level), share)
    wider = metrics.interval_width(draws, min(0.99, level + 0.02))
    assert (wider >= width - 1e-9).all()


SCORES = arrays.arrays(np.float64, st.integers(1, 12), elements=st.integers(-9, 9)).map(
    torch.from_numpy
)


@given(SCORES, SCORES)
def test_detection_depends_on_the_order_of_scores_alone(known: Any, ood: Any) -> None:
    auc = metrics.ood_auc(known, ood)
    assert 0 <= auc <= 1
    assert metrics.ood_auc(ood, known) == pytest.approx(1 - auc)
    for measure in (metrics.ood_auc, metrics.ood_aupr, metrics.ood_fpr95):
        value = measure(known, ood)
        assert measure((known / 5).exp(), (ood / 5).exp()) == pytest.approx(value)
        assert measure(known.flip(0), ood.flip(0)) == pytest.approx(value)
    false, found = metrics.ood_roc(known, ood)
    assert (false.diff() >= 0).all()
    assert (found.diff() >= 0).all()
    assert (float(false[0]), float(found[-1])) == (0, 1)


@given(SCORES, st.data())
def test_risk_ends_at_the_mean_error(errors: Any, data: st.DataObject) -> None:
    keys = st.lists(st.integers(-3, 3), min_size=len(errors), max_size=len(errors))
    scores = torch.tensor(data.draw(keys), dtype=torch.float64)
    share, risk = metrics.risk_coverage(errors, scores)
    assert float(share[-1]) == 1
    assert float(risk[-1]) == pytest.approx(float(errors.mean()), abs=1e-9)
    torch.testing.assert_close(metrics.risk_coverage(errors.flip(0), scores.flip(0))[1], risk)


@given(arrays.arrays(np.float64, (5, 3), elements=st.floats(-5, 5)), st.integers(0, 99))
def test_class_measures_do_not_depend_on_the_order_of_rows(logits: Any, seed: int) -> None:
    p = torch.from_numpy(logits).softmax(1)
    classes = torch.randint(3, (5,), generator=seeded(seed))
    order = torch.randperm(5, generator=seeded(seed))
    for measure in (metrics.class_nll, metrics.calibration_error):
        value = measure(p, classes)
        assert value >= 0
        torch.testing.assert_close(measure(p[order], classes[order]), value)
    assert float(metrics.total_variation(p, p[order])) <= 1
    assert float(metrics.total_variation(p, p)) == 0
