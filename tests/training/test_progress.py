"""A progress bar appears after a second, even if the first step takes longer than that."""

import sys
from types import ModuleType

import pytest

from gpn.training import progress
from gpn.training.progress import progress_bar


@pytest.mark.parametrize(("after", "drawn"), [(0.0, False), (progress.QUIET_SECONDS + 1, True)])
def test_the_bar_is_drawn_after_a_second(
    after: float, drawn: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    clock = iter([0.0, after])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress_bar("GPN", show=True) as on_progress:
        on_progress(40, 200, {"data": 0.5})
    assert ("40/200" in capsys.readouterr().err) == drawn


class Cell:
    """What a notebook's cell shows: texts, each of which may be written again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[str] = []
        module = ModuleType("IPython.display")
        module.display = self.display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
        monkeypatch.setitem(sys.modules, "IPython.display", module)
        monkeypatch.setattr("rich.console._is_jupyter", lambda: True)

    def display(self, content: dict[str, str], *, raw: bool, display_id: bool) -> "Cell":
        assert raw
        assert display_id
        self.texts.append(content["text/plain"])
        return self

    def update(self, content: dict[str, str], *, raw: bool) -> None:
        self.texts[-1] = content["text/plain"]


def test_a_notebook_gets_its_bar_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with progress_bar("fit") as on_progress:
        assert on_progress is progress.no_progress
    Cell(monkeypatch)
    with progress_bar("fit") as on_progress:
        assert on_progress is not progress.no_progress
    with progress_bar("fit", show=False) as on_progress:
        assert on_progress is progress.no_progress


def test_a_notebook_needs_no_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, not before a second is over, and at the end how long it took."""
    cell, now = Cell(monkeypatch), 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress_bar("GPN") as on_progress:
        on_progress(1, 8, {})
        assert cell.texts == []
        now = 102.0
        on_progress(2, 8, {"data": 0.5})
        assert cell.texts == ["GPN ██████░░░░░░░░░░░░░░░░░░ 2/8  data 0.5  6 s left"]
        on_progress(3, 8, {})
        assert "2/8" in cell.texts[0], "not more often than the eye can follow"
        now = 104.0
    assert cell.texts == ["GPN: 4.0 s"]


def test_a_short_run_leaves_nothing_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(monkeypatch)
    with progress_bar("GPN") as on_progress:
        on_progress(1, 1, {})
    assert cell.texts == []
