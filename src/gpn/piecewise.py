"""A table of any length, changed piece by piece."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console

    from gpn.table_model import TableModel


def piecewise(
    table: Path,
    out: Path,
    change: Callable[["DataFrame"], "DataFrame"],
    model: "TableModel",
    console: "Console",
    *,
    keep: bool,
) -> int:
    """Read, change and write piece by piece; the rows so far are shown."""
    import pandas as pd

    from gpn import frames

    count = 0
    with counting(console) as tell, frames.writer(out) as add:
        for piece in frames.pieces_of(table, model.columns.categories):
            own = piece.reset_index(drop=True)
            new = change(own)
            if keep:
                _refuse_twins(own, new)
            add(pd.concat([own, new], axis=1) if keep else new)
            count += len(piece)
            tell(count)
    return count


@contextmanager
def counting(console: "Console") -> Iterator[Callable[[int], None]]:
    """A function that shows how many rows were read so far."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    look = (SpinnerColumn(), TextColumn("{task.completed:,.0f} rows"))
    with Progress(*look, console=console, transient=True) as bar:
        row = bar.add_task("rows", total=None)
        yield lambda count: bar.update(row, completed=count)


def _refuse_twins(table: "DataFrame", new: "DataFrame") -> None:
    both = [name for name in table.columns if name in new.columns]
    if both:
        raise ValueError(
            f"the table must not have a column that is to be written, got {both[0]!r}; rename it."
        )
