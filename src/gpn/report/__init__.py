"""A fitted model of a table as one HTML page that needs no network.

write_report(model, test, pool, "report.html")

Numbers first (`measure`, `neighbours`, `functions`: plain dicts), then the page made of them.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpn.tables.column_types import TableError
from gpn.tables.encoder import as_table
from gpn.tables.files import temporary
from gpn.tables.model import TableModel

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["write_report"]

Tell = Callable[[str], Any]


def write_report(
    model: TableModel,
    test: "DataFrame",
    pool: "DataFrame | None" = None,
    out: str | os.PathLike[str] = "report.html",
    *,
    tell: Tell | None = None,
) -> Path:
    """Write what the model knows of `test` (and of `pool`) to `out`; `tell` hears of each step.

    Without the target among its columns `test` still makes a report, less what needs labels.
    """
    _require_parts()
    if not isinstance(model, TableModel):
        raise TableError(
            f"the model of a report must be a TableModel, got {type(model).__name__}; fit one with "
            "gpn fit, or gpn.tables.model.fit_table."
        )
    for table in (test, pool):
        if table is not None:
            as_table(table)
    from gpn.report.numbers import numbers_of
    from gpn.report.page import render

    path = Path(out)
    os.unlink(temporary(path))  # better to know before the work than after it
    step = tell or (lambda text: None)
    numbers = numbers_of(model, test, pool, step)
    step("writing the page")
    name = temporary(path)
    try:
        Path(name).write_text(render(numbers), encoding="utf-8")
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return path


def _require_parts() -> None:
    try:
        import jinja2  # noqa: F401
        import plotly  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"a report needs {error.name}, which is not installed; try pip install 'gpn[report]'."
        ) from error
