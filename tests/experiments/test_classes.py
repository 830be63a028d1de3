"""The comparison of classifiers: its files, its table, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest

from experiments import __main__ as command
from experiments import classes, harness


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(classes, "SEEDS", (100,))
    return tmp_path


def test_a_method_has_its_file_and_its_column(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["classes", "--tables-only", "iris", "--methods", "logistic-regression"])
    found = harness.load(folder / "classes" / "iris" / "logistic-regression.json")
    assert found is not None
    assert {"nll/50", "accuracy/200", "fit_seconds/most"} <= found["metrics"].keys()
    assert "| iris | 50 |" in capsys.readouterr().out
    assert (folder / "classes" / "classes.md").exists()


def test_a_report_needs_results(folder: Path) -> None:
    with pytest.raises(SystemExit, match="must have result files"):
        command.main(["classes", "report"])


def test_the_likelihood_is_that_of_the_true_classes() -> None:
    p = np.array([[0.5, 0.5], [1.0, 0.0]])
    assert classes.nll(p, np.array([0, 0])) == pytest.approx(np.log(2) / 2, abs=1e-5)
