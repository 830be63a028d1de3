"""A table of any length, changed piece by piece."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpn.tables.encoder import UnseenWarning

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console

    from gpn.tables.model import TableModel


def piecewise(
    table: Path,
    out: Path,
    change: Callable[["DataFrame"], "DataFrame"],
    model: "TableModel",
    console: "Console",
    *,
    keep: bool,
) -> int:
    """Read, change and write piece by piece; the rows so far are shown, and warnings at the end."""
    import pandas as pd

    from gpn.tables import files as frames

    count, columns = 0, model.columns
    texts = frames.as_they_stand(table, out, columns.medians) or columns.categories
    with _summed() as said, counting(console) as tell, frames.writer(out) as add:
        for piece in frames.pieces_of(table, texts):
            own = piece.reset_index(drop=True)
            new = change(own)
            if keep:
                _refuse_twins(own, new)
            add(pd.concat([own, new], axis=1) if keep else new)
            count += len(piece)
            tell(count)
    for warning in said:
        warnings.warn(warning.of(count), stacklevel=2)
    return count


@contextmanager
def _summed() -> Iterator[list[UnseenWarning]]:
    """One warning per column of categories that were never seen; others are given as ever."""
    sums: dict[str, UnseenWarning] = {}
    result: list[UnseenWarning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield result
    for entry in caught:
        if isinstance(entry.message, UnseenWarning):
            own = entry.message
            sums[own.name] = sums[own.name].plus(own) if own.name in sums else own
        else:
            warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
    result.extend(sums.values())


@contextmanager
def counting(console: "Console") -> Iterator[Callable[[int], None]]:
    """A function that shows how many rows were read so far, on a terminal only."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    if not console.is_terminal:
        yield lambda count: None
        return
    look = (SpinnerColumn(), TextColumn("{task.completed:,.0f} rows"))
    with Progress(*look, console=console, transient=True) as bar:
        row = bar.add_task("rows", total=None)
        yield lambda count: bar.update(row, completed=count)


@contextmanager
def status(console: "Console", first: str) -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done, on a terminal only."""
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(first) as shown:
        yield shown.update


def _refuse_twins(table: "DataFrame", new: "DataFrame") -> None:
    both = [name for name in table.columns if name in new.columns]
    if both:
        raise ValueError(
            f"the table must not have a column that is to be written, got {both[0]!r}; rename it."
        )
