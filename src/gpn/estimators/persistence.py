"""A fitted estimator as one file: that of its posterior, with scales, classes and options added.

The header has one string more, `estimator`: a JSON object with the estimator's class, the options
of its constructor ("given"), feature names and classes. Arrays are tensors whose names begin with
"estimator/". Every value is checked when a file is loaded.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import is_classifier

from gpn.core.posterior.base import Posterior
from gpn.core.task import Signature
from gpn.estimators.base import ESTIMATORS
from gpn.estimators.closed_form.class_mean import ClassMean
from gpn.estimators.closed_form.mean import MeanModel
from gpn.estimators.closed_form.networks import FoldNetworks
from gpn.estimators.closed_form.trees import Trees
from gpn.estimators.gpn import GPNOptions
from gpn.estimators.intervals.calibration import Calibration
from gpn.estimators.intervals.label_noise import LabelNoise
from gpn.estimators.ood.detector import Detector
from gpn.estimators.ood.label_range import LabelRange
from gpn.estimators.scaling import Scale
from gpn.methods.gpn import GPNConfig
from gpn.metrics import CLASS_OOD_SCORES
from gpn.saving.encoding import decode, decode_settings, encode
from gpn.saving.format import SavedModel, restore_posterior
from gpn.saving.validation import are_texts, as_model_error, check, finite_array

Arrays = Mapping[str, NDArray[Any]]

PREFIX = "estimator/"
MAX_CLASS_LENGTH = 10_000  # characters
MAX_SEED = 2**32 - 1


def save_model(
    model: Any,
    path: str | os.PathLike[str],
    *,
    fields: Mapping[str, Any] | None = None,
    arrays: Arrays | None = None,
) -> None:
    """Write a fitted estimator to `path`; `fields` and `arrays` are stored with its own."""
    saved = SavedModel.of(model.posterior_, path)
    header = {**saved.header, "estimator": json.dumps({**_fields(model), **(fields or {})})}
    every = {**_arrays(model), **(arrays or {})}
    tensors = {f"{PREFIX}{name}": torch.tensor(array).contiguous() for name, array in every.items()}
    replace(saved, header=header, tensors={**saved.tensors, **tensors}).write()


def load_model(saved: SavedModel, device: torch.device) -> Any:
    """The estimator that `save_model` wrote."""
    return load_parts(saved, device)[0]


def load_parts(saved: SavedModel, device: torch.device) -> tuple[Any, dict[str, Any], Arrays]:
    """The estimator, and all fields and arrays that were stored with it."""
    own = {name: value for name, value in saved.tensors.items() if name.startswith(PREFIX)}
    rest = {name: value for name, value in saved.tensors.items() if name not in own}
    fields = saved.json("estimator")
    posterior = restore_posterior(replace(saved, tensors=rest), device)
    with as_model_error(f"{saved.path}: the estimator must be complete"):
        arrays = {name.removeprefix(PREFIX): tensor.numpy() for name, tensor in own.items()}
        _check_fields(fields, posterior.signature)
        return _restored(fields, posterior, arrays), fields, arrays


def _fields(model: Any) -> dict[str, Any]:
    """All but arrays: options, names, classes, shapes."""
    classes, names = getattr(model, "classes_", None), getattr(model, "feature_names_in_", None)
    settings = getattr(model, "settings", None)
    return {
        "class": type(model).__name__,
        "method": getattr(model, "method", None),
        "settings": settings and {name: encode(value) for name, value in settings.items()},
        "given": _options(model),
        "n_features": model._n_inputs,
        **_encoder_fields(model),
        "mean_columns": _mean_columns(model),
        "features": None if names is None else [str(name) for name in names],
        "classes": None if classes is None else classes.tolist(),
        "dtype": None if classes is None else _dtype(classes),
        "ood_measure": getattr(model, "ood_measure_", None),
        "targets": getattr(model, "n_targets_", None),
        "flat": getattr(model, "_flat", None),
    }


def _encoder_fields(model: Any) -> dict[str, Any]:
    """The encoder of a frame, and how many columns the frame has."""
    encoder = getattr(model, "encoder_", None)
    if encoder is None:
        return {}
    return {"encoder": encoder.to_dict(), "n_columns": int(model.n_features_in_)}


def _mean_columns(model: Any) -> int:
    """How many columns the mean model adds: one for each target or class."""
    if getattr(model, "mean_", None) is None:
        return 0
    return len(model.classes_) if is_classifier(model) else model.n_targets_


def _options(model: Any) -> dict[str, Any]:
    """The constructor's options, but for method and settings, which are fields themselves.

    A seed is stored as a number; a random generator in its place becomes None.
    """
    options = model.get_params(deep=False)
    for name in ("method", "settings"):
        options.pop(name, None)
    seed = options["random_state"]
    options["random_state"] = int(seed) if isinstance(seed, Integral) else None
    options["verbose"] = bool(options["verbose"])
    return {name: encode(value) for name, value in options.items()}


def _dtype(classes: NDArray[Any]) -> str:
    """The name of the classes' dtype."""
    if classes.dtype.kind not in "biufUO":
        raise TypeError(
            f"classes must be numbers or texts to be saved, got an array of {classes.dtype}."
        )
    if classes.dtype.itemsize > 4 * MAX_CLASS_LENGTH:
        raise ValueError(
            f"the names of classes must have at most {MAX_CLASS_LENGTH} characters to be saved, "
            f"got {classes.dtype}."
        )
    return "object" if classes.dtype.kind == "O" else classes.dtype.str


