"""Plain columns of an Arrow table as the numbers that a model reads, without a Python object per
cell.

Plain are numbers without a unit or a date, and categories that are texts. `plain_inputs` gives
None for a table that holds anything else, such as a cell that is no number or a missing cell to
warn of: `TableEncoder` then reads the same rows by pandas, and says what is to be said.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gpn.columns.column_types import MISSING
from gpn.columns.encoder import TableEncoder, category_places

# The cells that pandas takes for missing where it reads a CSV file.
MISSING_CELLS = pa.array(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
        *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
Inputs = tuple[NDArray[np.float64], NDArray[np.bool_]]


def plain_inputs(encoder: TableEncoder, table: Any, *, of_csv: bool) -> Inputs | None:
    """As `encoder.transform_and_flag`; None where a cell needs more than a look at its column.

    Columns are chunked arrays of an Arrow table; `of_csv` says that all cells are texts, as they
    stand in a file.
    """
    names = table.schema.names
    read = {*encoder.names, *(name for name in encoder.constants if name in names)}
    is_odd = encoder.times or encoder.units or encoder.decimal != "."
    if is_odd or not read <= set(names) or len(set(names)) < len(names) or table.num_rows == 0:
        return None
    inputs, unseen = np.zeros((table.num_rows, encoder.width)), np.zeros(table.num_rows, bool)
    for place, (name, median) in enumerate(encoder.medians.items()):
        numbers = _numbers(table.column(name), of_csv=of_csv)
        if numbers is None:
            return None
        missing = np.isnan(numbers)
        if missing.any():
            if name in encoder.complete:
                return None
            numbers = np.where(missing, median, numbers)
        inputs[:, place] = numbers
    start, rows = len(encoder.medians), np.arange(table.num_rows)
    for name, known in encoder.categories.items():
        found = _places(table.column(name), known, of_csv=of_csv)
        if found is None or (found < 0).any():
            return None
        inputs[rows, start + found] = 1.0
        start += len(known)
    for name, value in encoder.constants.items():
        if name in names:
            found = _places(table.column(name), [value], of_csv=of_csv)
            if found is None or (found < 0).any():
                return None
    return inputs, unseen


def _numbers(column: Any, *, of_csv: bool) -> NDArray[np.float64] | None:
    """The cells as float64, NaN where they are missing; None where one is no finite number."""
    kind = column.type
    if of_csv:
        column = _parsed(column)
        if column is None:
            return None
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    numbers = column.to_numpy().astype(np.float64, copy=False)
    return None if np.isinf(numbers).any() else numbers


def _parsed(texts: Any) -> Any | None:
    """Texts as numbers; None where one is neither a number nor missing."""
    try:
        return pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        pass
    try:
        return pc.cast(pc.if_else(pc.is_in(texts, MISSING_CELLS), None, texts), pa.float64())
    except pa.ArrowInvalid:
        return None


def _places(column: Any, known: Sequence[str], *, of_csv: bool) -> NDArray[np.int64] | None:
    """The place of each cell among the known texts, −1 for others; None unless cells are texts."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = pc.cast(column, kind.value_type), kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    if of_csv:
        column = pc.if_else(pc.is_in(column, MISSING_CELLS), None, column)
    encoded = pc.fill_null(column, MISSING).combine_chunks().dictionary_encode()
    unique = pd.Series(encoded.dictionary.to_pylist(), dtype=object)
    found: NDArray[np.int64] = category_places(unique, list(known))[encoded.indices.to_numpy()]
    return found
