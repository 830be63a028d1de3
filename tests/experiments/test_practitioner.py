"""The practitioner tables: a run that was stopped resumes, and its table has every split."""

from pathlib import Path
from typing import Any

import pytest

from experiments import harness, practitioner_tables


def test_a_stopped_run_resumes_and_the_table_has_every_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []

    def one(name: str, seed: int) -> tuple[dict[str, float], list[str]]:
        if seed == 2 and len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(seed)
        metrics: dict[str, Any] = dict.fromkeys(("left_out_score", "flagged", "fit_seconds"), 0.5)
        return {"score": 0.8 + 0.1 * seed, "baseline": 0.9, **metrics}, ["a note"]

    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(practitioner_tables, "_measured", one)
    with pytest.raises(KeyboardInterrupt):
        practitioner_tables.run("mpg", [0, 1, 2])
    measured.append(-1)
    practitioner_tables.run("mpg", [0, 1, 2])
    assert measured == [0, 1, -1, 2], "splits that were done are not measured again"
    report = practitioner_tables.report()
    assert "| mpg | hwy | R² | 0.900 ± 0.100 | 0.900 ± 0.000 |" in report
    assert "on 1 of 1 tables" in report
