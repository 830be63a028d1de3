"""What a model of a table remembers of its fit: how many rows, some of them, and what was said."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_ROWS = 2000

MAX_NUMBERS = 250_000  # two megabytes of a model's file

MIN_ROWS = 50

MIN_DIFFERENT = 0.9


@dataclass(frozen=True)
class FitRecord:
    """`x` are some labeled rows as numbers, `y` their targets (of classes the number of each).

    labeled, unlabeled: how many rows there were; unlabeled None means that some were made up.
    notes: what was done to columns. warnings: what the fit warned of. diagnostics: what it measured
    of itself.
    """

    labeled: int
    unlabeled: int | None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    x: NDArray[np.float64] | None = field(default=None, repr=False)
    y: NDArray[np.float64] | None = field(default=None, repr=False)

    def facts(self) -> dict[str, Any]:
        """What JSON can hold of it."""
        names = ("labeled", "unlabeled", "notes", "warnings", "diagnostics")
        return {name: getattr(self, name) for name in names}

    def share_in(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
        """The share of the labeled rows that it carries which are among these.

        0 where it carries none, or where they repeat each other, as those of few categories do.
        """
        if self.x is None or self.y is None:
            return 0.0
        own, others = _as_bytes(self.x, self.y), set(_as_bytes(x, y))
        if len(set(own)) < MIN_DIFFERENT * len(own):
            return 0.0
        return sum(row in others for row in own) / len(own)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The rest."""
        if self.x is None or self.y is None:
            return {}
        return {"labeled_x": self.x, "labeled_y": self.y}


def _as_bytes(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[bytes]:
    both = np.concatenate([x, y[:, None]], axis=1)
    return [row.tobytes() for row in both]


def some_rows(
    x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most 2,000 rows, picked evenly, and fewer of very wide tables."""
    most = min(MAX_ROWS, max(MIN_ROWS, MAX_NUMBERS // max(1, x.shape[1])))
    if len(x) <= most:
        return x, y
    picked = np.sort(np.random.default_rng(0).choice(len(x), most, replace=False))
    return x[picked], y[picked]


def diagnostics_of(posterior: Any) -> dict[str, Any]:
    """The numbers that a fit found out, and how long it trained."""
    report = getattr(posterior, "fit_report", None)
    return {} if report is None else report.to_dict()
