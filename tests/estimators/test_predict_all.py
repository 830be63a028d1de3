"""`predict_all` equals the single predictions, from one pass through the network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpn
from gpn import GPNClassifier, GPNRegressor, TrainConfig, estimators
from gpn.estimators import base, chunks
from gpn.estimators.classifier import ClassPrediction
from gpn.estimators.regressor import Prediction
from tests.estimators.small import SMALL
from tests.estimators.test_estimators import POOL, WORDS, X, Y

TWO, NEW = np.stack([Y, -3 * Y], axis=1), POOL[:20]


def affine() -> GPNRegressor:
    return GPNRegressor(SMALL, random_state=0).fit(X, Y, POOL)


REGRESSORS = {
    "affine": affine,
    "calibrated": lambda: affine().calibrate(X, Y),
    "two targets": lambda: GPNRegressor(SMALL, random_state=0).fit(X, TWO, POOL),
    "draws": lambda: gpn.PosteriorRegressor(
        "dropout", settings={"train": TrainConfig(steps=5)}, random_state=0
    ).fit(X, Y, POOL),
    "exact": lambda: gpn.PosteriorRegressor("gp", random_state=0).fit(X, Y, POOL),
}


@pytest.mark.parametrize("make", REGRESSORS.values(), ids=REGRESSORS.keys())
def test_numbers_are_those_of_the_single_predictions(make: Any) -> None:
    model = make()
    found = model.predict_all(NEW, 0.8, 0.1)
    expected = Prediction(
        *model.predict(NEW, return_std=True),
        *model.predict_interval(NEW, 0.8),
        model.ood_score(NEW),
        model.is_ood(NEW, 0.1),
        model.predict_distribution(NEW).std(),
    )
    for name, values in expected._asdict().items():
        np.testing.assert_array_equal(getattr(found, name), values, err_msg=name)


def test_classes_are_those_of_the_single_predictions() -> None:
    model = GPNClassifier(SMALL, random_state=0).fit(X, WORDS, POOL)
    assert model.predict_all(POOL).in_set is None
    found = model.calibrate(X, WORDS).predict_all(POOL, 0.8, 0.1)
    expected = ClassPrediction(
        model.predict(POOL),
        model.predict_proba(POOL),
        found.entropy,
        model.predict_set(POOL, 0.8),
        model.ood_score(POOL),
        model.is_ood(POOL, 0.1),
    )
    for name, values in expected._asdict().items():
        np.testing.assert_array_equal(getattr(found, name), values, err_msg=name)
    np.testing.assert_allclose(found.entropy, model.entropy(POOL), atol=1e-5)


@pytest.mark.parametrize("name", ["affine", "calibrated", "two targets"])
def test_one_pass_through_the_trunk(name: str) -> None:
    model, passes = REGRESSORS[name](), []
    model.posterior_.generator.features.register_forward_hook(lambda *_: passes.append(1))
    for ask in (
        model.predict_all,
        model.predict,
        lambda x: model.predict(x, return_std=True),
        model.predict_interval,
    ):
        passes.clear()
        ask(POOL)
        assert len(passes) == 1
    passes.clear()
    model.ood_score(POOL)  # by the detector, which needs no network
    assert not passes


@pytest.mark.parametrize("make", [affine, lambda: GPNClassifier(SMALL).fit(X, WORDS, POOL)])
def test_chunks_from_disk_are_joined_by_field(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    whole = model.predict_all(POOL)
    np.save(tmp_path / "rows.npy", POOL)
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 70)
    found = model.predict_all(gpn.DiskPool(tmp_path / "rows.npy"))
    assert type(found) is type(whole)
    assert len(found.ood_score) == len(POOL)
    np.testing.assert_allclose(found.ood_score, whole.ood_score, rtol=1e-4)


def test_estimators_register_themselves_for_loading() -> None:
    names = ("GPNRegressor", "GPNClassifier", "PosteriorRegressor", "PosteriorClassifier")
    assert {name: getattr(estimators, name) for name in names} == base.ESTIMATORS


@pytest.mark.parametrize(
    ("old", "new"),
    [("OutlierWarning", "SentinelWarning"), ("MadeUpPoolWarning", "SyntheticPoolWarning")],
)
def test_old_names_of_warnings_are_deprecated(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        assert getattr(estimators, old) is getattr(estimators, new)
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        estimators.Other  # noqa: B018
