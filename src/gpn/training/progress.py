"""Progress for people: a bar with the loss terms and the time left, once a run takes a while."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from gpn.training.loop import Report

QUIET_SECONDS = 1.0


@contextmanager
def progress_bar(label: str, *, show: bool | None = None) -> Iterator[Report]:
    """A `Report` that draws a bar on stderr after a second; None: only on a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda step, steps, values: None
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}  {task.fields[terms]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    row, started = bar.add_task(label, total=None, terms=""), time.monotonic()

    def report(step: int, steps: int, values: dict[str, float]) -> None:
        terms = "  ".join(f"{name} {value:.3g}" for name, value in values.items())
        bar.update(row, completed=step, total=steps, terms=terms)
        if time.monotonic() - started > QUIET_SECONDS:
            bar.start()

    try:
        yield report
    finally:
        bar.stop()
