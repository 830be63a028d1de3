"""Warnings that point at the line of whoever called, however deep in the library they arise."""

import os
import sys
import warnings
from pathlib import Path

from gpn.core.diagnostic import GPNWarning

HERE = f"{Path(__file__).parent}{os.sep}"


def warn_caller(message: str | GPNWarning, kind: type[GPNWarning] | None = None) -> None:
    """Warn at the nearest line outside the library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)
