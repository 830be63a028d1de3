"""The model file: its format, how values are written, and how a file is checked."""

from gpn.saving.format import load, save

__all__ = ["load", "save"]
