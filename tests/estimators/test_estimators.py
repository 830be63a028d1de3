"""Estimators in the idioms of scikit-learn, and as files."""

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gpn
from gpn import GPNClassifier, GPNConfig, GPNRegressor, MLPTrunk, TrainConfig
from gpn.estimators import PosteriorClassifier, PosteriorRegressor, SyntheticPoolWarning
from gpn.estimators.scaling import Scale

SHORT = GPNConfig(
    beta=0.03,
    anchor="independent",
    noise_std=0.1,
    trunk=MLPTrunk(widths=(64, 64)),
    train=TrainConfig(steps=300, learning_rate=5e-3),
)
RNG = np.random.default_rng(0)
POOL = RNG.uniform(-3, 3, (400, 2))
X = RNG.uniform(-1, 1, (120, 2))
Y = 50 + 7 * (X[:, 0] - X[:, 1] ** 2)
WORDS = np.where(X[:, 0] > 0, "right", "left")


@pytest.fixture(scope="module")
def regressor() -> GPNRegressor:
    return GPNRegressor(SHORT, random_state=0).fit(X, Y, X_unlabeled=POOL)


@pytest.fixture(scope="module")
def classifier() -> GPNClassifier:
    return GPNClassifier(SHORT, random_state=0).fit(X, WORDS, X_unlabeled=POOL)


def is_known(model: GPNRegressor) -> Any:
    """Rows of X where predictions are the posterior's alone."""
    return model.predict_distribution(X).known == 1


def test_predictions_are_in_the_units_of_the_data(regressor: GPNRegressor) -> None:
    mean, std = regressor.predict(X, return_std=True)
    assert regressor.score(X, Y) > 0.95
    assert mean.shape == std.shape == (120,)
    low, high = regressor.predict_interval(X, observation_noise=False)
    known = is_known(regressor)
    assert known.mean() > 0.25
    np.testing.assert_allclose((high - low)[known], 2 * 1.96 * std[known], rtol=1e-3)
    same, covariance = regressor.predict(X[:5], return_cov=True)
    np.testing.assert_allclose(same, mean[:5], rtol=1e-6)
    np.testing.assert_allclose(np.sqrt(covariance.diagonal()), std[:5], rtol=1e-5)


def test_an_interval_of_a_label_is_wider_by_its_noise(regressor: GPNRegressor) -> None:
    label, function = (
        np.diff(regressor.predict_interval(X, observation_noise=on), axis=0) for on in (True, False)
    )
    assert (label > function).all()
    of_labels = np.diff(regressor.predict_distribution(X).interval(), axis=0)
    np.testing.assert_allclose(of_labels, label)
    default = np.diff(regressor.predict_interval(X), axis=0)
    np.testing.assert_allclose(default, label)
    scatter = copy.copy(regressor)
    scatter.label_noise_ = None  # what the posterior says by itself
    plain = np.diff(scatter.predict_interval(X), axis=0)
    noise = 2 * 1.96 * SHORT.noise_std * Y.std()
    known = is_known(regressor)
    np.testing.assert_allclose(np.hypot(function, noise)[:, known], plain[:, known], rtol=0.02)


def test_samples_come_last_and_by_random_state(regressor: GPNRegressor) -> None:
    draws = regressor.sample_y(X, 500, random_state=3)
    assert draws.shape == (120, 500)
    np.testing.assert_array_equal(draws, regressor.sample_y(X, 500, random_state=3))
    mean, std = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(draws.mean(1), mean, atol=5 * std.max() / 500**0.5)


