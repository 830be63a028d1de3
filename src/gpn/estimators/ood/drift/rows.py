"""What the checks of drift compare: rows of an estimator, its stored labels, and known labels."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from gpn.core.checks import require_level
from gpn.estimators.intervals.calibration import class_numbers
from gpn.estimators.ood.drift.checks import (
    Column,
    Drift,
    Inputs,
    Labels,
    Observed,
    Reference,
    find_drift,
)

Array = NDArray[Any]
Flags = NDArray[np.bool_]

NO_ROWS = (
    "columns are not compared, as this model stores no labeled rows of a table; pass reference rows"
)
NO_LABELS = "labels of these rows are not known, so that coverage is not checked"
NO_SETS = "labels are not checked, as sets of classes need calibrate(X, y)"
NO_NOISE = "labels are not checked, as this model does not know their noise; use calibrate(X, y)"
UNCALIBRATED = 4  # labels that count as one of a calibration


def drift_of(
    estimator: Any,
    X: Any,
    y: Any,
    X_reference: Any,
    *,
    encoder: Any,
    tables: tuple[Any, Any],
    fpr: float,
    level: float,
    false_alarms: float,
) -> Drift:
    """The drift of rows X against X_reference, or against the labels that the estimator stores.

    tables: the frames of both, of which an encoder knows the new values.
    """
    require_level(level)
    check_false_alarms(false_alarms)
    unknown = []
    seen = observed(estimator, X, encoder, tables[0], fpr)
    known = Reference(len(estimator.reference_scores_), _stored(estimator))
    if X_reference is not None:
        other = observed(estimator, X_reference, encoder, tables[1], fpr)
        known = Reference(len(other.flags), other.inputs, other.flags, other.new_values)
    if seen.inputs is None or known.inputs is None:
        unknown.append(NO_ROWS)
    labels = None
    if y is None:
        unknown.append(NO_LABELS)
    else:
        labels, why = known_labels(estimator, X, y, level)
        unknown.extend(why)
    columns = columns_of(estimator, encoder)
    return find_drift(
        seen, known, columns, labels, fpr=fpr, false_alarms=false_alarms, unknown=unknown
    )


def check_false_alarms(share: float) -> None:
    """Raise unless it is a probability of alarms that a person could want."""
    if not 0 < share < 1:
        raise ValueError(f"false_alarms must lie strictly between 0 and 1, got {share}; try 0.01.")


def observed(estimator: Any, X: Any, encoder: Any, table: Any, fpr: float) -> Observed:
    """Flags, new values and inputs of rows, and the columns with new values."""
    new_values, new_in = None, []
    if encoder is not None and (encoder.categories or encoder.constants):
        new_values = encoder.unseen_rows(table)
        new_in = encoder.columns_with_new_values(table)
    scaled = estimator._inputs(X)
    flags = estimator._scores(scaled) > estimator.threshold(fpr)
    if scaled.ndim != 2:
        return Observed(flags, new_values, None, new_in)
    rows = scaled[:, : estimator._n_inputs].double().cpu().numpy()
    return Observed(flags, new_values, _inputs(estimator, _standard(estimator, rows)), new_in)


def _standard(estimator: Any, scaled: Array) -> Array:
    """Scaled rows as the detector stores labels, to the last digit."""
    detector = estimator.detector_
    return scaled if detector is None else (scaled - detector.shift) / detector.scale


def _inputs(estimator: Any, standard: Array) -> Inputs:
    """With the units of the data beside them."""
    detector = estimator.detector_
    scaled = standard if detector is None else standard * detector.scale + detector.shift
    return Inputs(standard, estimator.x_scale_.invert(scaled))


def _stored(estimator: Any) -> Inputs | None:
    """The labeled rows that the model stores for its detector, with their copies."""
    detector, repeated = estimator.detector_, getattr(estimator, "repeated_rows_", None)
    if detector is None:
        return None
    rows = detector.labels if repeated is None else _standard(estimator, repeated)
    return _inputs(estimator, rows)


def columns_of(estimator: Any, encoder: Any) -> list[Column]:
    """The columns of a table, by an encoder where there is one."""
    if encoder is not None:
        return [
            Column(name, place, _values(encoder, name), partial(encoder.shown, name))
            for name, place in encoder.places().items()
        ]
    names = getattr(estimator, "feature_names_in_", None)
    width = estimator._n_inputs
    named = [str(i) for i in range(width)] if names is None else [str(name) for name in names]
    return [Column(name, slice(i, i + 1)) for i, name in enumerate(named)]


def _values(encoder: Any, name: str) -> tuple[str, ...] | None:
    return tuple(encoder.categories[name]) if name in encoder.categories else None


def known_labels(
    estimator: Any, X: Any, y: Any, level: float
) -> tuple[Labels | None, Sequence[str]]:
    """Which labels lie in their intervals or sets, or why that cannot be said."""
    labels = np.asarray(y)
    if len(labels) != _num_samples(X):
        raise ValueError(
            f"y must have a label, or NaN, for each of the {_num_samples(X)} rows, got "
            f"{len(labels)}."
        )
    has_label = ~is_missing(labels)
    if not has_label.any():
        return None, [NO_LABELS]
    rows, labels = _safe_indexing(X, np.flatnonzero(has_label)), labels[has_label]
    calibration = estimator.calibration_
    # intervals that are not calibrated hold their level less closely
    n_learnt = max(1, len(estimator.reference_scores_) // UNCALIBRATED)
    if calibration is not None:
        n_learnt = max(1, int(calibration.effective_rows))
    if is_classifier(estimator):
        if calibration is None:
            return None, [NO_SETS]
        numbers = class_numbers(estimator.classes_, labels)
        in_set = estimator.predict_set(rows, level)[np.arange(len(numbers)), numbers]
        return Labels(in_set[:, None], level, n_learnt, [""]), []
    if calibration is None and not _knows_noise(estimator):
        return None, [NO_NOISE]
    low, high = estimator.predict_interval(rows, level)
    inside = np.logical_and(low <= labels, labels <= high).reshape(len(labels), -1)
    n = inside.shape[1]
    return Labels(inside, level, n_learnt, [""] if n == 1 else _target_names(n)), []


def _target_names(n: int) -> list[str]:
    return [f" of target {i}" for i in range(n)]


def _knows_noise(estimator: Any) -> bool:
    return estimator.label_noise_ is not None or estimator.posterior_.noise_std is not None


def is_missing(labels: Array) -> Flags:
    """Rows whose label is not known: NaN, or None."""
    if labels.dtype.kind == "O":
        return np.array([value is None or value != value for value in labels.tolist()])
    if labels.dtype.kind != "f":
        return np.zeros(len(labels), dtype=bool)
    return np.isnan(labels.reshape(len(labels), -1)).sum(1) > 0
