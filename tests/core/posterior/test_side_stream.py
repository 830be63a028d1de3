"""A look beside the work, with streams that only note what is asked of them."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpn.core.posterior import side_stream as streams


@pytest.mark.usefixtures("as_users_have_it")
def test_a_look_waits_for_what_came_before_and_for_nothing_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event is recorded when the look is announced, not when it is taken."""
    noted: list[str] = []
    main = SimpleNamespace(record_event=lambda: noted.append("event") or "event")
    side = SimpleNamespace(wait_event=lambda event: noted.append(f"wait for {event}"))

    @contextmanager
    def entered(stream: Any) -> Any:
        noted.append("in" if stream is side else "elsewhere")
        yield
        noted.append("out")

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: side)
    monkeypatch.setattr(torch.cuda, "stream", entered)
    rows = SimpleNamespace(device=torch.device("cuda"), numel=lambda: streams.WORTH_A_STREAM)
    look = streams.beside(rows)
    noted.append("work")
    with look():
        noted.append("look")
    assert noted == ["event", "work", "wait for event", "in", "look", "out"]


def test_a_cpu_and_few_rows_need_no_stream() -> None:
    with streams.beside(torch.zeros(3, 2))():
        pass