@pytest.mark.parametrize("which", ["regressor", "classifier"])
def test_functions_are_the_samples_at_any_rows(which: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(which)
    functions = model.functions(3, random_state=1)
    whole = functions(X)
    np.testing.assert_allclose(np.concatenate([functions(X[:50]), functions(X[50:])]), whole)
    sample = model.sample_y if which == "regressor" else model.sample_proba
    np.testing.assert_allclose(sample(X, 3, random_state=1), whole)


def test_rows_unlike_the_labels_are_flagged(
    regressor: GPNRegressor, classifier: GPNClassifier
) -> None:
    inside, outside = RNG.uniform(-1, 1, (500, 2)), np.array([[2.5, 2.5], [-2.5, 2.8], [2.9, -2.9]])
    for model in (regressor, classifier):
        assert model.is_ood(inside).mean() < 0.25
        assert model.is_ood(outside).all()
        assert model.is_ood(inside, fpr=0.5).mean() > model.is_ood(inside, fpr=0.05).mean()
        assert model.ood_score(outside).min() > np.median(model.ood_score(inside))


def test_a_pool_is_refused_where_all_rows_are_needed_together(
    regressor: GPNRegressor, tmp_path: Path
) -> None:
    np.save(tmp_path / "pool.npy", POOL)
    with pytest.raises(TypeError, match=r"must be an array, got DiskPool; pass np\.load"):
        regressor.suggest(gpn.DiskPool(tmp_path / "pool.npy"), 2)


def test_long_integers_on_disk_are_read_in_full(tmp_path: Path) -> None:
    seconds = 1_700_000_000 + np.arange(300)
    x = np.stack([seconds, seconds % 7], 1)
    np.save(tmp_path / "rows.npy", x)
    model = GPNRegressor(SHORT, random_state=0).fit(x, np.sin(seconds / 50), X_unlabeled=x)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    np.testing.assert_allclose(model.predict(mapped), model.predict(x), rtol=1e-5)


def test_words_are_classes(classifier: GPNClassifier) -> None:
    assert classifier.classes_.tolist() == ["left", "right"]
    assert classifier.score(X, WORDS) > 0.9
    p = classifier.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    draws = classifier.sample_proba(X, 300, random_state=0)
    assert draws.shape == (120, 2, 300)
    np.testing.assert_allclose(draws.mean(2), p, atol=0.1)
    expected = -(p * np.log(p)).sum(1)
    np.testing.assert_allclose(classifier.entropy(X), expected, atol=1e-6)


def test_suggestions_are_far_from_labels_and_from_each_other(regressor: GPNRegressor) -> None:
    picked = regressor.suggest(POOL, 4)
    assert len(set(picked.tolist())) == 4
    assert np.abs(POOL[picked]).max(1).mean() > np.abs(POOL).max(1).mean() * 0.9
    gaps = np.linalg.norm(POOL[picked][:, None] - POOL[picked][None], axis=-1)
    assert gaps[np.triu_indices(4, 1)].min() > 0.5


def test_suggested_classes_are_rows(classifier: GPNClassifier) -> None:
    picked = classifier.suggest(POOL, 5)
    assert picked.shape == (5,)
    assert picked.max() < len(POOL)


def test_several_targets() -> None:
    both = np.stack([Y, -3 * Y], axis=1)
    model = GPNRegressor(SHORT, random_state=0).fit(X, both, X_unlabeled=POOL)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (120, 2)
    assert model.sample_y(X, 3).shape == (120, 2, 3)
    assert model.predict(X[:4], return_cov=True)[1].shape == (4, 4, 2)
    assert model.score(X, both) > 0.9


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_their_names(frame: Any) -> None:
    table = frame({"a": X[:, 0], "b": X[:, 1]})
    model = GPNRegressor(SHORT.replace(train=TrainConfig(steps=5)), random_state=0)
    model.fit(table, Y, X_unlabeled=frame({"a": POOL[:, 0], "b": POOL[:, 1]}))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame({"b": X[:, 1], "a": X[:, 0]}))


def test_a_missing_pool_is_replaced_by_synthetic_rows_with_a_warning() -> None:
    with pytest.warns(SyntheticPoolWarning, match="which is second best"):
        model = GPNRegressor(SHORT, random_state=0).fit(X, Y)
    assert model.is_ood([[2.8, -2.8]]).all()


def test_pipelines_searches_and_clones() -> None:
    quick = SHORT.replace(train=TrainConfig(steps=40))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntheticPoolWarning)
        pipe = make_pipeline(StandardScaler(), GPNRegressor(quick, random_state=0))
        assert len(cross_val_score(pipe, X, Y, cv=3)) == 3
        untrained = quick.replace(train=TrainConfig(steps=1))
        search = GridSearchCV(pipe, {"gpnregressor__config": [untrained, quick]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"gpnregressor__config": quick}
    assert search.best_score_ > 0.5 > search.cv_results_["mean_test_score"][0]
    model = GPNRegressor(quick, device="cpu", random_state=4, verbose=False)
    assert clone(model).get_params() == model.get_params()


def test_the_same_seed_is_the_same_model() -> None:
    quick = SHORT.replace(train=TrainConfig(steps=20))
    first, second = (
        GPNRegressor(quick, random_state=5).fit(X, Y, X_unlabeled=POOL).predict(X) for _ in range(2)
    )
    np.testing.assert_allclose(first, second, rtol=1e-12)


def test_your_own_trunk() -> None:
    own = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh())
    model = GPNRegressor(SHORT, module=own, random_state=0).fit(X, Y, X_unlabeled=POOL)
    assert isinstance(model.posterior_.config.trunk, gpn.ModuleTrunk)
    assert model.score(X, Y) > 0.8


@pytest.mark.parametrize("method", [pytest.param("ensemble-or", marks=pytest.mark.slow), "dropout"])
def test_any_method_by_name(method: str, tmp_path: Path) -> None:
    settings = {"train": TrainConfig(steps=200)}
    numbers = PosteriorRegressor(method, settings=settings, random_state=0)
    assert numbers.fit(X, Y, X_unlabeled=POOL).score(X, Y) > 0.5
    words = PosteriorClassifier(method, settings=settings, random_state=0)
    assert words.fit(X, WORDS, X_unlabeled=POOL).score(X, WORDS) > 0.8
    words.save(tmp_path / "m.gpn")
    np.testing.assert_array_equal(gpn.load(tmp_path / "m.gpn").predict(X), words.predict(X))


