"""What a model of a table remembers of its fit: row counts, some rows, warnings, diagnostics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpn.saving.validation import are_texts, check, finite_array

Rows = NDArray[np.float64]

MIN_STORED_ROWS, MAX_STORED_ROWS = 50, 2000
MAX_STORED_NUMBERS = 250_000  # two megabytes of a model's file
MIN_DISTINCT_SHARE = 0.9
JSON_FIELDS = ("labeled", "unlabeled", "notes", "warnings", "diagnostics", "summary")


@dataclass(frozen=True)
class FitRecord:
    """What a fit found, and some labeled rows `x` as numbers with their targets `y`.

    labeled, unlabeled: how many rows there were; unlabeled None means that synthetic rows were
    generated. notes: what was done to columns. warnings: what the fit warned of. diagnostics: what
    the fit measured. summary: how well left-out labels were predicted (`gpn.tables.summary`). y: of
    classes the number of each.
    """

    labeled: int
    unlabeled: int | None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    x: Rows | None = field(default=None, repr=False)
    y: Rows | None = field(default=None, repr=False)
    summary: dict[str, Any] = field(default_factory=dict)

    def share_in(self, x: Rows, y: Rows) -> float:
        """The share of the stored rows that are among these, or of these among the stored ones.

        The larger one counts: a few of many rows of the fit are rows of the fit. 0 where none is
        stored, or where they repeat each other, as those of few categories do.
        """
        if self.x is None or self.y is None:
            return 0.0
        stored, others = _as_bytes(self.x, self.y), _as_bytes(x, y)
        known, asked = set(stored), set(others)
        if len(known) < MIN_DISTINCT_SHARE * len(stored):
            return 0.0
        shares = (sum(row in asked for row in stored), sum(row in known for row in others))
        return max(shares[0] / len(stored), shares[1] / max(1, len(others)))

    def to_dict(self) -> dict[str, Any]:
        """What the header of a model file holds."""
        return {name: getattr(self, name) for name in JSON_FIELDS}

    def arrays(self) -> dict[str, Rows]:
        """What a model file holds as tensors."""
        if self.x is None or self.y is None:
            return {}
        return {"labeled_x": self.x, "labeled_y": self.y}

    @classmethod
    def from_dict(cls, fields: Any, n_columns: int, arrays: Mapping[str, Rows]) -> "FitRecord":
        """The record that `to_dict` and `arrays` wrote; every value is checked."""
        named = isinstance(fields, dict) and set(fields) <= set(JSON_FIELDS)
        check(named, f"a record must have {', '.join(JSON_FIELDS)}", fields)
        record = cls(**fields)
        counts = record.labeled, 0 if record.unlabeled is None else record.unlabeled
        check(all(type(count) is int for count in counts), "rows must be counted", counts)
        for texts in (record.notes, record.warnings):
            check(are_texts(texts), "notes and warnings must be texts", texts)
        check(isinstance(record.diagnostics, dict), "diagnostics must have names", fields)
        check(isinstance(record.summary, dict), "a summary must have names", fields)
        trials = record.diagnostics.get("beta_search", [])
        listed = isinstance(trials, list) and all(isinstance(trial, dict) for trial in trials)
        check(listed, "a search must be a list of trials", trials)
        if not {"labeled_x", "labeled_y"} <= arrays.keys():
            return record
        x = finite_array(
            "labeled rows must be finite numbers", arrays["labeled_x"], (None, n_columns)
        )
        y = finite_array("labels must be finite, one per row", arrays["labeled_y"], (len(x),))
        return cls(**fields, x=x, y=y)


def _as_bytes(x: Rows, y: Rows) -> list[bytes]:
    return [row.tobytes() for row in np.concatenate([x, y[:, None]], axis=1)]


def rows_to_store(x: Rows, y: Rows) -> tuple[Rows, Rows]:
    """At most 2,000 random rows in their order, and fewer of very wide tables."""
    limit = min(MAX_STORED_ROWS, max(MIN_STORED_ROWS, MAX_STORED_NUMBERS // max(1, x.shape[1])))
    if len(x) <= limit:
        return x, y
    picked = np.sort(np.random.default_rng(0).choice(len(x), limit, replace=False))
    return x[picked], y[picked]
