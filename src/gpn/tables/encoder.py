"""Where these names were in 0.1: see `gpn.columns.encoder`."""

from gpn.columns.encoder import TableEncoder, UnseenWarning, as_table

__all__ = ["TableEncoder", "UnseenWarning", "as_table"]
