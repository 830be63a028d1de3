"""A model of a table in the words of whoever uses it."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from gpn.estimators.intervals.calibration import Calibration
from gpn.estimators.ood.thresholds import false_alarm_std
from gpn.tables.model import TableModel

MAX_SHOWN = 12
METRICS = {
    "rows": ("labeled rows", "{:,}"),
    "rows_without_label": ("rows without a label, skipped", "{:,}"),
    "rmse": ("typical error (RMSE)", "{:.4g}"),
    "mae": ("mean absolute error (MAE)", "{:.4g}"),
    "r2": ("R², share of variance explained", "{:.3f}"),
    "coverage_95": ("labels inside their 95 % intervals", "%"),
    "width_95": ("mean width of 95 % intervals", "{:.4g}"),
    "set_coverage_95": ("labels inside their 95 % sets of classes", "%"),
    "set_size_95": ("mean number of classes in a 95 % set", "{:.2f}"),
    "accuracy": ("accuracy", "%"),
    "nll": ("NLL, lower is better", "{:.3f}"),
    "ece": ("calibration error of probabilities (ECE)", "{:.3f}"),
    "flagged": ("flagged as OOD; by design about 5 % of known rows are", "%"),
    "ood_rows": ("rows of --ood", "{:,}"),
    "ood_flagged": ("of these flagged as OOD", "%"),
    "ood_auc": ("AUC of the OOD score; 0.5 is chance, 1 perfect", "{:.3f}"),
    "ood_fpr95": ("FPR95: labeled rows flagged where 95 % of --ood are", "%"),
}


def describe(model: TableModel) -> dict[str, str]:
    """What the model predicts, from what, how well, and how it flags rows."""
    return dict(_lines(model))


def _lines(model: TableModel) -> Iterator[tuple[str, str]]:
    record, estimator = model.record, model.estimator
    kind = "a class" if model.is_classifier else "a number"
    yield "predicts", f"{model.target!r}, {kind}"
    if model.is_classifier:
        yield "classes", _some(map(str, estimator.classes_))
    yield "from the columns", _some(_column_words(model))
    if record is not None:
        unlabeled = "no unlabeled ones" if record.unlabeled is None else f"{record.unlabeled:,}"
        more = "" if record.unlabeled is None else " unlabeled ones"
        yield "learnt from", f"{record.labeled:,} labeled rows and {unlabeled}{more}"
        yield from summary_lines(record.summary)
    calibration = estimator.calibration_
    what = "sets of classes" if model.is_classifier else "intervals"
    if calibration is not None:
        yield what, f"calibrated by {_calibration_rows(calibration)} that the fit has not seen"
    elif not model.is_classifier:
        yield what, "from the errors on left-out labels; gpn calibrate guarantees their coverage"
    error = 100 * false_alarm_std(len(estimator.reference_scores_), 0.05)
    mistaken = f"about 5 % (± {error:.1f} %) of known rows by mistake"
    yield "flags", f"rows unlike the labeled ones, and {mistaken}"
    if record is not None and record.notes:
        yield "columns in detail", "; ".join(record.notes)
    if record is not None and record.warnings:
        yield "warnings of the fit", "; ".join(record.warnings)


def summary_lines(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """How well left-out labels were predicted, in words."""
    labels = summary.get("left_out_labels")
    where = f"on {labels:,} left-out labels" if labels else ""
    if "r2" in summary:
        yield f"R² {where}", f"{summary['r2']:.3f} (ridge regression {summary['ridge_r2']:.3f})"
        yield "typical error (RMSE)", f"{summary['rmse']:.4g} (ridge {summary['ridge_rmse']:.4g})"
        yield "NLL, lower is better", f"{summary['nll']:.3f} (ridge {summary['ridge_nll']:.3f})"
        yield "95 % intervals hold", f"{100 * summary['coverage_95']:.1f} % of left-out labels"
    if "accuracy" in summary:
        majority = summary["majority_accuracy"], summary["majority_nll"]
        yield (
            f"accuracy {where}",
            f"{100 * summary['accuracy']:.1f} % (most frequent class {100 * majority[0]:.1f} %)",
        )
        yield "NLL, lower is better", f"{summary['nll']:.3f} (class shares {majority[1]:.3f})"
    if "seconds" in summary:
        yield "seconds", f"{summary['seconds']:.1f}"


def metric_lines(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What `TableModel.evaluate` found, in words; a metric that is not defined is left out."""
    for key, value in found.items():
        if value is not None:
            words, form = METRICS[key]
            yield words, percent(value) if form == "%" else form.format(value)


def percent(share: float) -> str:
    """ "4.7 %"."""
    return f"{100 * share:.1f} %"


def calibration_lines(
    before: dict[str, Any], after: dict[str, Any], *, is_target: bool
) -> Iterator[tuple[str, str]]:
    """Coverage and width on the rows of a calibration, before it and after it."""
    for when, found in (("before", before), ("after", after)):
        if "coverage_95" in found:
            width = f"with a mean width of {found['width_95']:.4g}"
            yield (
                f"95 % intervals {when}",
                f"hold {percent(found['coverage_95'])} of labels, {width}",
            )
        elif "set_coverage_95" in found:
            size = f"with {found['set_size_95']:.2f} classes on average"
            yield (
                f"95 % sets {when}",
                f"hold {percent(found['set_coverage_95'])} of labels, {size}",
            )
    if is_target:
        yield "note", "95 % are to be expected on the target rows, not on these"


def naming_columns(model: TableModel, table: pd.DataFrame) -> list[str]:
    """The columns that name the rows of a table: those of --id, else one that the model ignores."""
    if given := [name for name in model.ids if name in table.columns]:
        return given
    found = naming_column(table, {*model.encoder.names, model.target})
    return [] if found is None else [found]


def naming_column(table: pd.DataFrame, used: set[str]) -> str | None:
    """The first column that is not used, and whose values are complete and differ in all rows."""
    for name in table.columns:
        values = table[name]
        if name in used or values.isna().any() or values.nunique() < len(values):
            continue
        if not pd.api.types.is_float_dtype(values):
            return str(name)
    return None


def _column_words(model: TableModel) -> Iterator[str]:
    encoder = model.encoder
    for name in encoder.names:
        kind = encoder.times.get(name) or ("category" if name in encoder.categories else "number")
        yield f"{name} ({kind})"


def _some(words: Any) -> str:
    shown = list(words)
    more = f" and {len(shown) - MAX_SHOWN} more" if len(shown) > MAX_SHOWN else ""
    return ", ".join(shown[:MAX_SHOWN]) + more


def _calibration_rows(calibration: Calibration) -> str:
    rows = f"{len(calibration.scores):,} rows"
    if calibration.weights is None:
        return rows
    return f"{rows}, weighted for other target rows ({calibration.effective_rows:.0f} effective),"
