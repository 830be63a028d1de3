"""A model of a table: an estimator, the columns that it reads, and the one that it predicts."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.special import entr
from sklearn.base import is_classifier
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from gpn import metrics
from gpn.core.checks import require_level
from gpn.estimators.calibration import class_numbers
from gpn.estimators.classifier import GPNClassifier, PosteriorClassifier
from gpn.estimators.conformal import fewest_rows
from gpn.estimators.persistence import save_model
from gpn.estimators.regressor import GPNRegressor, PosteriorRegressor
from gpn.tables.column_types import TableError, numbers_of
from gpn.tables.encoder import Columns, frame
from gpn.tables.fit_record import FitRecord, diagnostics_of, some_rows
from gpn.tables.target import is_class, target_of

if TYPE_CHECKING:
    from pandas import DataFrame, Series


MIN_TO_CALIBRATE = fewest_rows(0.95)

MAX_SEEN = 0.5


@dataclass(frozen=True)
class TableModel:
    """`predict(frame)` gives a frame: what `gpn predict` writes. `record` is the fit's own."""

    estimator: Any
    columns: Columns
    target: str
    record: FitRecord | None = None

    @property
    def is_classifier(self) -> bool:
        return is_classifier(self.estimator)

    @property
    def texts(self) -> list[str]:
        """The columns that hold words: categories, and a target of such classes."""
        worded = self.is_classifier and self.estimator.classes_.dtype.kind in "OU"
        return [*self.columns.categories, *([self.target] if worded else [])]

    def predict(self, table: "DataFrame", level: float = 0.95, fpr: float = 0.05) -> "DataFrame":
        """Mean, std and interval, or classes and their probabilities; and how unknown rows are.

        A calibrated classifier says of each class whether it is in the row's set of that level.
        Rows keep their index, and one with a category that the fit has not seen is unknown.
        """
        require_level(level)
        x, unseen = self.columns.encode_and_flag(table)
        known = self._classes(x, level) if self.is_classifier else self._numbers(x, level)
        scores, limit = self.estimator.ood_score(x), self.estimator.threshold(fpr)
        flags = {"ood_score": scores, "is_ood": (scores > limit) | unseen}
        return frame({**known, **flags}, table.index)

    def _numbers(self, x: Any, level: float) -> dict[str, Any]:
        mean, std = self.estimator.predict(x, return_std=True)
        low, high = self.estimator.predict_interval(x, level)
        return {"mean": mean, "std": std, "lower": low, "upper": high}

    def _classes(self, x: Any, level: float) -> dict[str, Any]:
        p, classes = self.estimator.predict_proba(x), self.estimator.classes_
        columns = {f"p_{name}": p[:, i] for i, name in enumerate(classes)}
        if self.estimator.calibration_scores_ is not None:
            sets = self.estimator.predict_set(x, level)
            columns |= {f"in_{name}": sets[:, i] for i, name in enumerate(classes)}
        return {"class": classes[p.argmax(1)], **columns, "entropy": entr(p).sum(1)}

    def functions(self, n: int, seed: int) -> Callable[["DataFrame"], "DataFrame"]:
        """`n` functions, the same for every table or piece of one that the result is called on.

        One column each: values, or the class that the function finds most probable.
        """
        functions = self.estimator.functions(n, seed)

        def values(table: "DataFrame") -> "DataFrame":
            drawn = functions(self.columns.encode(table))
            own = self.estimator.classes_[drawn.argmax(1)] if self.is_classifier else drawn
            return frame({f"draw_{i}": own[:, i] for i in range(n)}, table.index)

        return values

    def suggest(self, table: "DataFrame", n: int) -> Any:
        """The numbers of the rows to label next."""
        return self.estimator.suggest(self.columns.encode(table), n)

    def calibrate(self, table: "DataFrame") -> None:
        """Make intervals and sets of classes keep their level, by rows that the fit has not seen.

        See `gpn.estimators.calibration`. Rows of the fit would promise too much: refused, as far as
        the model carries its own.
        """
        x, y = self.columns.encode(table), target_of(table, self.target)
        if len(x) < MIN_TO_CALIBRATE:
            raise TableError(
                f"a calibration must have at least {MIN_TO_CALIBRATE} rows, which 95 % takes, "
                f"got {len(x)}; label more."
            )
        labels = self._labels(y)
        seen = 0.0 if self.record is None else self.record.share_in(x, labels)
        if seen > MAX_SEEN:
            raise TableError(
                "a calibration must be by rows that the fit has not seen, got a table that holds "
                f"{seen:.0%} of those it learnt from; keep some labeled rows out of gpn fit."
            )
        self.estimator.calibrate(x, np.asarray(y) if self.is_classifier else labels)

    def evaluate(self, table: "DataFrame", strangers: "DataFrame | None" = None) -> dict[str, Any]:
        """How good predictions are on labeled rows; with strangers, how well those are told."""
        (x, unseen), y = self.columns.encode_and_flag(table), target_of(table, self.target)
        measured = self._class_metrics(x, y) if self.is_classifier else self._errors(x, y)
        scores, flagged = self._scored(x, unseen)
        measured = {"rows": len(x), **measured, "flagged": flagged}
        if strangers is None:
            return measured
        theirs, told = self._scored(*self.columns.encode_and_flag(strangers))
        pair = torch.from_numpy(scores), torch.from_numpy(theirs)
        return {
            **measured,
            "strangers": len(theirs),
            "strangers_flagged": told,
            "ood_auc": metrics.ood_auc(*pair),
            "ood_fpr95": metrics.ood_fpr95(*pair),
        }

    def _scored(self, x: Any, unseen: Any) -> tuple[Any, float]:
        """The rows' scores, and the share of rows that is flagged."""
        scores = self.estimator.ood_score(x)
        return scores, float(((scores > self.estimator.threshold()) | unseen).mean())

    def _labels(self, y: "Series[Any]") -> Any:
        """Targets, or the numbers of classes; other numbers than those of the fit are explained."""
        try:
            return _as_numbers(self.estimator, y)
        except ValueError as error:
            if not self.is_classifier or self.estimator.classes_.dtype.kind not in "iu":
                raise
            raise TableError(
                f"{error} Where {self.target!r} counts or measures something, fit it as numbers: "
                "gpn fit --kind regression, or fit_table(..., classes=False)."
            ) from error

    def _errors(self, x: Any, y: "Series[Any]") -> dict[str, Any]:
        truth, mean = self._labels(y), self.estimator.predict(x)
        low, high = self.estimator.predict_interval(x)
        return {
            "rmse": float(root_mean_squared_error(truth, mean)),
            "mae": float(mean_absolute_error(truth, mean)),
            "r2": float(r2_score(truth, mean)) if np.ptp(truth) > 0 else None,
            "coverage_95": float(((low <= truth) & (truth <= high)).mean()),
            "width_95": float((high - low).mean()),
        }

    def _class_metrics(self, x: Any, y: "Series[Any]") -> dict[str, float]:
        numbers = torch.from_numpy(self._labels(y)).long()
        p = torch.from_numpy(self.estimator.predict_proba(x))
        return {
            **self._set_metrics(x, numbers.numpy()),
            "accuracy": float((p.argmax(1) == numbers).double().mean()),
            "nll": float(metrics.class_nll(p, numbers)),
            "ece": float(metrics.calibration_error(p, numbers)),
        }

    def _set_metrics(self, x: Any, numbers: Any) -> dict[str, float]:
        """How often the class is in its set of 95 %, and how many are, once calibrated."""
        if self.estimator.calibration_scores_ is None:
            return {}
        sets = self.estimator.predict_set(x)
        right = sets[np.arange(len(sets)), numbers]
        return {
            "set_coverage_95": float(right.mean()),
            "set_size_95": float(sets.sum(1).mean()),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """The whole model as one file, for `gpn.load`."""
        more: dict[str, Any] = {"columns": self.columns.facts(), "target": self.target}
        if self.record is None:
            save_model(self.estimator, path, **more)
            return
        more["record"] = self.record.facts()
        save_model(self.estimator, path, arrays=self.record.arrays(), **more)


def fit_table(
    labeled: "DataFrame",
    target: str,
    unlabeled: "DataFrame | None" = None,
    *,
    classes: bool | None = None,
    method: str = "gpn",
    keep_rows: bool = True,
    **options: Any,
) -> TableModel:
    """A model of `target`; `classes` None looks at its values.

    With `keep_rows` the model carries at most 2,000 labeled rows, for its report.
    """
    target = str(target)
    y = target_of(labeled, target)
    columns = Columns.of(labeled, target)
    kinds: dict[bool, Any] = {False: GPNRegressor, True: GPNClassifier}
    if method != "gpn":
        kinds = {False: PosteriorRegressor, True: PosteriorClassifier}
        if options.pop("device", "auto") not in ("auto", "cpu"):
            raise TableError(f"a device can be chosen for the method gpn only, got {method!r}.")
        options = {"method": method, **options}
    with_classes = is_class(y) if classes is None else classes
    if not with_classes:
        y = numbers_of(y)
    estimator = kinds[with_classes](**options)
    x, pool = columns.encode(labeled), None if unlabeled is None else columns.encode(unlabeled)
    with _remembered() as said:
        estimator.fit(x, np.asarray(y), pool)
    record = FitRecord(
        len(x),
        None if pool is None else len(pool),
        columns.notes,
        said,
        diagnostics_of(estimator.posterior_),
        *(some_rows(x, _as_numbers(estimator, y)) if keep_rows else ()),
    )
    return TableModel(estimator, columns, target, record)


@contextmanager
def _remembered() -> Iterator[list[str]]:
    """The texts of all warnings, which are given as ever once this ends."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    for entry in caught:
        texts.append(str(entry.message))
        warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)


def _as_numbers(estimator: Any, y: "Series[Any]") -> Any:
    """Targets, or the numbers of classes."""
    if not is_classifier(estimator):
        return np.asarray(numbers_of(y))
    return class_numbers(estimator.classes_, y).astype(np.float64)
