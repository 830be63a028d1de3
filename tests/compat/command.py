"""The command line, run in this process as `python -m gpn` would run it."""

import contextlib
import io
import runpy
import sys
from unittest import mock


def command(*arguments: object) -> str:
    """What the command prints; raise where it ends with another status than 0."""
    argv, out = ["gpn", *map(str, arguments), "--json"], io.StringIO()
    with mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(out):
        try:
            runpy.run_module("gpn", run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise RuntimeError(f"{' '.join(argv)} ended with status {end.code}") from end
    return out.getvalue()
