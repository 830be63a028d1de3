"""A fitted estimator as one file: its posterior's, with the data's scales and classes beside it.

The header gains one string, `estimator`, as JSON: class, feature names, classes. Arrays are stored
as tensors whose names begin with "estimator/".

The options that an estimator was made with, as JSON and back: a clone of it fits as it did.

A seed is kept as a number; a generator in its place cannot be, and becomes None.


What a model file says of its estimator, checked: names, classes, columns, arrays and rows.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import is_classifier
from torch import Tensor

from gpn.core.config import Config
from gpn.core.networks.trunks import Trunk
from gpn.core.posterior.base import Posterior
from gpn.core.task import Signature
from gpn.estimators.classifier import GPNClassifier, PosteriorClassifier
from gpn.estimators.regressor import GPNRegressor, PosteriorRegressor
from gpn.estimators.scaling import Scale
from gpn.methods.gpn import GPNConfig
from gpn.saving.encoding import decode_config, decode_settings, encode
from gpn.saving.format import Saveable, Saved, as_saved, restore_posterior, write
from gpn.saving.validation import as_model_error, check

PREFIX = "estimator/"

SCALES = ("x_scale_", "y_scale_")

KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (GPNRegressor, GPNClassifier, PosteriorRegressor, PosteriorClassifier)
}


def save_model(
    model: Any,
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[np.float64]] | None = None,
    **more: Any,
) -> None:
    """Write a fitted estimator to `path`, `arrays` beside its own, and `more` in its header."""
    posterior: Saveable = model.posterior_
    saved = as_saved(posterior, path)
    header = {**saved.header, "estimator": json.dumps({**_facts(model), **more})}
    own = {**_arrays(model), **(arrays or {})}
    tensors = {f"{PREFIX}{name}": torch.tensor(array).contiguous() for name, array in own.items()}
    write(replace(saved, header=header, tensors={**saved.tensors, **tensors}))


def load_model(saved: Saved, device: torch.device) -> Any:
    """The estimator that `save_model` wrote."""
    return load_with_facts(saved, device)[0]


def load_with_facts(
    saved: Saved, device: torch.device
) -> tuple[Any, dict[str, Any], dict[str, Tensor]]:
    """The estimator, and beside it the facts and tensors of its part of the file."""
    own = {name: tensor for name, tensor in saved.tensors.items() if name.startswith(PREFIX)}
    rest = {name: tensor for name, tensor in saved.tensors.items() if name not in own}
    facts = saved.json("estimator")
    posterior = restore_posterior(replace(saved, tensors=rest), device)
    with as_model_error(f"what {saved.path} says of its estimator must be complete"):
        check_facts(facts, posterior.signature)
        return _fitted(facts, posterior, own), facts, own


def _fitted(facts: dict[str, Any], posterior: Posterior, tensors: Mapping[str, Tensor]) -> Any:
    model, signature = _empty(facts, posterior), posterior.signature
    model.posterior_ = posterior
    model.n_features_in_ = facts["n_features"]
    if facts["features"] is not None:
        model.feature_names_in_ = np.array(facts["features"], dtype=object)
    if signature.is_classification:
        model.classes_ = classes_of(facts, signature)
    else:
        model.n_targets_, model._flat = facts["targets"], facts["flat"]
        model.y_scale_ = _scale("y_scale_", tensors, (signature.n_outputs,))
    shape = signature.input_shape if len(signature.input_shape) == 1 else ()
    model.x_scale_ = _scale("x_scale_", tensors, shape)
    model.reference_scores_ = scores_of(tensors, f"{PREFIX}reference_scores")
    outputs = 1 if signature.is_classification else signature.n_outputs
    model.calibration_scores_ = calibration_of(tensors.get(f"{PREFIX}calibration"), outputs)
    return model


def _scale(name: str, tensors: Mapping[str, Tensor], shape: tuple[int, ...]) -> Scale:
    shift, scale = (tensors[f"{PREFIX}{name}{end}"].numpy() for end in ("shift", "scale"))
    return checked_scale(name, Scale(shift, scale), shape)


def _facts(model: Any) -> dict[str, Any]:
    """What is not an array: names, classes, shapes."""
    classes, names = getattr(model, "classes_", None), getattr(model, "feature_names_in_", None)
    settings = getattr(model, "settings", None)
    return {
        "class": type(model).__name__,
        "method": getattr(model, "method", None),
        "settings": settings and {name: encode(value) for name, value in settings.items()},
        "given": given_to(model),
        "n_features": int(model.n_features_in_),
        "features": None if names is None else [str(name) for name in names],
        "classes": None if classes is None else classes.tolist(),
        "dtype": None if classes is None else _dtype(classes),
        "targets": getattr(model, "n_targets_", None),
        "flat": getattr(model, "_flat", None),
    }


def _dtype(classes: Any) -> str:
    """The classes' dtype by a name that arrays can be made with again."""
    if classes.dtype.kind not in "biufUO":
        raise TypeError(
            f"classes must be numbers or texts to be saved, got an array of {classes.dtype}."
        )
    if classes.dtype.itemsize > 4 * LONGEST_CLASS:
        raise ValueError(
            f"the names of classes must have at most {LONGEST_CLASS} characters to be saved, got "
            f"{classes.dtype}."
        )
    return "object" if classes.dtype.kind == "O" else classes.dtype.str


