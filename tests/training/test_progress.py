"""A bar appears once a fit takes a while, whenever its first report comes."""

import pytest

from gpn.training import progress
from gpn.training.progress import progress_bar


@pytest.mark.parametrize(("after", "drawn"), [(0.0, False), (progress.QUIET_SECONDS + 1, True)])
def test_the_first_report_may_come_late(
    after: float, drawn: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    clock = iter([0.0, after])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress_bar("GPN", show=True) as report:
        report(40, 200, {"data": 0.5})
    assert ("40/200" in capsys.readouterr().err) == drawn
