"""A model of a table: an estimator, the columns that it reads, and the one that it predicts."""

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from gpn import metrics
from gpn.columns.column_types import TableError
from gpn.columns.encoder import TableEncoder, as_table
from gpn.core.checks import require_level
from gpn.core.warnings import warn_caller
from gpn.estimators.classifier import ClassPrediction, GPNClassifier, PosteriorClassifier
from gpn.estimators.intervals.calibration import class_numbers
from gpn.estimators.intervals.conformal import fewest_rows
from gpn.estimators.ood.drift.checks import Drift
from gpn.estimators.ood.drift.rows import drift_of
from gpn.estimators.persistence import load_parts, save_model
from gpn.estimators.regressor import GPNRegressor, PosteriorRegressor, Prediction
from gpn.saving.format import SavedModel
from gpn.saving.validation import are_texts, as_model_error, check
from gpn.tables.fit_record import FitRecord, rows_to_store
from gpn.tables.reading import Reading
from gpn.tables.summary import BaselineWarning, behind_baseline, fit_summary
from gpn.tables.target import has_labels, is_class, split_unlabeled, target_column, target_numbers

Array = NDArray[Any]

MIN_CALIBRATION_ROWS = fewest_rows(0.95)
MAX_SHARE_SEEN = 0.5  # of the rows to calibrate with, or of the stored labeled rows


