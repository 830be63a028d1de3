"""The table part of a model file: columns, target, and what the fit remembered."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gpn.estimators.persistence import PREFIX, _texts, load_with_facts, numbers
from gpn.saving.format import Saved
from gpn.saving.validation import as_model_error, check
from gpn.tables.column_types import TIMES
from gpn.tables.encoder import Columns
from gpn.tables.fit_record import FitRecord
from gpn.tables.model import TableModel


def load_table_model(saved: Saved, device: torch.device) -> TableModel:
    """The model of a table: its estimator, its columns, and what the fit remembered."""
    model, facts, tensors = load_with_facts(saved, device)
    with as_model_error(f"what {saved.path} says of its table must be complete"):
        width, rows = facts["n_features"], [tensors.get(f"{PREFIX}labeled_{name}") for name in "xy"]
        record = record_of(facts.get("record"), width, *rows)
        return TableModel(model, columns_of(facts, width), facts["target"], record)


def columns_of(facts: dict[str, Any], width: int) -> Columns:
    """The columns of a table's model, which make `width` numbers of each row."""
    given = facts["columns"]
    named = isinstance(given, dict) and set(given) | {"times"} == {"medians", "categories", "times"}
    check(named, *_columns(given))
    medians, categories = given["medians"], given["categories"]
    check(isinstance(medians, dict) and isinstance(categories, dict), *_columns(given))
    check(not set(medians) & set(categories), "a column must be of one kind", given)
    finite = all(type(v) in (int, float) and abs(v) < float("inf") for v in medians.values())
    check(finite, "medians must be finite numbers", medians)
    for values in categories.values():
        check(_texts(values) and len(values) > 0, "categories must be texts", values)
        check(len(set(values)) == len(values), "categories must differ", values)
    total = len(medians) + sum(map(len, categories.values()))
    check(total == width, f"columns must make {width} numbers of a row", total)
    check(type(facts["target"]) is str, "the target must be a text", facts["target"])
    check(facts["flat"] in (True, None), "a table must have one target", facts["flat"])
    known = {name: float(value) for name, value in medians.items()}
    return Columns(known, categories, times=_times_of(given.get("times", {}), medians))


def _times_of(given: Any, medians: Mapping[str, Any]) -> dict[str, str]:
    """Which columns of numbers are seconds of a date or of a duration."""
    right = isinstance(given, dict) and all(
        name in medians and type(kind) is str and kind in TIMES for name, kind in given.items()
    )
    check(right, "times must say date or duration of columns of numbers", given)
    return given


def record_of(facts: Any, width: int, x: Tensor | None, y: Tensor | None) -> FitRecord | None:
    """What the fit remembered, with the rows that came along."""
    if facts is None:
        return None
    record = FitRecord(**facts)
    counts = record.labeled, 0 if record.unlabeled is None else record.unlabeled
    check(all(type(count) is int for count in counts), "rows must be counted", counts)
    for said in (record.notes, record.warnings):
        check(_texts(said), "what a fit said must be texts", said)
    found = record.diagnostics
    check(isinstance(found, dict), "diagnostics must have names", found)
    trials = found.get("beta_search", [])
    listed = isinstance(trials, list) and all(isinstance(trial, dict) for trial in trials)
    check(listed, "a search must be a list of trials", trials)
    if x is None or y is None:
        return record
    rows = numbers("labeled rows must be finite numbers", x.numpy(), (None, width))
    targets = numbers("labels must be finite, one per row", y.numpy(), (len(rows),))
    return FitRecord(**facts, x=rows, y=targets)


def _columns(given: Any) -> tuple[str, Any]:
    return "columns must have medians and categories by name", given