def _arrays(model: Any) -> dict[str, NDArray[Any]]:
    arrays = {"reference_scores": model.reference_scores_}
    if getattr(model, "medians_", None) is not None:
        arrays["medians"] = model.medians_
    if getattr(model, "repeated_rows_", None) is not None:
        arrays["repeated_rows"] = model.repeated_rows_
    if model.calibration_ is not None:
        arrays["calibration"] = model.calibration_.scores
        if model.calibration_.weights is not None:
            arrays["calibration_weights"] = model.calibration_.weights
    for name in ("x_scale_", "y_scale_"):
        if (scale := getattr(model, name, None)) is not None:
            arrays |= {f"{name}shift": scale.shift, f"{name}scale": scale.scale}
            if scale.bend is not None:
                arrays[f"{name}bend"] = np.where(np.isfinite(scale.bend), scale.bend, 0.0)
    return arrays | _mean_arrays(model) | _noise_arrays(model) | _detector_arrays(model)


def _detector_arrays(model: Any) -> dict[str, NDArray[Any]]:
    """The detector of a table, and the prior's variance where rows are unknown."""
    detector: Detector | None = model.detector_
    if detector is None:
        return {}
    stored = {f"detector/{name}": array for name, array in detector.arrays().items()}
    stored["gate"] = np.array([model.gate_variance_])
    label_range: LabelRange | None = getattr(model, "label_range_", None)
    if label_range is not None:
        stored["range/ends"] = np.stack([label_range.low, label_range.high])
        stored["range/usual"] = np.array([label_range.usual])
        stored["range/reference"] = label_range.reference
    return stored


def _mean_arrays(model: Any) -> dict[str, NDArray[Any]]:
    """The trees of the mean model, target by target, and how they are used."""
    mean: MeanModel | ClassMean | None = getattr(model, "mean_", None)
    if mean is None:
        return {}
    if mean.models:
        first = mean.models[0]
        kind = type(first[0] if isinstance(first, tuple) else first).__name__
        raise TypeError(
            f"a model file holds numbers only, got a mean of your own, {kind}; use pickle or "
            "joblib, or mean='auto'."
        )
    arrays: dict[str, NDArray[Any]] = {"mean/as_mean": np.array([float(mean.as_mean)])}
    for number, trees in enumerate(mean.trees):
        arrays |= {f"mean/{number}/{name}": array for name, array in trees.arrays().items()}
    if isinstance(mean, MeanModel) and mean.networks is not None and mean.weights is not None:
        arrays["mean/weights"] = mean.weights
        stored = mean.networks.arrays()
        arrays |= {f"mean/networks/{name}": array for name, array in stored.items()}
    return arrays


def _noise_arrays(model: Any) -> dict[str, NDArray[Any]]:
    """The label noise of each target; infinite numbers are stored as 0."""
    noises: tuple[LabelNoise, ...] = getattr(model, "label_noise_", None) or ()
    arrays: dict[str, NDArray[Any]] = {}
    for number, noise in enumerate(noises):
        numbers = noise.noise_variance, noise.factor, noise.freedom, noise.known_variance
        arrays[f"noise/{number}/scatter"] = np.array(
            [n if np.isfinite(n) else 0.0 for n in numbers]
        )
        if noise.varying is not None:
            stored = noise.varying.arrays()
            arrays |= {f"noise/{number}/{name}": array for name, array in stored.items()}
    return arrays


