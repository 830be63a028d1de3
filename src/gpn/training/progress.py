"""Progress for people: a bar with the loss terms and the time left, once a run takes a while."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

OnProgress = Callable[[int, int, dict[str, float]], None]  # step, steps, loss terms
QUIET_SECONDS = 1.0


def no_progress(step: int, steps: int, values: dict[str, float]) -> None:
    """Show nothing."""


@contextmanager
def progress_bar(label: str, *, show: bool | None = None) -> Iterator[OnProgress]:
    """An `OnProgress` that draws a bar after a second; None: on a terminal or in a notebook.

    In a notebook rich draws the bar in the cell, so it must not be written to stderr.
    """
    console = Console()
    in_notebook = console.is_jupyter
    if not (sys.stderr.isatty() or in_notebook if show is None else show):
        yield no_progress
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}  {task.fields[terms]}"),
        TimeRemainingColumn(),
        console=console if in_notebook else Console(stderr=True),
        transient=True,
    )
    row, started = bar.add_task(label, total=None, terms=""), time.monotonic()

    def on_progress(step: int, steps: int, values: dict[str, float]) -> None:
        terms = "  ".join(f"{name} {value:.3g}" for name, value in values.items())
        bar.update(row, completed=step, total=steps, terms=terms)
        if time.monotonic() - started > QUIET_SECONDS:
            bar.start()

    try:
        yield on_progress
    finally:
        bar.stop()
