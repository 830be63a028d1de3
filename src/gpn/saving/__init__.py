"""The model file: its format, configurations as JSON, and the checks of files from elsewhere."""

from gpn.saving.format import load, save

__all__ = ["load", "save"]
