"""What an estimator was made with: in files, in clones and searches, and what is refused."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import gpn
from gpn import GPNClassifier, GPNConfig, GPNRegressor, MLPTrunk, TrainConfig
from gpn.saving.validation import ModelError
from tests.estimators.small import SMALL
from tests.estimators.test_estimators import POOL, WORDS, X, Y
from tests.saving.test_format import rewrite

OPEN = GPNConfig(n_axes=20, trunk=MLPTrunk(widths=(8,)), train=TrainConfig(steps=5))


def test_a_loaded_model_is_made_with_what_the_saved_one_was(tmp_path: Path) -> None:
    """Its next fit is the same, number for number; what was left to the data is so again."""
    model = GPNRegressor(OPEN, random_state=3, device="cpu").fit(X[:30], Y[:30], POOL)
    model.save(tmp_path / "m.gpn")
    again = gpn.load(tmp_path / "m.gpn")
    assert again.get_params() == model.get_params()
    assert (again.config.anchor, again.config.noise_std) == ("auto", None)
    assert again.posterior_.config == model.posterior_.config
    refitted = clone(again).fit(X[:30], Y[:30], POOL)
    np.testing.assert_array_equal(refitted.predict(X), model.predict(X))


def test_gpns_own_trunks_and_methods_by_name_keep_theirs_too(tmp_path: Path) -> None:
    own = GPNClassifier(SMALL, module=MLPTrunk(widths=(8,)), random_state=np.int64(1))
    named = gpn.PosteriorRegressor("gp", random_state=np.random.RandomState(0))
    for model, y in ((own, WORDS), (named, Y)):
        model.fit(X[:60], y[:60], POOL).set_params(verbose=True).save(tmp_path / "m.gpn")
        options = {**model.get_params(), "random_state": None if model is named else 1}
        assert gpn.load(tmp_path / "m.gpn").get_params() == options


def test_older_files_load_with_what_was_found(tmp_path: Path) -> None:
    model = GPNRegressor(OPEN, random_state=3).fit(X[:30], Y[:30], POOL)
    facts, path = facts_of(model, tmp_path), tmp_path / "m.gpn"
    del facts["given"]
    rewrite(path, estimator=json.dumps(facts))
    again = gpn.load(path)
    assert again.config == model.posterior_.config
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def facts_of(model: Any, folder: Path) -> Any:
    """The estimator's section of a model file."""
    from safetensors import safe_open

    model.save(folder / "m.gpn")
    with safe_open(folder / "m.gpn", framework="pt") as file:
        return json.loads(file.metadata()["estimator"])


@pytest.mark.parametrize(
    "change",
    [
        {"random_state": -1},
        {"random_state": "0"},
        {"device": 3},
        {"verbose": None},
        {"module": {"class": "TrainConfig", "settings": {}}},
        {"config": {"class": "os", "settings": {}}},
        {"more": 1},
    ],
)
def test_damaged_options_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    facts = facts_of(GPNRegressor(SMALL, random_state=0).fit(X[:20], Y[:20], POOL), tmp_path)
    facts["given"] |= change
    rewrite(tmp_path / "m.gpn", estimator=json.dumps(facts))
    with pytest.raises(ModelError, match="estimator must be complete"):
        gpn.load(tmp_path / "m.gpn")


def test_save_takes_models_as_well_as_posteriors(tmp_path: Path) -> None:
    model = GPNRegressor(SMALL, random_state=0).fit(X, Y, POOL)
    gpn.save(model, tmp_path / "m.gpn")
    again = gpn.load(tmp_path / "m.gpn")
    assert isinstance(again, GPNRegressor)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_model_with_your_own_module_is_pickled(tmp_path: Path) -> None:
    model = GPNRegressor(SMALL, module=nn.Linear(2, 4), random_state=0).fit(X, Y, POOL)
    with pytest.raises(
        TypeError, match=r"use pickle or joblib for a model with your own nn\.Module"
    ):
        model.save(tmp_path / "m.gpn")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_configuration_is_no_dictionary() -> None:
    model: Any = GPNRegressor({"beta": 1.0})  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"config must be a gpn.GPNConfig.*got dict; try GPNConfig\("
    ):
        model.fit(X, Y, POOL)
    assert model.get_params() == clone(model).get_params()


def test_settings_of_a_configuration_have_names_of_their_own() -> None:
    model = GPNRegressor(SMALL, random_state=0)
    assert model.get_params()["config__train__steps"] == 2
    assert set(model.get_params(deep=False)) == {
        *("config", "mean", "module", "device", "random_state", "verbose")
    }
    model.set_params(config__beta=0.5, config__train__steps=3, random_state=1)
    train = TrainConfig(steps=3, label_batch=16, pool_batch=16)
    assert model.config == SMALL.replace(beta=0.5, train=train)
    assert SMALL.beta == 0.03
    assert model.random_state == 1
    other = GPNClassifier().set_params(config__beta=2.0)
    assert other.config == GPNConfig(beta=2.0)
    both = model.set_params(config=OPEN, config__beta=0.7).config
    assert both == OPEN.replace(beta=0.7), "a configuration first, then what is changed in it"
    with pytest.raises(ValueError, match="got 'betta'; did you mean 'beta'"):
        other.set_params(config__beta=0.1, config__betta=1.0)
    assert other.config == GPNConfig(beta=2.0), "all or nothing"
    other.set_params(config__train__steps=7, config__train=TrainConfig())
    assert other.config.train == TrainConfig(steps=7), "the whole before its parts"
    other = GPNClassifier()
    with pytest.raises(ValueError, match="train must be a configuration before its steps can be"):
        other.set_params(config__train__steps=1)


def test_a_search_reaches_into_the_configuration() -> None:
    pipe = make_pipeline(StandardScaler(), GPNRegressor(SMALL, random_state=0))
    pipe.set_params(gpnregressor__config__beta=2.0)
    assert (pipe[-1].config.beta, SMALL.beta) == (2.0, 0.03)
    search = GridSearchCV(
        GPNRegressor(SMALL, random_state=0), {"config__train__steps": [1, 60]}, cv=2
    )
    search.fit(X, Y, X_unlabeled=POOL)
    assert search.best_params_ == {"config__train__steps": 60}
    assert search.best_estimator_.posterior_.config.train.steps == 60


def test_settings_that_are_set_to_what_they_are_change_nothing() -> None:
    model = gpn.GPNRegressor(random_state=0)
    before = model.get_params()
    assert model.set_params(**before).get_params() == before
    assert model.config is None