def _check_fields(fields: Any, signature: Signature) -> None:
    """Raise unless the fields are those of an estimator whose posterior has this signature."""
    check(isinstance(fields, dict), "the estimator must be a JSON object", fields)
    width, names = fields["n_features"], fields["features"]
    added = fields.get("mean_columns", 0)
    whole = type(width) is int and type(added) is int and 0 <= added <= signature.n_outputs
    right = whole and width + added == signature.input_shape[0]
    check(right, f"n_features must be {signature.input_shape[0]}", width)
    n_columns = fields.get("n_columns", width)
    check(type(n_columns) is int and n_columns > 0, "columns must be counted", n_columns)
    check(names is None or are_texts(names, n_columns), "there must be a name per feature", names)
    if not signature.is_classification:
        check(fields["targets"] == signature.n_outputs, "targets must be outputs", fields)
        check(type(fields["flat"]) is bool, "flat must be true or false", fields["flat"])


def _restored(fields: dict[str, Any], posterior: Posterior, arrays: Arrays) -> Any:
    """The fitted estimator."""
    model, signature = _unfitted(fields, posterior), posterior.signature
    model.posterior_ = posterior
    model.n_features_in_ = fields.get("n_columns", fields["n_features"])
    model.encoder_ = _encoder(fields)
    if fields["features"] is not None:
        model.feature_names_in_ = np.array(fields["features"], dtype=object)
    if signature.is_classification:
        model.classes_ = _classes(fields, signature)
        model.ood_measure_ = fields.get("ood_measure", "variance")
        measures = list(CLASS_OOD_SCORES)
        known = model.ood_measure_ in measures
        check(known, f"ood_measure must be one of {measures}", model.ood_measure_)
        _restore_class_mean(model, fields, signature, arrays)
    else:
        model.n_targets_, model._flat = fields["targets"], fields["flat"]
        model.y_scale_ = _scale("y_scale_", arrays, (signature.n_outputs,))
        _restore_mean_and_noise(model, fields, signature, arrays)
    is_table = len(signature.input_shape) == 1  # rows of other shapes have one scale for all
    model.x_scale_ = _scale("x_scale_", arrays, (fields["n_features"],) if is_table else ())
    model.medians_ = None
    if "medians" in arrays:
        rule = "there must be a median per column"
        model.medians_ = finite_array(rule, arrays["medians"], (fields["n_features"],))
    model.detector_, model.gate_variance_ = _detector(arrays, fields["n_features"])
    model.repeated_rows_ = None
    if "repeated_rows" in arrays:
        rule = "repeated rows must be rows of finite numbers"
        shape = (None, fields["n_features"])
        model.repeated_rows_ = finite_array(rule, arrays["repeated_rows"], shape)
    rule = "reference scores must be finite numbers, one at least"
    model.reference_scores_ = finite_array(rule, arrays["reference_scores"], (None,))
    check(len(model.reference_scores_) > 0, rule, "none")
    n_outputs = 1 if signature.is_classification else signature.n_outputs
    model.calibration_ = _calibration(arrays, n_outputs)
    return model


def _encoder(fields: dict[str, Any]) -> Any:
    """The encoder of a frame, None of a model of arrays."""
    if "encoder" not in fields:
        return None
    from gpn.columns.encoder import TableEncoder

    encoder, width = TableEncoder.from_dict(fields["encoder"]), fields["n_features"]
    check(encoder.width == width, f"columns must make {width} numbers of a row", encoder.width)
    return encoder


def _restore_class_mean(
    model: Any, fields: dict[str, Any], signature: Signature, arrays: Arrays
) -> None:
    """`mean_`, where a file has one: trees of each class, or of two classes' log-odds."""
    if fields.get("mean_columns", 0):
        n_classes = signature.n_outputs
        check(fields["mean_columns"] == n_classes, "a mean must have a column per class", fields)
        numbers = range(1 if n_classes == 2 else n_classes)
        trees = tuple(_trees(f"mean/{number}/", arrays, fields["n_features"]) for number in numbers)
        model.mean_ = ClassMean(n_classes, trees=trees, as_mean=_as_mean(arrays))
    elif hasattr(model, "mean"):
        model.mean_ = None