def _arrays(model: Any) -> dict[str, NDArray[np.float64]]:
    arrays = {"reference_scores": model.reference_scores_}
    if model.calibration_scores_ is not None:
        arrays["calibration"] = model.calibration_scores_
    for name in SCALES:
        if (scale := getattr(model, name, None)) is not None:
            arrays |= {f"{name}shift": scale.shift, f"{name}scale": scale.scale}
    return arrays


def _empty(facts: Mapping[str, Any], posterior: Posterior) -> Any:
    """The estimator, not yet fitted, with the options that it was made with.

    Of older files these are not known: a GPN's configuration is then the one that was resolved.
    """
    name = facts["class"]
    if name not in KINDS:
        raise ValueError(f"a model file must name one of gpn's estimators, got {name!r}.")
    kind = KINDS[name]
    if is_classifier(kind()) != posterior.signature.is_classification:
        raise ValueError(f"a {name} must hold a posterior of its own kind, this one does not.")
    config: Any = getattr(posterior, "config", None)
    method, settings, given = facts["method"], facts.get("settings"), facts.get("given")
    if issubclass(kind, GPNRegressor | GPNClassifier):
        check(method is None and isinstance(config, GPNConfig), "a GPN must be one", method)
        return kind(config) if given is None else kind(**options_of(given, kind))
    check(type(method) is str, "a method must have a name", method)
    check(settings is None or isinstance(settings, dict), "settings must have names", settings)
    decoded = settings and decode_settings(settings, type(config))
    return kind(method, settings=decoded, **({} if given is None else options_of(given, kind)))


LARGEST_SEED = 2**32 - 1

ELSEWHERE = ("method", "settings")  # kept under their own names


def given_to(model: Any) -> dict[str, Any]:
    """What the constructor was given, each option by its name."""
    given = {k: v for k, v in model.get_params(deep=False).items() if k not in ELSEWHERE}
    seed = given["random_state"]
    given["random_state"] = int(seed) if isinstance(seed, Integral) else None
    given["verbose"] = bool(given["verbose"])
    return {name: encode(value) for name, value in given.items()}


def options_of(given: Any, kind: type) -> dict[str, Any]:
    """The constructor's arguments, each checked; an option that `kind` lacks is refused."""
    check(isinstance(given, dict), "options must have names", given)
    known = set(kind._get_param_names()) - set(ELSEWHERE)  # type: ignore[attr-defined]
    check(set(given) == known, f"options must be {sorted(known)}", sorted(given))
    return {name: READ[name](value) for name, value in given.items()}


