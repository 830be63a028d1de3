"""Where these names were in 0.1: see `gpn.columns.column_types`."""

from gpn.columns.column_types import MISSING, TableError, canonical, to_numbers

__all__ = ["MISSING", "TableError", "canonical", "to_numbers"]
