"""Frames of pandas, polars and pyarrow. pandas is imported only where there is a frame."""

import sys
from typing import TYPE_CHECKING, Any

from gpn.core.warnings import GPNWarning, warn_caller

if TYPE_CHECKING:
    from gpn.columns.encoder import TableEncoder

QUIET_NOTES = ("is a category of", "holds dates", "holds durations", "holds times of day")


class ColumnsWarning(GPNWarning):
    """Columns of a frame are left out, imputed or read by a guess."""


def as_frame(values: Any) -> Any:
    """A frame of polars or pyarrow as one of pandas; anything else unchanged."""
    library = type(values).__module__.partition(".")[0]
    return values.to_pandas() if library in ("polars", "pyarrow") and _is_table(values) else values


def _is_table(values: Any) -> bool:
    return callable(getattr(values, "to_pandas", None)) and len(getattr(values, "shape", ())) == 2


def has_other_types(values: Any) -> bool:
    """Whether it is a pandas frame with a column of neither numbers nor booleans."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(values, pandas.DataFrame):
        return False
    from gpn.columns.column_types import NUMBER, is_numeric, stored_type

    return any(
        not is_numeric(column)
        and not pandas.api.types.is_bool_dtype(column)
        and stored_type(column) != NUMBER
        for _, column in values.items()
    )


def fit_encoder(frame: Any) -> "TableEncoder":
    """The encoder of a frame; what is left out, imputed or guessed is one warning."""
    from gpn.columns.encoder import TableEncoder

    encoder = TableEncoder.fit(frame)
    said = [note for note in encoder.notes if not _quiet(note)]
    if said:
        warn_caller(f"columns of X: {'; '.join(said)}.", ColumnsWarning)
    return encoder


def _quiet(note: str) -> bool:
    return any(words in note for words in QUIET_NOTES) and "would fit as well" not in note
