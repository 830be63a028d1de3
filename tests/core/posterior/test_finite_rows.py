"""The check of rows, with CUDA streams that only record what is asked of them."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpn.core.posterior import finite_rows


@pytest.mark.usefixtures("as_users_have_it")
def test_a_deferred_check_waits_for_the_rows_and_not_for_later_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event is recorded when the check is made, not when it is called."""
    log: list[str] = []
    main = SimpleNamespace(record_event=lambda: log.append("event") or "event")
    side = SimpleNamespace(wait_event=lambda event: log.append(f"wait for {event}"))

    @contextmanager
    def entered(stream: Any) -> Any:
        log.append("in" if stream is side else "elsewhere")
        yield
        log.append("out")

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: side)
    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(finite_rows, "check_rows", lambda rows: log.append("check"))
    size = finite_rows.MIN_NUMBERS_FOR_STREAM
    check = finite_rows.deferred_check(
        SimpleNamespace(device=torch.device("cuda"), numel=lambda: size)
    )
    log.append("work")
    check()
    assert log == ["event", "work", "wait for event", "in", "check", "out"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_are_named(bad: float) -> None:
    rows = torch.zeros(4, 3, 2).transpose(1, 2)
    finite_rows.deferred_check(rows)()
    rows[2, 1, 0] = bad
    with pytest.raises(ValueError, match=r"x must be finite, .* 1 of 4 rows \(first: row 2\)"):
        finite_rows.deferred_check(rows)()


def test_huge_numbers_whose_sum_overflows_are_finite() -> None:
    finite_rows.check_rows(torch.full((3, 2), 3e38))
