"""The warnings of the library, and the diagnostics of a fit that lead to some of them."""

import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jaxtyping

GOOD, DOUBTFUL, UNKNOWN = VERDICTS = ("good", "doubtful", "not known")

# jaxtyping wraps our functions where its shape checks are switched on, as in the tests.
LIBRARY_FOLDERS = tuple(
    f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(jaxtyping.__file__).parent)
)


class GPNWarning(UserWarning):
    """Base of all: `warnings.simplefilter("ignore", gpn.GPNWarning)` silences every one."""


class PoolWarning(GPNWarning):
    """All unlabeled rows seem to follow the distribution of the labeled ones."""


class AxesWarning(GPNWarning):
    """The code's axes explain too little variance of the prior, or of the posterior."""


class CodesWarning(GPNWarning):
    """The learnt codes are far from N(0, I), the distribution that new codes are drawn from."""


class SearchWarning(GPNWarning):
    """The best β was the smallest or the largest candidate."""


@dataclass(frozen=True)
class Diagnostic:
    """One finding of a fit about itself.

    verdict: "good", "doubtful" or "not known"; value: None where it is not known.
    """

    value: float | None
    verdict: str
    sentence: str


def warn_doubtful(
    diagnostics: Mapping[str, Diagnostic], categories: Mapping[str, type[GPNWarning]]
) -> None:
    """Warn of each doubtful diagnostic, in the category of its name."""
    for name, diagnostic in diagnostics.items():
        if diagnostic.verdict == DOUBTFUL:
            warn_caller(diagnostic.sentence, categories[name])


def warn_caller(message: str | GPNWarning, category: type[GPNWarning] | None = None) -> None:
    """Warn at the nearest line outside the library: the line that the user can change."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(LIBRARY_FOLDERS):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
