"""Progress for people: a bar with the loss terms and the time left, once a run takes a while."""

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

OnProgress = Callable[[int, int, dict[str, float]], None]  # step, steps, loss terms
QUIET_SECONDS = 1.0
NOTEBOOK_SECONDS, NOTEBOOK_WIDTH = 0.3, 24  # between two pictures of the bar, and its characters


def no_progress(step: int, steps: int, values: dict[str, float]) -> None:
    """Show nothing."""


def progress_bar(label: str, *, show: bool | None = None) -> AbstractContextManager[OnProgress]:
    """An `OnProgress` that draws a bar after a second; None: on a terminal or in a notebook."""
    in_notebook = Console().is_jupyter
    if not (sys.stderr.isatty() or in_notebook if show is None else show):
        return nullcontext(no_progress)
    return _notebook_bar(label) if in_notebook else _terminal_bar(label)


@contextmanager
def _terminal_bar(label: str) -> Iterator[OnProgress]:
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}  {task.fields[terms]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    row, started = bar.add_task(label, total=None, terms=""), time.monotonic()

    def on_progress(step: int, steps: int, values: dict[str, float]) -> None:
        bar.update(row, completed=step, total=steps, terms=_terms(values))
        if time.monotonic() - started > QUIET_SECONDS:
            bar.start()

    try:
        yield on_progress
    finally:
        bar.stop()


@contextmanager
def _notebook_bar(label: str) -> Iterator[OnProgress]:
    """A line of the cell's output that is written again and again; rich would need ipywidgets."""
    display = importlib.import_module("IPython.display").display
    started = shown_at = time.monotonic()
    line: Any = None  # IPython's handle of the output, once there is one

    def write(text: str) -> None:
        nonlocal line
        content = {"text/plain": text}
        if line is None:
            line = display(content, raw=True, display_id=True)
        else:
            line.update(content, raw=True)

    def on_progress(step: int, steps: int, values: dict[str, float]) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - started < QUIET_SECONDS or now - shown_at < NOTEBOOK_SECONDS:
            return
        shown_at, full = now, NOTEBOOK_WIDTH * step // max(1, steps)
        left = (now - started) * (steps - step) / max(1, step)
        bar = "█" * full + "░" * (NOTEBOOK_WIDTH - full)
        write(f"{label} {bar} {step}/{steps}  {_terms(values)}  {left:.0f} s left")

    try:
        yield on_progress
    finally:
        if line is not None:
            write(f"{label}: {time.monotonic() - started:.1f} s")


def _terms(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.3g}" for name, value in values.items())
