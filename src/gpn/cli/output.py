"""What a command prints: results on stdout, as a table or as JSON; the rest on stderr."""

import json
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

console = Console(stderr=True, highlight=False)

QUIET_SECONDS = 2.0  # before the first line of progress
MAX_GAP_SECONDS = 60.0
STOPPED = "stopped by Ctrl-C before it was done; files that were there are as they were."
INTERRUPTED = 130  # 128 and the number of the signal, as shells count


@contextmanager
def errors(*, as_json: bool) -> Iterator[None]:
    """Print an error of the data or of a file as one line (or one JSON object), with status 1.

    Ctrl-C is such a line with status 130. Warnings are one line each, and each comes once.
    """
    try:
        with _plain_warnings():
            yield
    except (ValueError, TypeError, OSError, ArithmeticError, ImportError, MemoryError) as error:
        message = str(error) or type(error).__name__
        print(json.dumps({"error": message}) if as_json else f"error: {message}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        print(json.dumps({"error": STOPPED}) if as_json else f"error: {STOPPED}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _plain_warnings() -> Iterator[None]:
    from gpn.core.warnings import GPNWarning

    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            print(f"warning: {text}", file=sys.stderr)
        shown.add(text)

    with warnings.catch_warnings():
        for category in (GPNWarning, FutureWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield


def counted(count: int, noun: str) -> str:
    """ "1 row", "2,000 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """ "4.7 %"."""
    return f"{100 * share:.1f} %"


def print_note(text: str, *, as_json: bool) -> None:
    """Print a line for a person to read; a program that reads JSON gets none."""
    if not as_json:
        console.print(text, markup=False, soft_wrap=True)


def print_result(values: dict[str, Any], *, as_json: bool) -> None:
    """Print what a command found out, by name."""
    if as_json:
        print(json.dumps(values))
        return
    table = Table(show_header=False, box=None)
    for name, value in values.items():
        if value != []:
            table.add_row(Text(name), Text(_shown(value)))  # a name such as "[/b]" is no markup
    Console(highlight=False).print(table)


def print_rows(heads: list[str], rows: list[list[str]]) -> None:
    """Print a table with a head."""
    table = Table(box=None)
    for head in heads:
        table.add_column(Text(head))
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.4f}" if isinstance(value, float) else str(value)


@contextmanager
def heartbeat(doing: str, *, as_json: bool) -> Iterator[None]:
    """Lines such as "fitting: 10 s", after two seconds and ever less often; none on a terminal."""
    if as_json or console.is_terminal:
        yield
        return
    over, started = threading.Event(), time.monotonic()

    def beat() -> None:
        gap = QUIET_SECONDS
        while not over.wait(gap):
            print(f"{doing}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            gap = min(2 * gap, MAX_GAP_SECONDS)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def row_counter(*, as_json: bool = False) -> Iterator[Callable[[int], None]]:
    """A function that shows how many rows are done, and how many a second; on a pipe, every few
    seconds."""
    started = last = time.monotonic()

    def progress(count: int) -> str:
        rate = count / max(time.monotonic() - started, 1e-9)
        return f"{count:,} rows, {rate:,.0f} a second"

    if console.is_terminal:
        with console.status("0 rows") as shown:
            yield lambda count: shown.update(progress(count))
        return

    def on_rows(count: int) -> None:
        nonlocal last
        if not as_json and time.monotonic() - last > QUIET_SECONDS:
            print(progress(count), file=sys.stderr, flush=True)
            last = time.monotonic()

    yield on_rows
