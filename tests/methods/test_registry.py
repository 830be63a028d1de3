"""Methods by name: building, registering, and finding the method of a posterior."""

import subprocess
import sys
from typing import Any

import pytest

import gpn
from gpn.methods import registry
from gpn.methods.dropout import Dropout, DropoutConfig, DropoutPosterior
from gpn.methods.ensemble import Ensemble


def test_all_names_are_listed() -> None:
    assert gpn.methods.names() == (
        *("gpn", "gpn-paper", "dropout", "dkl", "sngp"),
        *("ensemble-pr", "ensemble-or", "ensemble", "ensemble-plus", "epinet"),
        *("gp", "gpc", "mcmc"),
    )


def test_get_builds_the_default_configuration() -> None:
    method = gpn.methods.get("dropout")
    assert isinstance(method, Dropout)
    assert isinstance(method, gpn.methods.Method)
    assert method.config == DropoutConfig()


def test_get_changes_settings() -> None:
    method: Any = gpn.methods.get("dropout", rate=0.3)
    assert method.config == DropoutConfig(rate=0.3)


@pytest.mark.parametrize(
    ("name", "regularise"),
    [
        ("ensemble-pr", "parameters"),
        ("ensemble-or", "outputs"),
        ("ensemble", "none"),
        ("ensemble-plus", "prior"),
    ],
)
def test_the_four_ensembles(name: str, regularise: str) -> None:
    method = gpn.methods.get(name)
    assert isinstance(method, Ensemble)
    assert method.config.regularise == regularise


def test_gpn_paper_is_the_preset() -> None:
    method: Any = gpn.methods.get("gpn-paper", beta=0.5)
    assert method.config == gpn.GPNConfig.paper(beta=0.5)


def test_an_unknown_name_lists_all_names_and_suggests_one() -> None:
    with pytest.raises(ValueError, match=r"one of gpn, .*mcmc, got 'snpg'; did you mean 'sngp'\?"):
        gpn.methods.get("snpg")


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(ValueError, match="must be new, got 'gpn'"):
        gpn.methods.register("gpn", gpn.GPN)


def test_a_missing_extra_names_the_package_to_install() -> None:
    code = "import sys; sys.modules['gpytorch'] = None; import gpn; gpn.methods.get('dkl')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: the method 'dkl' needs gpytorch, which is not installed")
    assert last.endswith("try pip install 'gpn[gp]'.")


def test_importing_gpn_does_not_import_the_extras() -> None:
    code = "import sys, gpn; sys.exit(any(m in sys.modules for m in ('gpytorch', 'matplotlib')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))


def build(**changes: Any) -> Dropout:
    return Dropout(DropoutConfig(**changes))


class MyPosterior(DropoutPosterior):
    pass


@pytest.fixture
def posteriors(line: gpn.Task) -> tuple[DropoutPosterior, MyPosterior]:
    config = DropoutConfig(train=gpn.TrainConfig(steps=1))
    fitted = Dropout(config).fit(line, rng=0)
    return fitted, MyPosterior(fitted.network, fitted.signature, config)


def test_a_posterior_belongs_to_the_method_of_its_class(
    posteriors: tuple[DropoutPosterior, MyPosterior],
) -> None:
    assert [registry.name_of(posterior) for posterior in posteriors] == ["dropout", "dropout"]


@pytest.mark.usefixtures("_own_registry")
def test_a_registered_class_comes_before_its_base_class(
    posteriors: tuple[DropoutPosterior, MyPosterior],
) -> None:
    gpn.methods.register("my-dropout", build, posterior=MyPosterior)
    assert [registry.name_of(posterior) for posterior in posteriors] == ["dropout", "my-dropout"]
    assert registry.posterior_of("my-dropout") is MyPosterior


def test_presets_share_the_shortest_name(line: gpn.Task) -> None:
    train = gpn.TrainConfig(steps=1)
    method = gpn.methods.get("ensemble-pr", n_members=2, train=train)
    assert registry.name_of(method.fit(line, rng=0)) == "ensemble"


def test_name_of_imports_no_other_method() -> None:
    code = (
        "import sys, torch, gpn; from gpn.methods import registry; x = torch.ones(2, 1);"
        "name = registry.name_of(gpn.methods.get('gp').fit(gpn.Task(x, x)));"
        "sys.exit(name != 'gp' or 'gpn.methods.mcmc' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.usefixtures("_own_registry")
def test_a_method_registered_without_a_posterior_cannot_be_loaded() -> None:
    gpn.methods.register("mine", build)
    assert isinstance(gpn.methods.get("mine", rate=0.2), Dropout)
    with pytest.raises(TypeError, match="must name its posterior"):
        registry.posterior_of("mine")
