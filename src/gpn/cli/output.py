"""What a command prints: results on stdout, as a table or as JSON; the rest on stderr."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

console = Console(stderr=True, highlight=False)


@contextmanager
def errors(*, as_json: bool) -> Iterator[None]:
    """Print an error of the data or of a file as one line (or one JSON object), with status 1."""
    try:
        yield
    except (ValueError, TypeError, OSError, ArithmeticError, ImportError, MemoryError) as error:
        message = str(error) or type(error).__name__
        print(json.dumps({"error": message}) if as_json else f"error: {message}", file=sys.stderr)
        raise typer.Exit(1) from None


def print_note(text: str, *, as_json: bool) -> None:
    """Print a line for a person to read; a program that reads JSON gets none."""
    if not as_json:
        console.print(text, markup=False)


def print_result(values: dict[str, Any], *, as_json: bool) -> None:
    """Print what a command found out, by name."""
    if as_json:
        print(json.dumps(values))
        return
    table = Table(show_header=False, box=None)
    for name, value in values.items():
        if value != []:
            table.add_row(name, Text(_shown(value)))  # a name such as "[/b]" is no markup
    Console(highlight=False).print(table)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.4f}" if isinstance(value, float) else str(value)


@contextmanager
def row_counter() -> Iterator[Callable[[int], None]]:
    """A function that shows how many rows have been read so far, on a terminal only."""
    with console.status("0 rows") as shown:
        yield lambda count: shown.update(f"{count:,} rows")
