"""The method in CONTRIBUTING.md ("Add a method in one file") runs as written."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch

import gpn
from gpn.methods import registry
from gpn.saving.format import load, save

SOURCE = Path(__file__).parents[2] / "CONTRIBUTING.md"
X = torch.tensor([[-1.0], [0.0], [0.5], [2.0]], dtype=torch.float64)


def snippet() -> str:
    found = re.search(r"```python\n(.*?)```", SOURCE.read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.fixture
def _line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports the snippet as a file; the registry is restored afterwards."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    path = tmp_path / "line.py"
    path.write_text(snippet())
    spec = importlib.util.spec_from_file_location("line", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.mark.usefixtures("_line")
def test_the_snippet_adds_a_method_that_works_like_the_others(tmp_path: Path) -> None:
    assert "line" in gpn.methods.names()
    task = gpn.Task(X, 2 * X + 1)
    posterior = gpn.methods.get("line", noise_std=0.01).fit(task, rng=0)
    assert posterior.sample(X, 7, rng=0).shape == (7, 4, 1)
    torch.testing.assert_close(posterior.mean(X), 2 * X + 1, atol=0.02, rtol=0)
    save(posterior, tmp_path / "line.gpn")
    torch.testing.assert_close(
        load(tmp_path / "line.gpn").sample(X, 5, rng=1), posterior.sample(X, 5, rng=1)
    )


@pytest.mark.usefixtures("_line")
def test_its_unknown_setting_is_an_error() -> None:
    with pytest.raises(TypeError, match="did you mean 'noise_std'"):
        gpn.methods.get("line", noise_sdt=1.0)
