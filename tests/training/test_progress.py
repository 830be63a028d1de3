"""A progress bar appears after a second, even if the first step takes longer than that."""

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


@pytest.mark.parametrize("in_notebook", [True, False])
def test_a_notebook_gets_its_bar_without_being_asked(
    in_notebook: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: in_notebook)
    with progress_bar("fit") as on_progress:
        assert (on_progress is not progress.no_progress) == in_notebook
