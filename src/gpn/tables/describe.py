"""A model of a table in the words of whoever uses it."""

from collections.abc import Iterator
from typing import Any

from gpn.estimators.intervals.calibration import Calibration
from gpn.estimators.ood.thresholds import false_alarm_std
from gpn.tables.model import TableModel

MAX_SHOWN = 12


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
    yield "flags", f"rows unlike the labeled ones; of known rows about 5 % (± {error:.1f} %)"
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
