"""All numbers of a report, as one plain dict: what the page is made of."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpn.report import classes, measure
from gpn.report.facts import facts_of
from gpn.report.functions import functions
from gpn.report.neighbours import comparisons
from gpn.report.rows import MAX_UNKNOWN, Array, Picked, Rows, most_unknown, rows_of, typical
from gpn.tables.model import TableModel

if TYPE_CHECKING:
    from pandas import DataFrame

FIVE_PERCENT = 4  # where 5 % stands among the rates of false alarms
Tell = Callable[[str], Any]


def numbers_of(
    model: TableModel, test: "DataFrame", pool: "DataFrame | None", tell: Tell
) -> dict[str, Any]:
    """Everything that a page shows of the model on these tables."""
    tell(f"scoring {len(test):,} test rows")
    tables = [rows_of(model, "test", test)]
    if pool is not None:
        tell(f"scoring {len(pool):,} pool rows")
        tables.append(rows_of(model, "pool", pool))
    tell("comparing with the labels")
    places, y, said = labels_of(model, tables[0])
    labeled = _measured(model, tables[0], places, y) if len(places) else {}
    tell("looking for the nearest labeled rows")
    most = MAX_UNKNOWN // len(tables)
    unknown = [row for table in tables for row in most_unknown(table, most)]
    usual = typical(tables[0])
    chosen = _chosen(tables, usual)
    return {
        "kind": "classes" if model.is_classifier else "numbers",
        "classes": [str(name) for name in model.estimator.classes_] if model.is_classifier else [],
        "fit": facts_of(model),
        "said": [*said, *_said(model, tables)],
        "tables": {table.name: table.total for table in tables},
        "labels": len(places),
        **labeled,
        "ood": _ood(model, tables),
        "unknown": comparisons(model, unknown),
        "carried": 0 if model.record is None or model.record.x is None else len(model.record.x),
        **(_of_classes(model, tables, [*unknown, *usual]) if model.is_classifier else {}),
        "functions": functions(model, chosen, _seen(model, tables[0]), tell),
    }


def labels_of(model: TableModel, rows: Rows) -> tuple[Any, Array, list[str]]:
    """Places of the test rows whose label can be used, those labels, and what there is to say."""
    import pandas as pd

    if model.target not in rows.frame.columns:
        reason = f"The test table has no column {model.target!r}: what needs labels is left out."
        return np.arange(0), np.zeros(0), [reason]
    column = rows.frame[model.target]
    if model.is_classifier:
        places = {name: i for i, name in enumerate(model.estimator.classes_.tolist())}
        y = np.array([places.get(name, np.nan) for name in column.tolist()], float)
    else:
        y = pd.to_numeric(column, errors="coerce").to_numpy(float)
    usable = np.flatnonzero(np.isfinite(y))
    missing = len(y) - len(usable)
    what = "of a class of the fit" if model.is_classifier else "a number"
    note = (
        f"{missing:,} of {len(y):,} test rows are left out where labels are needed: "
        f"theirs is not {what}."
    )
    return usable, y[usable], [note] if missing else []


def _said(model: TableModel, tables: list[Rows]) -> list[str]:
    notes = [
        f"{len(table.x):,} of the {table.total:,} {table.name} rows are looked at, picked evenly."
        for table in tables
        if table.total > len(table.x)
    ]
    if model.record is None or model.record.x is None:
        notes.append("The model's file carries no labeled rows: nearest ones cannot be shown.")
    return notes


def _measured(model: TableModel, rows: Rows, places: Any, y: Array) -> dict[str, Any]:
    """What is found where labels are known."""
    frame = rows.frame.iloc[places]
    found = _class_measures if model.is_classifier else _value_measures
    x, scores = rows.x[places], rows.scores[places]
    return {"summary": model.evaluate(frame), **found(model.estimator, x, y, scores)}


def _value_measures(estimator: Any, x: Array, y: Array, scores: Array) -> dict[str, Any]:
    mean, std = estimator.predict(x, return_std=True)
    error = mean - y
    return {
        "coverage": measure.coverage(measure.positions(estimator, x, y)),
        "calibration": measure.spread_against_error(
            np.hypot(std, measure.noise_of(estimator)), error
        ),
        "risk": measure.risk(error**2, {"most certain first": scores}, root=True),
    }


def _class_measures(estimator: Any, x: Array, y: Array, scores: Array) -> dict[str, Any]:
    p, numbers = estimator.predict_proba(x), y.astype(int)
    wrong = (p.argmax(1) != numbers).astype(float)
    orders = {"by probability": 1 - p.max(1), "by OOD score": scores}
    return {
        "calibration": classes.reliability(p, numbers),
        "risk": measure.risk(wrong, orders, root=False),
    }


def _ood(model: TableModel, tables: list[Rows]) -> dict[str, Any]:
    reference = model.estimator.reference_scores_
    groups = {"labeled": reference, **{table.name: table.scores for table in tables}}
    linear, flags = measure.histogram(groups), measure.flags(reference, groups)
    crowded = flags["limits"][FIVE_PERCENT] < 0.15 * linear["edges"][-1]
    return {
        "first": "log" if crowded else "linear",
        "linear": linear,
        "log": measure.histogram(groups, log=True),
        "flags": flags,
    }


def _of_classes(model: TableModel, tables: list[Rows], picked: list[Picked]) -> dict[str, Any]:
    """Entropies of each table, and how the functions disagree at some rows."""
    estimator = model.estimator
    groups = {table.name: table.x for table in tables}
    if model.record is not None and model.record.x is not None:
        groups = {"labeled": model.record.x, **groups}
    entropies = {name: classes.entropy(estimator.predict_proba(x)) for name, x in groups.items()}
    boxes = classes.boxes(estimator, np.stack([row.x for row in picked]))
    return {
        "entropy": measure.histogram(entropies),
        "boxes": {"rows": [row.label for row in picked], "quantiles": boxes},
    }


def _chosen(tables: list[Rows], usual: list[Picked]) -> list[Picked]:
    """Unknown rows of each table and typical ones by turns, so that fewer are still a mixture."""
    each = [most_unknown(table, 8 // len(tables)) for table in tables] + [usual]
    longest = max(map(len, each))
    return [rows[i] for i in range(longest) for rows in each if i < len(rows)]


def _seen(model: TableModel, test: Rows) -> Array:
    """Labeled and test rows."""
    record = model.record
    return test.x if record is None or record.x is None else np.concatenate([record.x, test.x])