@pytest.mark.parametrize(
    "settings",
    [None, {}, {"trunk": MLPTrunk(widths=(8, 8)), "train": TrainConfig(steps=3), "noise_std": 0.1}],
)
def test_a_file_keeps_the_settings_of_a_named_method(
    settings: dict[str, Any] | None, tmp_path: Path
) -> None:
    """A clone of what was loaded fits as the first one did, numbers, tuples and configs alike."""
    method = "gp" if not settings else "sngp"
    model = PosteriorRegressor(method, settings=settings, random_state=0).fit(X[:30], Y[:30], POOL)
    model.save(tmp_path / "m.gpn")
    again = gpn.load(tmp_path / "m.gpn")
    assert (again.method, again.settings) == (method, settings)
    refitted = clone(again).set_params(random_state=0).fit(X[:30], Y[:30], POOL)
    np.testing.assert_allclose(refitted.predict(X), model.predict(X))


@pytest.mark.parametrize("which", ["regressor", "classifier"])
def test_a_saved_model_gives_the_same_draws(
    which: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(which)
    model.save(tmp_path / "model.gpn")
    again = gpn.load(tmp_path / "model.gpn")
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.is_ood(POOL), model.is_ood(POOL))
    np.testing.assert_array_equal(again.suggest(POOL, 3), model.suggest(POOL, 3))
    draw = "sample_y" if which == "regressor" else "sample_proba"
    np.testing.assert_array_equal(getattr(again, draw)(X, 7), getattr(model, draw)(X, 7))


def test_damaged_model_files_are_refused(regressor: GPNRegressor, tmp_path: Path) -> None:
    path = tmp_path / "model.gpn"
    regressor.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="truncated or of another kind"):
        gpn.load(path)
    path.write_bytes(whole.replace(b"GPNRegressor", b"os.remove...", 1))
    with pytest.raises(ValueError, match="its checksum differs"):
        gpn.load(path)
    whole = whole.replace(b'"checksum"', b'"Checksum"', 1)  # as a file of 0.1.0, which has none
    path.write_bytes(whole.replace(b'\\"n_features\\"', b'\\"N_features\\"', 1))
    with pytest.raises(ValueError, match=r"estimator must be complete.*damaged, save it again"):
        gpn.load(path)
    path.write_bytes(whole.replace(b"GPNRegressor", b"os.remove...", 1))
    with pytest.raises(ValueError, match="one of gpn's estimators"):
        gpn.load(path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.is_ood(X, fpr=0.0), "fpr must lie strictly between 0 and 1"),
        (lambda m: m.predict(X, return_std=True, return_cov=True), "got both"),
        (lambda m: m.predict(X[:, :1]), "1 features, but GPNRegressor is expecting 2"),
        (lambda m: m.predict_interval(X, level=1.5), "level must lie strictly"),
    ],
)
def test_bad_questions(regressor: GPNRegressor, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(regressor)


def test_unlabeled_rows_reach_the_end_of_a_pipeline_transformed_like_the_others() -> None:
    quick = GPNRegressor(SHORT.replace(train=TrainConfig(steps=5)), random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        last = quick.set_fit_request(X_unlabeled=True)
        pipe = make_pipeline(StandardScaler(), last, transform_input=["X_unlabeled"])
        pipe.fit(X, Y, X_unlabeled=POOL)
    alone = StandardScaler().fit(X)
    by_hand = clone(quick).fit(alone.transform(X), Y, X_unlabeled=alone.transform(POOL))
    np.testing.assert_allclose(pipe.predict(X), by_hand.predict(alone.transform(X)), rtol=1e-12)


def test_suggestions_from_a_large_pool_look_at_the_most_unknown(
    regressor: GPNRegressor, classifier: GPNClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("regressor", "classifier"):
        monkeypatch.setattr(f"gpn.estimators.{module}.MAX_CANDIDATES", 50)
    for model in (regressor, classifier):
        picked = model.suggest(POOL, 5)
        assert len(set(picked.tolist())) == 5
    spread = regressor._ood_scores(regressor.posterior_, regressor._inputs(POOL))
    top = np.argsort(spread)[-50:]
    assert set(regressor.suggest(POOL, 5)) <= set(top)


def test_values_that_cannot_be_squared_are_refused() -> None:
    with pytest.raises(ValueError, match="small enough to be squared"):
        GPNRegressor(SHORT).fit(X * 1e200, Y, POOL)
    with pytest.raises(ValueError, match=r"got 1e\+308"):
        Scale.of(np.array([[1e308], [-1e308]]))


def test_joint_anchors_of_classes_in_bf16() -> None:
    train = TrainConfig(steps=5, precision="bf16", dtype="float32")
    model = GPNClassifier(GPNConfig(anchor="joint", train=train), random_state=0)
    assert model.fit(X[:30], WORDS[:30], POOL).predict_proba(X).shape == (120, 2)
