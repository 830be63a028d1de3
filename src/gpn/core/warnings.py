"""What a fit finds out about itself: a value, a verdict and a sentence each, and its warnings.

Warnings that point at the line of whoever called, however deep in the library they arise.
"""

import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

GOOD, DOUBTFUL, UNKNOWN = VERDICTS = ("good", "doubtful", "not known")


class GPNWarning(UserWarning):
    """All that gpn warns of: `warnings.simplefilter("ignore", gpn.GPNWarning)` silences it."""


class PoolWarning(GPNWarning):
    """The unlabeled rows seem to be like the labeled ones, all of them."""


class AxesWarning(GPNWarning):
    """The code's axes hold too little of the prior, or of the posterior."""


class CodesWarning(GPNWarning):
    """The learnt codes are not as N(0, I), from which functions are drawn."""


class SearchWarning(GPNWarning):
    """The best β was the first or the last that was tried."""


@dataclass(frozen=True)
class Diagnostic:
    """One thing looked at. verdict: "good", "doubtful" or "not known"; value: None if not known."""

    value: float | None
    verdict: str
    sentence: str


def warn_of(
    found: Mapping[str, Diagnostic], kinds: Mapping[str, type[GPNWarning]], stacklevel: int
) -> None:
    """A warning of its kind for each that is doubtful."""
    for name, diagnostic in found.items():
        if diagnostic.verdict == DOUBTFUL:
            warnings.warn(diagnostic.sentence, kinds[name], stacklevel=stacklevel + 1)


HERE = f"{Path(__file__).parents[1]}{os.sep}"


def warn_caller(message: str | GPNWarning, kind: type[GPNWarning] | None = None) -> None:
    """Warn at the nearest line outside the library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)
