"""Every method by name: what is listed is built, what is missing is said in one line."""

import subprocess
import sys
from typing import Any

import pytest

import gpn
from gpn.methods import registry
from gpn.methods.dropout import Dropout, DropoutConfig
from gpn.methods.ensemble import Ensemble


def test_the_names_of_the_design_are_there() -> None:
    assert gpn.methods.names() == (
        *("gpn", "gpn-paper", "dropout", "dkl", "sngp"),
        *("ensemble-pr", "ensemble-or", "ensemble", "gp", "mcmc"),
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
    [("ensemble-pr", "parameters"), ("ensemble-or", "outputs"), ("ensemble", "none")],
)
def test_the_three_ensembles(name: str, regularise: str) -> None:
    method = gpn.methods.get(name)
    assert isinstance(method, Ensemble)
    assert method.config.regularise == regularise


def test_gpn_paper_is_the_preset() -> None:
    method: Any = gpn.methods.get("gpn-paper", beta=0.5)
    assert method.config == gpn.GPNConfig.paper(beta=0.5)


def test_an_unknown_name_lists_the_known_and_guesses() -> None:
    with pytest.raises(ValueError, match=r"one of gpn, .*mcmc, got 'snpg'; did you mean 'sngp'\?"):
        gpn.methods.get("snpg")


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(ValueError, match="must be new, got 'gpn'"):
        gpn.methods.register("gpn", gpn.GPN)


def test_a_missing_extra_says_what_to_install() -> None:
    code = "import sys; sys.modules['gpytorch'] = None; import gpn; gpn.methods.get('dkl')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: the method 'dkl' needs gpytorch, which is not installed")
    assert last.endswith("try pip install 'gpn[gp]'.")


def test_importing_gpn_does_not_import_the_extras() -> None:
    code = "import sys, gpn; sys.exit(any(m in sys.modules for m in ('gpytorch', 'matplotlib')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_registered_method_without_a_posterior_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    gpn.methods.register("mine", lambda **changes: Dropout(DropoutConfig(**changes)))
    assert isinstance(gpn.methods.get("mine", rate=0.2), Dropout)
    with pytest.raises(TypeError, match="must name its posterior"):
        registry.posterior_of("mine")