def _config(kind: type[Config]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else decode_config(value, kind)


def _seed(value: Any) -> int | None:
    right = value is None or (type(value) is int and 0 <= value <= LARGEST_SEED)
    check(right, "random_state must be a seed", value)
    return value


def _plain(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        check(type(value) is kind, f"an option must be a {kind.__name__} here", value)
        return value

    return read


READ: dict[str, Callable[[Any], Any]] = {
    "config": _config(GPNConfig),
    "module": _config(Trunk),
    "device": _plain(str),
    "random_state": _seed,
    "verbose": _plain(bool),
}


LONGEST_CLASS = 10_000  # characters


def check_facts(facts: Any, signature: Signature) -> None:
    """That the estimator's facts are those of a posterior with this signature."""
    check(isinstance(facts, dict), "the facts must be an object", facts)
    width, names = facts["n_features"], facts["features"]
    check(
        type(width) is int and width == signature.input_shape[0],
        f"n_features must be {signature.input_shape[0]}",
        width,
    )
    check(names is None or _texts(names, width), "there must be a name per feature", names)
    if not signature.is_classification:
        check(facts["targets"] == signature.n_outputs, "targets must be outputs", facts)
        check(type(facts["flat"]) is bool, "flat must be true or false", facts["flat"])


def classes_of(facts: dict[str, Any], signature: Signature) -> NDArray[Any]:
    """The classes, as an array of the dtype that they had."""
    dtype, given = facts["dtype"], facts["classes"]
    known = type(dtype) is str and re.fullmatch(r"[<>|=]?([biuf]\d{1,2}|U\d{1,5})|object", dtype)
    check(bool(known), "classes must be numbers or texts", dtype)
    size = np.dtype(dtype).itemsize
    check(size <= 4 * LONGEST_CLASS, "the names of classes must be short", dtype)
    plain = isinstance(given, list) and all(isinstance(c, bool | int | float | str) for c in given)
    check(plain and len(given) == signature.n_outputs, "there must be a class per output", given)
    check(len(set(given)) == len(given), "classes must differ", given)
    return np.array(given, dtype=dtype)


def checked_scale(name: str, scale: Scale, shape: tuple[int, ...]) -> Scale:
    """Shifts and scales of columns; those of images are single numbers."""
    for values in (scale.shift, scale.scale):
        numbers(f"{name} must have a finite number per column", values, shape)
    check(bool((scale.scale > 0).all()), f"{name} must be positive", scale.scale)
    return scale


def numbers(what: str, values: Any, shape: tuple[int | None, ...]) -> NDArray[np.float64]:
    """An array of finite numbers; None stands for any length."""
    fits = len(shape) == values.ndim and all(
        wanted in (None, size) for wanted, size in zip(shape, values.shape, strict=True)
    )
    check(fits and values.dtype.kind == "f", what, f"{values.dtype} {values.shape}")
    check(bool(np.isfinite(values).all()), what, "others")
    return values


def scores_of(tensors: Mapping[str, Tensor], name: str) -> NDArray[np.float64]:
    return numbers("reference scores must be finite numbers", tensors[name].numpy(), (None,))


def calibration_of(tensor: Tensor | None, outputs: int) -> NDArray[np.float64] | None:
    """The scores of calibration rows, the smallest first; None of a model without them."""
    if tensor is None:
        return None
    what = f"calibration scores must be {outputs} columns of numbers from 0 on, in order"
    scores = numbers(what, tensor.numpy(), (None, outputs)).astype(np.float64)
    check(len(scores) > 0 and bool((scores >= 0).all()), what, "others")
    check(bool((np.diff(scores, axis=0) >= 0).all()), what, "another order")
    return scores


def _texts(values: Any, count: int | None = None) -> bool:
    listed = isinstance(values, list) and all(type(value) is str for value in values)
    return listed and count in (None, len(values))
