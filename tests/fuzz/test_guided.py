"""Guided fuzzing without atheris: what it keeps, and the status that it ends with."""

from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import guided


def test_the_first_input_of_each_outcome_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guided, "FOUND", tmp_path / "found")
    seen: set[str] = set()
    for content, outcome in (
        (b"a", "unexpected: KeyError at line 12"),
        (b"b", "unexpected: KeyError at line 13"),
        (b"c", "hang: somewhere"),
    ):
        guided._keep("model file", content, outcome, seen)
    kept = sorted(path.read_bytes() for path in (tmp_path / "found").glob("model-file-*.bin"))
    assert kept == [b"a", b"c"]
    texts = {path.read_text() for path in (tmp_path / "found").glob("*.txt")}
    assert texts == {"unexpected: KeyError at line 12", "hang: somewhere"}


@pytest.mark.parametrize(
    ("wrong", "status", "wanted"), [([], 0, 0), (["x.txt"], 0, 1), ([], 77, 1)]
)
def test_what_was_found_and_a_crash_are_a_status(
    monkeypatch: pytest.MonkeyPatch, wrong: list[str], status: int, wanted: int
) -> None:
    asked: list[Any] = []

    def in_child(*arguments: Any) -> dict[str, Any]:
        asked.append(arguments)
        return {"inputs": 7, "wrong": wrong, "status": status}

    monkeypatch.setattr(guided, "_names", lambda group: [f"{group} 1", f"{group} 2"])
    monkeypatch.setattr(guided, "_in_child", in_child)
    assert guided.main(2, ("images", "pools")) == wanted
    assert [each[2] for each in asked] == [30] * 4, "they share the time equally"


def test_numbers_are_read_from_what_libfuzzer_prints() -> None:
    text = "#9 INITED cov: 12\n#10 NEW    cov: 30\nstat::number_of_executed_units: 4057\n"
    found = guided.RUNS.search(text)
    assert found is not None
    assert found[1] == "4057"
    assert guided.COVERED.findall(text) == ["12", "30"]
