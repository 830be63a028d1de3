"""The HTML report: one self-contained page about a fitted model of a table.

`data` computes what the page shows, as plain dicts and arrays; `page` renders it.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from gpn.columns.column_types import TableError
from gpn.columns.encoder import as_table
from gpn.core.files import write_atomically
from gpn.tables.files import check_writable
from gpn.tables.model import TableModel

__all__ = ["write_report"]


def write_report(
    model: TableModel,
    test: pd.DataFrame,
    pool: pd.DataFrame | None = None,
    out: str | os.PathLike[str] = "report.html",
    *,
    on_progress: Callable[[str], Any] | None = None,
    tell: Callable[[str], Any] | None = None,
) -> Path:
    """Write the report on `test` (and `pool`) to `out`; `on_progress` is called before each step.

    If `test` lacks the target column, the report leaves out what needs labels.
    """
    if tell is not None:
        warnings.warn("tell is now called on_progress.", DeprecationWarning, stacklevel=2)
    if not isinstance(model, TableModel):
        raise TableError(
            f"the model of a report must be a TableModel, got {type(model).__name__}; fit one with "
            "gpn fit, or gpn.tables.model.fit_table."
        )
    for table in (test, pool):
        if table is not None:
            as_table(table)
    try:
        from gpn.report.data import report_data
        from gpn.report.page import render
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"a report needs {error.name}, which is not installed; try pip install 'gpn[report]'."
        ) from error
    path, step = Path(out), on_progress or tell or (lambda message: None)
    check_writable(path)
    data = report_data(model, test, pool, step)
    step("writing the page")
    write_atomically(path, render(data).encode())
    return path
