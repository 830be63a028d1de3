"""All numbers of a report as one plain dict: what the page is rendered from."""

import warnings
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd

from gpn.columns.encoder import UnseenWarning
from gpn.estimators.ood.drift.rows import NO_LABELS
from gpn.report import measure, performance
from gpn.report.facts import facts_of
from gpn.report.functions import functions
from gpn.report.rows import (
    MAX_OOD_ROWS,
    Array,
    ScoredTable,
    SelectedRow,
    compare_to_labeled,
    ood_rows,
    score_table,
    typical_rows,
)
from gpn.tables.model import TableModel

MAX_DRIFT_COLUMNS = 8
MAX_FUNCTION_ROWS = 8  # OOD rows among those that functions can be drawn through
Progress = Callable[[str], Any]


def report_data(
    model: TableModel, test: pd.DataFrame, pool: pd.DataFrame | None, on_progress: Progress
) -> dict[str, Any]:
    """Everything that the page shows of the model on these tables."""
    tables = []
    for name, table in (("test", test), ("pool", pool)):
        if table is not None:
            on_progress(f"scoring {len(table):,} {name} rows")
            tables.append(score_table(model, name, table))
    on_progress("comparing with the labels")
    indices, y, notes = labels_of(model, tables[0])
    measured = _measured(model, tables[0], indices, y) if len(indices) else {}
    on_progress("comparing columns with those of the fit")
    drift = _drift(model, tables[0])
    on_progress("shuffling one column after the other")
    labeled = (y, indices) if len(indices) else (None, np.arange(len(tables[0].x)))
    measured["importance"] = performance.importance(model, tables[0].x, *labeled)
    on_progress("finding the nearest labeled rows")
    unusual = [row for table in tables for row in ood_rows(table, MAX_OOD_ROWS // len(tables))]
    typical, stored = typical_rows(tables[0]), _stored_rows(model)
    seen = tables[0].x if stored is None else np.concatenate([stored, tables[0].x])
    return {
        "kind": "classification" if model.is_classifier else "regression",
        "classes": [str(name) for name in model.estimator.classes_] if model.is_classifier else [],
        "fit": facts_of(model),
        "notes": [*notes, *_notes(model, tables)],
        "tables": {table.name: table.total for table in tables},
        "labels": len(indices),
        **measured,
        "drift": drift,
        "ood": _ood(model, tables),
        "ood_rows": compare_to_labeled(model, unusual),
        "stored_rows": 0 if stored is None else len(stored),
        **(_class_plots(model, tables, [*unusual, *typical]) if model.is_classifier else {}),
        "functions": functions(model, _interleaved(tables, typical), seen, on_progress),
    }


def _drift(model: TableModel, table: ScoredTable) -> dict[str, Any]:
    """Whether the rows look like those of the fit; their labels have sections of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenWarning)  # scoring has said it
        found = model.drift(table.frame.drop(columns=model.target, errors="ignore"))
    columns = [
        (each.column, each.change, f"{each.distance:.2f}", "moved" if each.has_moved else "")
        for each in found.columns[:MAX_DRIFT_COLUMNS]
    ]
    said = [sentence for sentence in found.sentences() if sentence != NO_LABELS]
    return {"sentences": said, "columns": columns}


def labels_of(model: TableModel, table: ScoredTable) -> tuple[Any, Array, list[str]]:
    """Indices of the rows with a usable label, those labels, and a note on the others."""
    if model.target not in table.frame.columns:
        note = f"The test table has no column {model.target!r}: what needs labels is left out."
        return np.arange(0), np.zeros(0), [note]
    column = table.frame[model.target]
    if model.is_classifier:
        codes = {name: i for i, name in enumerate(model.estimator.classes_.tolist())}
        y = np.array([codes.get(name, np.nan) for name in column.tolist()], float)
    else:
        y = pd.to_numeric(column, errors="coerce").to_numpy(float)
    usable = np.flatnonzero(np.isfinite(y))
    missing = len(y) - len(usable)
    rule = "one of the fitted classes" if model.is_classifier else "a number"
    note = (
        f"{missing:,} of {len(y):,} test rows are left out where labels are needed: "
        f"their label is not {rule}."
    )
    return usable, y[usable], [note] if missing else []


def _notes(model: TableModel, tables: list[ScoredTable]) -> list[str]:
    notes = [
        f"A random sample of {len(table.x):,} of the {table.total:,} {table.name} rows is used."
        for table in tables
        if table.total > len(table.x)
    ]
    if _stored_rows(model) is None:
        notes.append("The model file stores no labeled rows: the nearest ones cannot be shown.")
    return notes


def _stored_rows(model: TableModel) -> Array | None:
    """The labeled rows that the model file stores, encoded."""
    return None if model.record is None else model.record.x


def _measured(model: TableModel, table: ScoredTable, indices: Any, y: Array) -> dict[str, Any]:
    """What is measured on labeled rows."""
    x, scores, estimator = table.x[indices], table.scores[indices], model.estimator
    summary = model.evaluate(table.frame.iloc[indices])
    if model.is_classifier:
        p, classes = estimator.predict_proba(x), y.astype(int)
        wrong = (p.argmax(1) != classes).astype(float)
        orders = {"by probability": 1 - p.max(1), "by OOD score": scores}
        return {
            "summary": summary,
            "confidence": performance.confidence(summary),
            "baseline": performance.baseline(model, x, y),
            "confusion": performance.confusion(p.argmax(1), classes, p.shape[1]),
            "calibration": measure.reliability(p, classes),
            "risk": measure.risk(wrong, orders, root=False),
        }
    found = estimator.predict_distribution(x)
    mean, total = found.mean(), found.std()
    flagged = table.flagged(estimator.threshold())[indices]
    return {
        "summary": summary,
        "confidence": performance.confidence(summary),
        "baseline": performance.baseline(model, x, y),
        "points": _named_points(table, indices, performance.points(estimator, x, y, flagged)),
        "coverage": measure.coverage(measure.pit(estimator, x, y)),
        "calibration": measure.error_by_std(total, mean - y),
        "risk": measure.risk((mean - y) ** 2, {"lowest OOD score first": scores}, root=True),
    }


def _named_points(table: ScoredTable, indices: Any, found: dict[str, Any]) -> dict[str, Any]:
    """The points with a text that says which row each is."""
    rows = [SelectedRow(table, int(indices[i]), "") for i in found.pop("rows")]
    return {**found, "names": [row.name or f"row {row.number}" for row in rows]}


def _ood(model: TableModel, tables: list[ScoredTable]) -> dict[str, Any]:
    reference, thresholds = (
        model.estimator.reference_scores_,
        measure.thresholds_of(model.estimator),
    )
    groups = {"labeled": reference, **{table.name: table.scores for table in tables}}
    linear = measure.histogram(groups)
    flagged = {"labeled": lambda limit: reference > limit}
    flagged |= {table.name: table.flagged for table in tables}
    usual = thresholds[np.argmin(np.abs(measure.FALSE_POSITIVE_RATES - 0.05))]
    return {
        "scale": "log" if usual < 0.15 * linear["edges"][-1] else "linear",
        "linear": linear,
        "log": measure.histogram(groups, log=True),
        "flags": measure.flags(thresholds, flagged),
    }


def _class_plots(
    model: TableModel, tables: list[ScoredTable], rows: list[SelectedRow]
) -> dict[str, Any]:
    """Entropies of each table, and the spread of class probabilities over draws at some rows."""
    stored = _stored_rows(model)
    groups = {} if stored is None else {"labeled": stored}
    groups |= {table.name: table.x for table in tables}
    entropies = {name: model.estimator.entropy(x) for name, x in groups.items()}
    quantiles = measure.class_boxes(model.estimator, np.stack([row.x for row in rows]))
    return {
        "entropy": measure.histogram(entropies),
        "boxes": {"rows": [row.label for row in rows], "quantiles": quantiles},
    }


def _interleaved(tables: list[ScoredTable], typical: list[SelectedRow]) -> list[SelectedRow]:
    """OOD rows of each table and typical rows in turn, so that any prefix is a mixture."""
    groups = [ood_rows(table, MAX_FUNCTION_ROWS // len(tables)) for table in tables] + [typical]
    return [row for turn in zip_longest(*groups) for row in turn if row is not None]
