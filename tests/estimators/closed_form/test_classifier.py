"""Tables of classes in closed form: few labels, many classes, rare ones, and a model inside."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gpn
from gpn import GPNClassifier, GPNConfig
from gpn.core.priors.ard import ARDPrior
from gpn.estimators.closed_form import class_choice
from gpn.estimators.closed_form.class_choice import splits
from gpn.estimators.closed_form.class_mean import ClassMean, cross_fit_classes, log_odds

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (150, 2))
NEW = RNG.uniform(-2, 2, (200, 2))


def rings(x: np.ndarray) -> np.ndarray:
    return np.digitize(np.hypot(x[:, 0], x[:, 1]), [0.9, 1.7])


@pytest.fixture(scope="module")
def model() -> GPNClassifier:
    return GPNClassifier(random_state=0).fit(X, rings(X))


def test_a_table_is_fitted_without_a_network(model: GPNClassifier) -> None:
    assert model.posterior_.config.generator == "closed-form"
    assert isinstance(model.posterior_.config.prior, ARDPrior)
    assert model.score(NEW, rings(NEW)) > 0.85
    assert log_loss(rings(NEW), model.predict_proba(NEW)) < 0.4
    assert model.posterior_.diagnostics()


@pytest.mark.parametrize(
    "settings", [{"generator": "affine"}, {"beta": 0.1}, {"anchor": "joint"}, {"n_axes": 10}]
)
def test_a_setting_asks_for_a_network(settings: dict[str, Any]) -> None:
    short = gpn.TrainConfig(steps=2, device="cpu")
    config = GPNConfig(**settings, train=short)
    fitted = GPNClassifier(config, random_state=0).fit(X[:30], rings(X[:30]), NEW)
    assert fitted.posterior_.config.generator == "affine"
    assert fitted.mean_ is None


def test_probabilities_are_means_over_functions(model: GPNClassifier) -> None:
    p = model.predict_proba(NEW[:20])
    assert model.sample_proba(NEW[:20], 4000).mean(-1) == pytest.approx(p, abs=0.03)
    assert model.functions(3000)(NEW[:20]).mean(-1) == pytest.approx(p, abs=0.03)
    assert model.entropy(NEW[:20]) == pytest.approx(-(p * np.log(p)).sum(1))


def test_a_model_file_has_the_same_probabilities(model: GPNClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model.gpn")
    loaded = gpn.load(tmp_path / "model.gpn")
    assert loaded.predict_proba(NEW) == pytest.approx(model.predict_proba(NEW), abs=1e-9)
    assert loaded.ood_score(NEW) == pytest.approx(model.ood_score(NEW), abs=1e-9)
    assert loaded.get_params(deep=False).keys() == model.get_params(deep=False).keys()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_inside_are_saved(
    n_classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_choice, "_best", lambda choices, n: choices[-1])
    monkeypatch.setattr(class_choice, "HOPELESS", np.inf)
    monkeypatch.setattr(class_choice, "NO_HELP", np.inf)
    fitted = GPNClassifier(random_state=0).fit(X[:60], rings(X[:60]) % n_classes)
    assert fitted.mean_ is not None
    fitted.save(tmp_path / "model.gpn")
    loaded = gpn.load(tmp_path / "model.gpn")
    assert loaded.mean_.as_mean
    assert loaded.predict_proba(NEW) == pytest.approx(fitted.predict_proba(NEW), abs=1e-9)


def test_trees_as_arrays_have_their_models_log_odds() -> None:
    for n_classes in (2, 3):
        y = rings(X) % n_classes
        _, mean = cross_fit_classes(X, y, n_classes, None, lambda: None)
        from_trees = mean.predict(NEW)
        assert from_trees.shape == (200, n_classes)
        assert from_trees.sum(1) == pytest.approx(0, abs=1e-9)
        agrees = from_trees.argmax(1) == (rings(NEW) % n_classes)
        assert agrees.mean() > 0.8


def test_a_model_of_the_users_own() -> None:
    forest = RandomForestClassifier(10, random_state=0)
    fitted = GPNClassifier(mean=forest, random_state=0).fit(X, rings(X))
    assert fitted.score(NEW, rings(NEW)) > 0.85
    again = pickle.loads(pickle.dumps(fitted))
    assert again.predict_proba(NEW) == pytest.approx(fitted.predict_proba(NEW))


def test_a_model_of_the_users_own_is_not_saved_as_numbers(tmp_path: Path) -> None:
    fitted = GPNClassifier(random_state=0, mean=None).fit(X, rings(X))
    fitted.mean_ = ClassMean(3, models=(LogisticRegression().fit(X, rings(X)),))
    with pytest.raises(TypeError, match="LogisticRegression; use pickle"):
        fitted.save(tmp_path / "model.gpn")


@pytest.mark.parametrize("mean", ["trees", RandomForestClassifier, 3])
def test_a_mean_that_is_none_is_refused(mean: Any) -> None:
    with pytest.raises(ValueError, match="mean must be 'auto', None or a scikit-learn classifier"):
        GPNClassifier(mean=mean).fit(X, rings(X))


def test_unseen_classes_of_a_fold_are_improbable() -> None:
    known = LogisticRegression().fit(X, (X[:, 0] > 0).astype(int))
    odds = log_odds(known, NEW, 3)
    assert (odds[:, 2] < odds[:, :2].max(1)).all()


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_a_handful_of_labels(n: int) -> None:
    y = np.arange(n) % 2
    fitted = GPNClassifier(random_state=0).fit(X[:n], y)
    p = fitted.predict_proba(NEW)
    assert np.isfinite(p).all()
    assert (p.max(1) < 1).all()


def test_a_class_with_one_label() -> None:
    y = np.array(["often"] * 40 + ["seldom"] * 20 + ["once"])
    fitted = GPNClassifier(random_state=0).fit(X[:61], y)
    assert fitted.predict_proba(NEW).shape == (200, 3)
    assert (fitted.predict_proba(NEW)[:, 1] > 0).all()


def test_many_classes_and_many_columns() -> None:
    centres = RNG.normal(size=(60, 5))
    y = np.repeat(np.arange(60), 3)
    x = centres[y] + 0.15 * RNG.normal(size=(180, 5))
    new = centres + 0.15 * RNG.normal(size=(60, 5))
    assert GPNClassifier(random_state=0).fit(x, y).score(new, np.arange(60)) > 0.7
    wide = RNG.normal(size=(60, 300))
    wide[:, 0] += 6 * (np.arange(60) % 2)
    assert GPNClassifier(random_state=0).fit(wide, np.arange(60) % 2).score(wide, y[:60] % 2) >= 0.4


def test_rare_classes_have_their_frequency() -> None:
    x = RNG.normal(size=(600, 3))
    y = (RNG.uniform(size=600) < 0.02).astype(int)
    p = GPNClassifier(random_state=0).fit(x, y).predict_proba(RNG.normal(size=(500, 3)))[:, 1]
    assert p.mean() == pytest.approx(y.mean(), abs=0.02)
    assert p.max() < 0.4


def test_constant_columns_and_copies() -> None:
    x = np.column_stack([X, np.ones(len(X))])
    doubled, y = np.repeat(x, 2, axis=0), np.repeat(rings(X), 2)
    fitted = GPNClassifier(random_state=0).fit(doubled, y)
    assert fitted.score(np.column_stack([NEW, np.ones(200)]), rings(NEW)) > 0.85
    for train, test in splits(torch.tensor(doubled), torch.tensor(y)):
        both = {tuple(row) for row in doubled[train]} & {tuple(row) for row in doubled[test]}
        assert not both


def test_weights_repeat_rows() -> None:
    weight = np.where(np.arange(60) < 30, 3, 1)
    weighted = GPNClassifier(random_state=0).fit(X[:60], rings(X[:60]), sample_weight=weight)
    repeated = GPNClassifier(random_state=0).fit(
        np.repeat(X[:60], weight, axis=0), np.repeat(rings(X[:60]), weight)
    )
    assert weighted.predict_proba(NEW) == pytest.approx(repeated.predict_proba(NEW), abs=1e-6)


def test_labels_that_say_nothing_leave_their_frequencies() -> None:
    y = RNG.integers(0, 3, 150)
    p = GPNClassifier(random_state=0).fit(X, y).predict_proba(NEW)
    assert p.mean(0) == pytest.approx(np.bincount(y) / 150, abs=0.08)
    assert log_loss(RNG.integers(0, 3, 200), p) < 1.25


def test_many_labels_have_landmarks() -> None:
    x = RNG.uniform(-2, 2, (2100, 2))
    fitted = GPNClassifier(random_state=0, mean=None).fit(x, rings(x))
    assert len(fitted.posterior_.generator.landmarks) == 1000  # type: ignore[attr-defined]
    assert log_loss(rings(NEW), fitted.predict_proba(NEW)) < 0.15
    assert fitted.is_ood(NEW).mean() < 0.2


def test_a_set_is_never_empty(model: GPNClassifier) -> None:
    rows = RNG.uniform(-2, 2, (400, 2))
    model.calibrate(rows, rings(rows))
    for level in (0.3, 0.6, 0.9):
        sets = model.predict_set(NEW, level)
        assert sets.any(1).all()
        assert sets[np.arange(200), rings(NEW)].mean() > level - 0.08


def test_a_given_prior_is_conditioned_as_it_is() -> None:
    prior = ARDPrior(column_scales=(1.0, 1.0), height=20.0)
    fitted = GPNClassifier(GPNConfig(prior=prior), random_state=0).fit(X, rings(X))
    assert fitted.posterior_.config.prior == prior
    assert fitted.posterior_.config.temperature == 1.0


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_the_likelihood_is_about_that_of_logistic_regression(load: Any) -> None:
    """Of three splits with a hundred labels each."""
    x, y = load(return_X_y=True)
    ours, theirs = 0.0, 0.0
    for seed in range(3):
        train, test, y_train, y_test = train_test_split(
            x, y, train_size=100, stratify=y, random_state=seed
        )
        linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(train, y_train)
        fitted = GPNClassifier(random_state=0).fit(train, y_train)
        ours += log_loss(y_test, fitted.predict_proba(test)) / 3
        theirs += log_loss(y_test, linear.predict_proba(test)) / 3
    assert ours < theirs + 0.03


def test_copies_of_rows_tell_no_classes() -> None:
    """A mean model that has seen a copy of a row knows its class: weights repeat rows."""
    rng = np.random.default_rng(0)
    x, y, new = rng.normal(size=(60, 3)), rng.integers(0, 2, 60), rng.normal(size=(200, 3))
    model = GPNClassifier(random_state=0).fit(x, y, sample_weight=np.full(60, 3.0))
    assert model.predict_proba(new).max(1).mean() < 0.75


def test_equal_rows_have_the_shares_of_their_classes() -> None:
    model = GPNClassifier(random_state=0).fit(np.ones((30, 2)), np.arange(30) % 2)
    np.testing.assert_allclose(model.predict_proba(np.ones((1, 2))), 0.5, atol=0.05)
