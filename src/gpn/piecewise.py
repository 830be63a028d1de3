"""A table of any length, changed piece by piece."""

from collections.abc import Callable
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
    from rich.progress import Progress, SpinnerColumn, TextColumn

    from gpn import frames

    count, look = 0, (SpinnerColumn(), TextColumn("{task.completed:,.0f} rows"))
    with Progress(*look, console=console, transient=True) as bar, frames.writer(out) as add:
        row = bar.add_task("rows", total=None)
        for piece in frames.pieces_of(table, model.columns.categories):
            own = piece.reset_index(drop=True)
            new = change(own)
            if keep:
                _refuse_twins(own, new)
            add(pd.concat([own, new], axis=1) if keep else new)
            count += len(piece)
            bar.update(row, completed=count)
    return count


def _refuse_twins(table: "DataFrame", new: "DataFrame") -> None:
    both = [name for name in table.columns if name in new.columns]
    if both:
        raise ValueError(
            f"the table must not have a column that is to be written, got {both[0]!r}; rename it."
        )