def _as_mean(arrays: Arrays) -> bool:
    rule = "the mean must be used as a column or as a mean"
    return bool(finite_array(rule, arrays["mean/as_mean"], (1,))[0])


def _detector(arrays: Arrays, width: int) -> tuple[Detector | None, float]:
    """The detector and the gate's variance; files of older versions have none."""
    if "gate" not in arrays:
        return None, 1.0
    rule = "the gate must have a positive variance"
    variance = float(finite_array(rule, arrays["gate"], (1,))[0])
    check(variance > 0, rule, variance)
    stored = {
        name.removeprefix("detector/"): array
        for name, array in arrays.items()
        if name.startswith("detector/")
    }
    return Detector.from_arrays(stored, width), variance


def _label_range(arrays: Arrays, n_outputs: int) -> LabelRange | None:
    """The range of the labels; files of older versions have none."""
    if "range/ends" not in arrays:
        return None
    rule = "the range of labels must be two numbers per target, with reference scores in order"
    low, high = finite_array(rule, arrays["range/ends"], (2, n_outputs))
    usual = float(finite_array(rule, arrays["range/usual"], (1,))[0])
    reference = finite_array(rule, arrays["range/reference"], (None,))
    ordered = len(reference) > 1 and bool((np.diff(reference) >= 0).all())
    check(bool((low <= high).all()) and 0 < usual <= 1 and ordered, rule, "others")
    return LabelRange(low, high, usual, reference)


def _restore_mean_and_noise(
    model: Any, fields: dict[str, Any], signature: Signature, arrays: Arrays
) -> None:
    """`mean_` and `label_noise_`, where a file has them; the oldest files do not."""
    outputs, width = range(signature.n_outputs), fields["n_features"]
    if fields.get("mean_columns", 0):
        trees = tuple(_trees(f"mean/{number}/", arrays, width) for number in outputs)
        networks, weights = _networks(arrays, width, signature.n_outputs)
        model.mean_ = MeanModel(
            trees=trees, networks=networks, weights=weights, as_mean=_as_mean(arrays)
        )
    elif hasattr(model, "mean"):
        model.mean_ = None
    model.label_noise_ = None
    if "noise/0/scatter" in arrays:
        model.label_noise_ = tuple(
            _label_noise(f"noise/{number}/", arrays, signature.input_shape[0]) for number in outputs
        )
    model.label_range_ = _label_range(arrays, signature.n_outputs)
    if model.label_range_ is not None:
        check("gate" in arrays and model.label_noise_ is not None, "a range needs noise", "none")


def _networks(
    arrays: Arrays, width: int, n_outputs: int
) -> tuple[FoldNetworks | None, NDArray[np.float64] | None]:
    """The networks of a mean, and the weights of trees and networks, where a file has them."""
    prefix = "mean/networks/"
    stored = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
    if not stored:
        return None, None
    rule = "a mean must have a weight for trees and for networks"
    weights = finite_array(rule, arrays["mean/weights"], (n_outputs, 2))
    return FoldNetworks.from_arrays(stored, width, n_outputs), weights


def _label_noise(prefix: str, arrays: Arrays, width: int) -> LabelNoise:
    rule = "label noise must be four numbers from 0 on"
    numbers = finite_array(rule, arrays[f"{prefix}scatter"], (4,))
    check(bool((numbers >= 0).all()) and numbers[1] > 0, rule, numbers)
    variance, factor, freedom, known = (float(number) for number in numbers)
    check(freedom == 0 or freedom > 2, "a label's tail must have a variance", freedom)
    varying = _trees(prefix, arrays, width) if f"{prefix}links" in arrays else None
    return LabelNoise(variance, factor, freedom or np.inf, known or np.inf, varying)


def _trees(prefix: str, arrays: Arrays, width: int) -> Trees:
    stored = {name: arrays[f"{prefix}{name}"] for name in ("links", "numbers", "baseline")}
    return Trees.from_arrays(stored, width)


