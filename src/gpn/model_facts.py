"""What a model file says of its estimator, checked: names, classes, columns, arrays and rows."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gpn.cells import TIMES
from gpn.columns import Columns
from gpn.core.task import Signature
from gpn.fit_record import FitRecord
from gpn.restoring import require
from gpn.scaling import Scale

LONGEST_CLASS = 10_000  # characters


def check_facts(facts: Any, signature: Signature) -> None:
    """That the estimator's facts are those of a posterior with this signature."""
    require(isinstance(facts, dict), "the facts must be an object", facts)
    width, names = facts["n_features"], facts["features"]
    require(
        type(width) is int and width == signature.input_shape[0],
        f"n_features must be {signature.input_shape[0]}",
        width,
    )
    require(names is None or _texts(names, width), "there must be a name per feature", names)
    if not signature.is_classification:
        require(facts["targets"] == signature.n_outputs, "targets must be outputs", facts)
        require(type(facts["flat"]) is bool, "flat must be true or false", facts["flat"])


def classes_of(facts: dict[str, Any], signature: Signature) -> NDArray[Any]:
    """The classes, as an array of the dtype that they had."""
    dtype, given = facts["dtype"], facts["classes"]
    known = type(dtype) is str and re.fullmatch(r"[<>|=]?([biuf]\d{1,2}|U\d{1,5})|object", dtype)
    require(bool(known), "classes must be numbers or texts", dtype)
    size = np.dtype(dtype).itemsize
    require(size <= 4 * LONGEST_CLASS, "the names of classes must be short", dtype)
    plain = isinstance(given, list) and all(isinstance(c, bool | int | float | str) for c in given)
    require(plain and len(given) == signature.n_outputs, "there must be a class per output", given)
    require(len(set(given)) == len(given), "classes must differ", given)
    return np.array(given, dtype=dtype)


def checked_scale(name: str, scale: Scale, shape: tuple[int, ...]) -> Scale:
    """Shifts and scales of columns; those of images are single numbers."""
    for values in (scale.shift, scale.scale):
        numbers(f"{name} must have a finite number per column", values, shape)
    require(bool((scale.scale > 0).all()), f"{name} must be positive", scale.scale)
    return scale


def numbers(what: str, values: Any, shape: tuple[int | None, ...]) -> NDArray[np.float64]:
    """An array of finite numbers; None stands for any length."""
    fits = len(shape) == values.ndim and all(
        wanted in (None, size) for wanted, size in zip(shape, values.shape, strict=True)
    )
    require(fits and values.dtype.kind == "f", what, f"{values.dtype} {values.shape}")
    require(bool(np.isfinite(values).all()), what, "others")
    return values


def columns_of(facts: dict[str, Any], width: int) -> Columns:
    """The columns of a table's model, which make `width` numbers of each row."""
    given = facts["columns"]
    named = isinstance(given, dict) and set(given) | {"times"} == {"medians", "categories", "times"}
    require(named, *_columns(given))
    medians, categories = given["medians"], given["categories"]
    require(isinstance(medians, dict) and isinstance(categories, dict), *_columns(given))
    require(not set(medians) & set(categories), "a column must be of one kind", given)
    finite = all(type(v) in (int, float) and abs(v) < float("inf") for v in medians.values())
    require(finite, "medians must be finite numbers", medians)
    for values in categories.values():
        require(_texts(values) and len(values) > 0, "categories must be texts", values)
        require(len(set(values)) == len(values), "categories must differ", values)
    total = len(medians) + sum(map(len, categories.values()))
    require(total == width, f"columns must make {width} numbers of a row", total)
    require(type(facts["target"]) is str, "the target must be a text", facts["target"])
    require(facts["flat"] in (True, None), "a table must have one target", facts["flat"])
    known = {name: float(value) for name, value in medians.items()}
    return Columns(known, categories, times=_times_of(given.get("times", {}), medians))


def _times_of(given: Any, medians: Mapping[str, Any]) -> dict[str, str]:
    """Which columns of numbers are seconds of a date or of a duration."""
    right = isinstance(given, dict) and all(
        name in medians and type(kind) is str and kind in TIMES for name, kind in given.items()
    )
    require(right, "times must say date or duration of columns of numbers", given)
    return given


def record_of(facts: Any, width: int, x: Tensor | None, y: Tensor | None) -> FitRecord | None:
    """What the fit remembered, with the rows that came along."""
    if facts is None:
        return None
    record = FitRecord(**facts)
    counts = record.labeled, 0 if record.unlabeled is None else record.unlabeled
    require(all(type(count) is int for count in counts), "rows must be counted", counts)
    for said in (record.notes, record.warnings):
        require(_texts(said), "what a fit said must be texts", said)
    found = record.diagnostics
    require(isinstance(found, dict), "diagnostics must have names", found)
    trials = found.get("beta_search", [])
    listed = isinstance(trials, list) and all(isinstance(trial, dict) for trial in trials)
    require(listed, "a search must be a list of trials", trials)
    if x is None or y is None:
        return record
    rows = numbers("labeled rows must be finite numbers", x.numpy(), (None, width))
    targets = numbers("labels must be finite, one per row", y.numpy(), (len(rows),))
    return FitRecord(**facts, x=rows, y=targets)


def scores_of(tensors: Mapping[str, Tensor], name: str) -> NDArray[np.float64]:
    return numbers("reference scores must be finite numbers", tensors[name].numpy(), (None,))


def calibration_of(tensor: Tensor | None, outputs: int) -> NDArray[np.float64] | None:
    """The scores of calibration rows, the smallest first; None of a model without them."""
    if tensor is None:
        return None
    what = f"calibration scores must be {outputs} columns of numbers from 0 on, in order"
    scores = numbers(what, tensor.numpy(), (None, outputs)).astype(np.float64)
    require(len(scores) > 0 and bool((scores >= 0).all()), what, "others")
    require(bool((np.diff(scores, axis=0) >= 0).all()), what, "another order")
    return scores


def _columns(given: Any) -> tuple[str, Any]:
    return "columns must have medians and categories by name", given


def _texts(values: Any, count: int | None = None) -> bool:
    listed = isinstance(values, list) and all(type(value) is str for value in values)
    return listed and count in (None, len(values))