@dataclass(frozen=True)
class TableModel:
    """`predict(table)` gives a table: what `gpn predict` writes.

    Of a number it has `mean`; `std`, the deviation of the function alone (epistemic); `lower` and
    `upper`, the ends of an interval for a new label; and last `std_total`, the deviation of a new
    label (function and noise together). Of a class it has the class, a probability for each, and
    their entropy. `ood_score` and `is_ood` say how unlike the labeled rows a row is.

    record: describes the fit. reading: how the files of the fit are written. ids: the columns that
    name the rows.
    """

    estimator: Any
    encoder: TableEncoder
    target: str
    record: FitRecord | None = None
    reading: Reading = field(default_factory=Reading)
    ids: tuple[str, ...] = ()

    @property
    def is_classifier(self) -> bool:
        return is_classifier(self.estimator)

    @property
    def texts(self) -> list[str]:
        """The columns to read as texts: categories, and a target of words or decimal commas."""
        if self.is_classifier:
            worded = self.estimator.classes_.dtype.kind in "OU"
        else:
            worded = self.reading.decimal == ","
        return [*self.encoder.texts, *([self.target] if worded else [])]

    def predict(self, table: pd.DataFrame, level: float = 0.95, fpr: float = 0.05) -> pd.DataFrame:
        """Mean, deviations and interval, or classes and probabilities; and OOD scores and flags.

        A calibrated classifier says of each class whether it is in the row's set of that level.
        Rows keep their index. A row with a category that the fit has not seen is flagged as OOD;
        `attrs["n_unseen"]` counts these rows.
        """
        require_level(level)
        x, unseen = self.encoder.transform_and_flag(table)
        found = self.predict_inputs(x, unseen, level, fpr)
        return found.set_axis(table.index)

    def predict_inputs(
        self, x: Array, unseen: NDArray[np.bool_], level: float = 0.95, fpr: float = 0.05
    ) -> pd.DataFrame:
        """As `predict`, of rows that the encoder has read (`TableEncoder.transform_and_flag`)."""
        require_level(level)
        found = self.estimator.predict_all(x, level, fpr)
        columns = self._class_columns(found) if self.is_classifier else found._asdict()
        columns |= {"ood_score": found.ood_score, "is_ood": found.is_ood | unseen}
        frame = pd.DataFrame(columns)
        frame.attrs["n_unseen"] = int(unseen.sum())
        return frame

    def _class_columns(self, found: ClassPrediction) -> dict[str, Array]:
        classes = list(enumerate(self.estimator.classes_))
        columns = {"class": found.label}
        columns |= {f"p_{name}": found.probabilities[:, i] for i, name in classes}
        if found.in_set is not None:
            columns |= {f"in_{name}": found.in_set[:, i] for i, name in classes}
        return {**columns, "entropy": found.entropy}

    def functions(self, n: int, seed: int) -> Callable[[pd.DataFrame], pd.DataFrame]:
        """`n` posterior functions: the result maps any table, or chunk of one, to their values.

        One column each: values, or the class that the function finds most probable.
        """
        functions = self.estimator.functions(n, seed)

        def values(table: pd.DataFrame) -> pd.DataFrame:
            drawn = functions(self.encoder.transform(table))
            if self.is_classifier:
                drawn = self.estimator.classes_[drawn.argmax(1)]
            return pd.DataFrame({f"draw_{i}": drawn[:, i] for i in range(n)}, index=table.index)

        return values

    def suggest(self, table: pd.DataFrame, n: int) -> NDArray[np.int64]:
        """The numbers of the rows to label next."""
        return self.estimator.suggest(self.encoder.transform(table), n)

    def calibrate(self, table: pd.DataFrame, target_rows: pd.DataFrame | None = None) -> None:
        """Calibrate intervals and sets of classes by labeled rows that the fit has not seen.

        See `gpn.estimators.intervals.calibration`. Rows of the fit would make intervals too
        narrow: they are refused, as far as the model stores its labeled rows. Rows without a
        label are skipped. With `target_rows`, unlabeled rows of another distribution, the level
        holds on rows like those (`GPNRegressor.calibrate`).
        """
        table = split_unlabeled(table, self.target)[0]
        x, y = self.encoder.transform(table), target_column(table, self.target)
        if len(x) < MIN_CALIBRATION_ROWS:
            raise TableError(
                f"a calibration must have at least {MIN_CALIBRATION_ROWS} labeled rows, the least "
                f"for 95 %, got {len(x)}; label more."
            )
        labels = self._labels(y)
        seen = 0.0 if self.record is None else self.record.share_in(x, labels)
        if seen > MAX_SHARE_SEEN:
            raise TableError(
                "a calibration must be by rows that the fit has not seen, got a table that shares "
                f"{seen:.0%} with those it learnt from; keep some labeled rows out of gpn fit."
            )
        target_x = None if target_rows is None else self.encoder.transform(target_rows)
        self.estimator.calibrate(x, np.asarray(y) if self.is_classifier else labels, target_x)

    def evaluate(self, table: pd.DataFrame, ood: pd.DataFrame | None = None) -> dict[str, Any]:
        """How good predictions are on labeled rows, and how well OOD rows are detected.

        Rows without a label are skipped, and counted.
        """
        table, blank = split_unlabeled(table, self.target)
        (x, unseen), y = self.encoder.transform_and_flag(table), target_column(table, self.target)
        labels, found = self._labels(y), self.estimator.predict_all(x)
        metrics_of = _class_metrics if self.is_classifier else _number_metrics
        values = {
            "rows": len(x),
            **({"rows_without_label": len(blank)} if len(blank) else {}),
            **metrics_of(found, labels),
            "flagged": float((found.is_ood | unseen).mean()),
        }
        if ood is None:
            return values
        x_ood, unseen = self.encoder.transform_and_flag(ood)
        scores = self.estimator.ood_score(x_ood)
        pair = torch.from_numpy(found.ood_score), torch.from_numpy(scores)
        return {
            **values,
            "ood_rows": len(scores),
            "ood_flagged": float(((scores > self.estimator.threshold()) | unseen).mean()),
            "ood_auc": metrics.ood_auc(*pair),
            "ood_fpr95": metrics.ood_fpr95(*pair),
        }

    def drift(
        self,
        table: pd.DataFrame,
        reference: pd.DataFrame | None = None,
        *,
        fpr: float = 0.05,
        level: float = 0.95,
        false_alarms: float = 0.01,
    ) -> Drift:
        """Whether new rows still look like those of the fit (`GPNRegressor.drift`).

        Labels count where the table has them: blank cells of the target are not known yet.
        """
        return drift_of(
            self.estimator,
            self.encoder.transform(table),
            self._known_labels(table) if has_labels(table, self.target) else None,
            None if reference is None else self.encoder.transform(reference),
            encoder=self.encoder,
            tables=(table, reference),
            fpr=fpr,
            level=level,
            false_alarms=false_alarms,
        )

    def _known_labels(self, table: pd.DataFrame) -> Array:
        """The labels of a table, with None or NaN where a row has none."""
        numbered = as_table(table).reset_index(drop=True)
        labeled, _ = split_unlabeled(numbered, self.target)
        found = target_column(labeled, self.target)
        known = np.asarray(found) if self.is_classifier else self._labels(found)
        labels = np.full(len(numbered), None, dtype=object)
        labels[labeled.index] = known
        return labels if self.is_classifier else labels.astype(np.float64)

    def _labels(self, y: pd.Series) -> Array:
        """Targets, or the numbers of classes; a class that the fit has not seen is an error."""
        try:
            return _label_numbers(self.estimator, y, self.reading.decimal)
        except ValueError as error:
            if not self.is_classifier or self.estimator.classes_.dtype.kind not in "iu":
                raise
            raise TableError(
                f"{error} Where {self.target!r} counts or measures something, fit it as numbers: "
                "gpn fit --kind regression, or fit_table(..., classes=False)."
            ) from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole model as one file, for `gpn.load`."""
        fields: dict[str, Any] = {"columns": self.encoder.to_dict(), "target": self.target}
        if self.reading != Reading():
            fields["reading"] = self.reading.to_dict()
        if self.ids:
            fields["ids"] = list(self.ids)
        if self.record is None:
            save_model(self.estimator, path, fields=fields)
        else:
            fields["record"] = self.record.to_dict()
            save_model(self.estimator, path, fields=fields, arrays=self.record.arrays())

    def export_onnx(
        self, path: str | os.PathLike[str], *, level: float = 0.95, fpr: float = 0.05
    ) -> None:
        """Write what `predict` computes as an ONNX file, for runtimes without Python.

        For regressors of numeric columns in closed form; others are refused, with the reason. The
        input "rows" holds the columns of `encoder.names`; the outputs are those of `predict`.
        Needs `pip install gpn[onnx]`.
        """
        from gpn.tables.engines.onnx_graph import export_onnx

        export_onnx(self, Path(path), level=level, fpr=fpr)


def _number_metrics(found: Prediction, y: Array) -> dict[str, Any]:
    return {
        "rmse": float(root_mean_squared_error(y, found.mean)),
        "mae": float(mean_absolute_error(y, found.mean)),
        "r2": float(r2_score(y, found.mean)) if np.ptp(y) > 0 else None,
        "coverage_95": float(((found.lower <= y) & (y <= found.upper)).mean()),
        "width_95": float((found.upper - found.lower).mean()),
    }


def _class_metrics(found: ClassPrediction, y: Array) -> dict[str, Any]:
    """Metrics of probabilities, and of the sets of classes once they are calibrated."""
    classes, p = torch.from_numpy(y).long(), torch.from_numpy(found.probabilities)
    values = {
        "accuracy": float((p.argmax(1) == classes).double().mean()),
        "nll": float(metrics.class_nll(p, classes)),
        "ece": float(metrics.calibration_error(p, classes)),
    }
    if found.in_set is None:
        return values
    covered = found.in_set[np.arange(len(y)), classes.numpy()]
    sizes = found.in_set.sum(1)
    sets = {"set_coverage_95": float(covered.mean()), "set_size_95": float(sizes.mean())}
    return {**sets, **values}


def load_table_model(saved: SavedModel, device: torch.device) -> TableModel:
    """The model that `TableModel.save` wrote; what the file says is checked."""
    estimator, fields, arrays = load_parts(saved, device)
    with as_model_error(f"{saved.path}: the columns and the target must be complete"):
        width, target, record = fields["n_features"], fields["target"], fields.get("record")
        encoder = TableEncoder.from_dict(fields["columns"])
        check(encoder.width == width, f"columns must make {width} numbers of a row", encoder.width)
        check(type(target) is str, "the target must be a text", target)
        check(fields["flat"] in (True, None), "a table must have one target", fields["flat"])
        if record is not None:
            record = FitRecord.from_dict(record, width, arrays)
        ids = fields.get("ids", [])
        check(are_texts(ids), "ids must be texts", ids)
        reading = Reading.from_dict(fields.get("reading", {}))
        return TableModel(estimator, encoder, target, record, reading, tuple(ids))


def fit_table(
    labeled: pd.DataFrame,
    target: str,
    unlabeled: pd.DataFrame | None = None,
    *,
    classes: bool | None = None,
    method: str = "gpn",
    keep_rows: bool = True,
    drop: Sequence[str] = (),
    ids: Sequence[str] = (),
    keep: Sequence[str] = (),
    dates: Mapping[str, str] | None = None,
    reading: Reading | None = None,
    **options: Any,
) -> TableModel:
    """A model of `target`; `classes` None decides by its values.

    Rows without a label join the unlabeled ones. With `keep_rows` the model stores at most 2,000
    labeled rows, for its report. drop: columns not to read. ids: columns that name the rows, not
    read either. keep, dates: see `TableEncoder.fit`. reading: how the model's files are written.
    """
    started, target, reading = time.perf_counter(), str(target), reading or Reading()
    labeled, blank = split_unlabeled(labeled, target)
    y = target_column(labeled, target)
    encoder = TableEncoder.fit(
        labeled, target, drop=(*drop, *ids), keep=keep, dates=dates, decimal=reading.decimal
    )
    others = [rows for rows in (unlabeled, blank) if rows is not None and len(rows)]
    for rows in others:
        encoder = encoder.tolerating(rows)
    with_classes = is_class(y, reading.decimal) if classes is None else classes
    if not with_classes:
        y = target_numbers(y, reading.decimal)
    estimator = _estimator(method, options, with_classes=with_classes)
    x = encoder.transform(labeled)
    pool = np.concatenate([encoder.transform(rows) for rows in others]) if others else None
    with _recorded_warnings() as messages:
        estimator.fit(x, np.asarray(y), pool)
    labels = _label_numbers(estimator, y, reading.decimal)
    stored = rows_to_store(x, labels) if keep_rows else (None, None)
    report = getattr(estimator.posterior_, "fit_report", None)  # of a GPN
    summary = fit_summary(estimator, x, labels, time.perf_counter() - started)
    if (behind := behind_baseline(summary)) is not None:
        messages.append(behind)
        warn_caller(behind, BaselineWarning)
    record = FitRecord(
        labeled=len(x),
        unlabeled=None if pool is None else len(pool),
        notes=encoder.notes,
        warnings=messages,
        diagnostics={} if report is None else report.to_dict(),
        summary=summary,
        x=stored[0],
        y=stored[1],
    )
    return TableModel(estimator, encoder, target, record, reading, tuple(ids))


def _estimator(method: str, options: dict[str, Any], *, with_classes: bool) -> Any:
    """The estimator to fit; only a GPN chooses its device."""
    if method == "gpn":
        return (GPNClassifier if with_classes else GPNRegressor)(**options)
    options = {"method": method, **options}
    if options.pop("device", "auto") not in ("auto", "cpu"):
        raise TableError(f"a device can be chosen for the method gpn only, got {method!r}.")
    return (PosteriorClassifier if with_classes else PosteriorRegressor)(**options)


@contextmanager
def _recorded_warnings() -> Iterator[list[str]]:
    """The texts of all warnings, which are shown as usual once this ends."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    for entry in caught:
        texts.append(str(entry.message))
        warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)


def _label_numbers(estimator: Any, y: pd.Series, decimal: str) -> NDArray[np.float64]:
    """Targets, or the numbers of classes."""
    if not is_classifier(estimator):
        return np.asarray(target_numbers(y, decimal))
    return class_numbers(estimator.classes_, y).astype(np.float64)