def _unfitted(fields: Mapping[str, Any], posterior: Posterior) -> Any:
    """The estimator with the options that it was made with.

    The oldest files do not hold these: a GPN then has the configuration that was resolved.
    """
    name, method, settings = fields["class"], fields["method"], fields.get("settings")
    check(name in list(ESTIMATORS), "a model file must name one of gpn's estimators", name)
    kind: Any = ESTIMATORS[name]
    right = is_classifier(kind()) == posterior.signature.is_classification
    check(right, "a regressor or classifier must hold such a posterior", name)
    options = None if fields.get("given") is None else _checked_options(fields["given"], kind)
    config: Any = getattr(posterior, "config", None)
    if issubclass(kind, GPNOptions):
        check(method is None and isinstance(config, GPNConfig), "a GPN must be one", method)
        return kind(config) if options is None else kind(**options)
    check(type(method) is str, "a method must have a name", method)
    check(settings is None or isinstance(settings, dict), "settings must have names", settings)
    decoded = settings and decode_settings(settings, type(config))
    return kind(method, settings=decoded, **(options or {}))


def _checked_options(options: Any, kind: Any) -> dict[str, Any]:
    """The constructor's arguments, each of the type that it declares; others are refused."""
    check(isinstance(options, dict), "options must have names", options)
    known = set(kind._get_param_names()) - {"method", "settings"}
    later = {"mean"}  # options that files of older versions do not have
    whole = known - later <= set(options) <= known
    check(whole, f"options must be {sorted(known)}", sorted(options))
    seed = options["random_state"]
    right = seed is None or (type(seed) is int and 0 <= seed <= MAX_SEED)
    check(right, "random_state must be a seed", seed)
    hints = {**get_type_hints(kind.__init__), "random_state": int | None, "mean": str | None}
    return {name: decode(value, hints[name]) for name, value in options.items()}


def _classes(fields: dict[str, Any], signature: Signature) -> NDArray[Any]:
    """The classes, as an array of the dtype that they had."""
    dtype, names = fields["dtype"], fields["classes"]
    known = type(dtype) is str and re.fullmatch(r"[<>|=]?([biuf]\d{1,2}|U\d{1,5})|object", dtype)
    check(bool(known), "classes must be numbers or texts", dtype)
    short = np.dtype(dtype).itemsize <= 4 * MAX_CLASS_LENGTH
    check(short, "the names of classes must be short", dtype)
    plain = isinstance(names, list) and all(isinstance(c, bool | int | float | str) for c in names)
    check(plain and len(names) == signature.n_outputs, "there must be a class per output", names)
    check(len(set(names)) == len(names), "classes must differ", names)
    return np.array(names, dtype=dtype)


def _scale(name: str, arrays: Arrays, shape: tuple[int, ...]) -> Scale:
    rule = f"{name} must have a finite number per column"
    shift, scale = (finite_array(rule, arrays[f"{name}{end}"], shape) for end in ("shift", "scale"))
    least = np.finfo(np.float64).tiny  # what is divided by less overflows
    check(bool((scale >= least).all()), f"{name} must be at least {least:.3g}", scale)
    if f"{name}bend" not in arrays:
        return Scale(shift, scale)
    bend = finite_array(rule, arrays[f"{name}bend"], shape)
    check(bool((bend >= 0).all()), f"the bend of {name} must not be negative", bend)
    return Scale(shift, scale, np.where(bend > 0, bend, np.inf))


def _calibration(arrays: Arrays, n_outputs: int) -> Calibration | None:
    """Scores of calibration rows, and weights where targets differ; None without them."""
    if "calibration" not in arrays:
        return None
    scores = _calibration_scores(arrays["calibration"], n_outputs)
    if "calibration_weights" not in arrays:
        return Calibration(scores)
    rule = "calibration weights must be numbers from 0 on, one per row and one for a new row"
    stored = arrays["calibration_weights"]
    weights = finite_array(rule, stored, (len(scores) + 1, n_outputs)).astype(np.float64)
    check(bool((weights >= 0).all() and (weights[:-1].sum(0) > 0).all()), rule, "others")
    return Calibration(scores, weights)


def _calibration_scores(scores: Any, n_outputs: int) -> NDArray[np.float64]:
    """The scores of calibration rows, in ascending order."""
    rule = f"calibration scores must be {n_outputs} columns of numbers from 0 on, in order"
    scores = finite_array(rule, scores, (None, n_outputs)).astype(np.float64)
    check(len(scores) > 0 and bool((scores >= 0).all()), rule, "others")
    check(bool((np.diff(scores, axis=0) >= 0).all()), rule, "another order")
    return scores
