"""Configurations: frozen, compared by value, and strict about their keys."""

import copy
import dataclasses
import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import gpn
from gpn.core.config import Config, require_counts
from gpn.methods.gp import GPConfig
from gpn.saving.encoding import decode_config, encode

EVERY = (gpn.GPNConfig, gpn.TrainConfig, gpn.MLPPrior, gpn.ConvPrior, gpn.MLPTrunk, gpn.ConvTrunk)


@pytest.mark.parametrize(
    ("config", "wrong", "right"),
    [
        (gpn.GPNConfig, "n_anchor", "n_anchors"),
        (gpn.GPNConfig, "codedim", "code_dim"),
        (gpn.TrainConfig, "optimizer", "optimiser"),
        (gpn.MLPPrior, "prior_variances", "prior_variance"),
        (GPConfig, "noise_sdt", "noise_std"),
    ],
)
def test_an_unknown_key_suggests_the_nearest(config: type[Config], wrong: str, right: str) -> None:
    with pytest.raises(TypeError, match=rf"{config.__name__} .*got '{wrong}'; .*mean '{right}'\?"):
        config(**{wrong: 1})
    with pytest.raises(TypeError, match=rf"did you mean '{right}'\?"):
        config().replace(**{wrong: 1})


def test_a_strange_key_lists_every_key() -> None:
    keys = ", ".join(field.name for field in dataclasses.fields(gpn.TrainConfig))
    with pytest.raises(TypeError, match=rf"got 'zzz'; its keys are {keys}\."):
        gpn.TrainConfig(zzz=1)


@pytest.mark.parametrize("config", EVERY)
def test_a_configuration_cannot_be_changed(config: type[Config]) -> None:
    made = config()
    name = dataclasses.fields(config)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, name, None)


@pytest.mark.parametrize("config", EVERY)
def test_a_configuration_is_its_values(config: type[Config]) -> None:
    made = config()
    assert made == config()
    assert made.replace() == made
    assert copy.deepcopy(made) == made
    assert pickle.loads(pickle.dumps(made)) == made


def test_replacing_changes_one_thing_and_leaves_the_original() -> None:
    base = gpn.GPNConfig()
    changed = base.replace(beta=0.7)
    differing = {
        field.name
        for field in dataclasses.fields(base)
        if getattr(base, field.name) != getattr(changed, field.name)
    }
    assert differing == {"beta"}
    assert base == gpn.GPNConfig()


def test_keys_only() -> None:
    with pytest.raises(TypeError, match="positional"):
        gpn.TrainConfig(100)  # type: ignore[misc]


def test_the_paper_is_a_difference_from_the_default() -> None:
    paper = gpn.GPNConfig.paper(beta=0.3)
    assert (paper.n_anchors, paper.code_dim, paper.beta) == (100, 10, 0.3)
    assert isinstance(paper.prior, gpn.MLPPrior)
    assert paper.prior.prior_variance == (40.0, 10.0)
    assert paper.prior.activation == "tanh"


BAD: dict[str, tuple[type[Config], dict[str, Any], str]] = {
    "steps": (gpn.TrainConfig, {"steps": 0}, r"steps must be a whole number .*got 0"),
    "device": (gpn.TrainConfig, {"device": "gpu"}, r"'cuda' or 'cuda:1', got 'gpu'"),
    "NaN": (
        gpn.TrainConfig,
        {"learning_rate": float("nan")},
        r"learning_rate must be positive, got nan",
    ),
    "dtype": (gpn.TrainConfig, {"dtype": "float46"}, r"got 'float46'; .*mean 'float64'\?"),
    "optimiser": (gpn.TrainConfig, {"optimiser": "zzz"}, r"one of adam, sgd, muon, got 'zzz'\."),
    "schedule": (gpn.TrainConfig, {"schedule": "onecycle"}, r"did you mean 'one-cycle'\?"),
    "beta": (gpn.GPNConfig, {"beta": -1.0}, r"beta must be positive, or None .*got -1\.0"),
    "pairing": (gpn.GPNConfig, {"pairing": "all"}, r"one of every, one, got 'all'"),
    "code_noise": (gpn.GPNConfig, {"code_noise": -0.1}, r"must not be negative, got -0\.1"),
    "endless noise": (
        gpn.GPNConfig,
        {"noise_std": 10**400},
        r"noise_std must be positive, .* at most 1e\+100, got 1000",
    ),
    "noise_std": (GPConfig, {"noise_std": 0.0}, r"noise_std must be positive, or None .*got 0\.0"),
    "activation": (gpn.MLPTrunk, {"activation": "rely"}, r"did you mean 'relu'\?"),
    "widths": (gpn.MLPTrunk, {"widths": ()}, r"at least one hidden layer, got \(\)"),
}


@pytest.mark.parametrize(("config", "settings", "message"), BAD.values(), ids=BAD.keys())
def test_bad_values(config: type[Config], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**settings)


def test_half_a_step_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Loose(Config):
        steps: Any = 1

    for good in (3, np.int64(3)):
        require_counts(Loose(steps=good), "steps")
    with pytest.raises(ValueError, match="whole number"):
        require_counts(Loose(steps=True), "steps")
    with pytest.raises(ValueError, match=r"whole number of at least 1, got 1\.5"):
        require_counts(Loose(steps=1.5), "steps")


@dataclass(frozen=True, kw_only=True)
class Renaming(Config):
    renamed: ClassVar[dict[str, str]] = {"old": "new"}
    new: float = 1.0


def test_an_old_name_still_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="old of Renaming is now called new"):
        assert Renaming(old=2.0) == Renaming(new=2.0)  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="now called new"):
        assert Renaming().replace(old=3.0) == Renaming(new=3.0)
    with pytest.raises(TypeError, match="Renaming must get new once, got its old name old, too"):
        Renaming(old=2.0, new=3.0)  # type: ignore[call-arg]


def test_an_old_name_in_a_file_is_read_in_silence() -> None:
    saved = {"class": "Renaming", "settings": {"old": 2.0}}
    assert decode_config(saved) == Renaming(new=2.0)
    assert encode(Renaming(new=2.0))["settings"] == {"new": 2.0}
    for settings in ({"older": 2.0}, {"renamed": {}}, {"old": "high"}):
        with pytest.raises(ValueError, match="a saved configuration must have"):
            decode_config({"class": "Renaming", "settings": settings})


@pytest.mark.usefixtures("as_users_have_it")
def test_what_is_no_number_is_refused_as_a_bad_number_is() -> None:
    with pytest.raises(ValueError, match=r"beta must be positive, or None .*got 'a'"):
        gpn.GPNConfig(beta="a")
