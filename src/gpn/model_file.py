"""A fitted estimator as one file: its posterior's, with the data's scales and classes beside it.

The header gains one string, `estimator`, as JSON: class, feature names, classes. Arrays are stored
as tensors whose names begin with "estimator/".
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import is_classifier
from torch import Tensor

from gpn.constructor_options import given_to, options_of
from gpn.core.posterior import Posterior
from gpn.encoding import decode_settings, encode
from gpn.estimators import GPNClassifier, GPNRegressor, PosteriorClassifier, PosteriorRegressor
from gpn.methods.gpn import GPNConfig
from gpn.model_facts import (
    LONGEST_CLASS,
    calibration_of,
    check_facts,
    checked_scale,
    classes_of,
    columns_of,
    record_of,
    scores_of,
)
from gpn.restoring import require, understanding
from gpn.saving import Saveable, Saved, as_saved, restore_posterior, write
from gpn.scaling import Scale

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
    """The estimator that `save_model` wrote; with columns, the model of a table."""
    own = {name: tensor for name, tensor in saved.tensors.items() if name.startswith(PREFIX)}
    rest = {name: tensor for name, tensor in saved.tensors.items() if name not in own}
    facts = saved.json("estimator")
    posterior = restore_posterior(replace(saved, tensors=rest), device)
    with understanding(f"what {saved.path} says of its estimator must be complete"):
        check_facts(facts, posterior.signature)
        model = _fitted(facts, posterior, own)
        return model if "columns" not in facts else _of_table(model, facts, own)


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


def _of_table(model: Any, facts: dict[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    from gpn.table_model import TableModel

    width, rows = facts["n_features"], [tensors.get(f"{PREFIX}labeled_{name}") for name in "xy"]
    record = record_of(facts.get("record"), width, *rows)
    return TableModel(model, columns_of(facts, width), facts["target"], record)


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
        require(method is None and isinstance(config, GPNConfig), "a GPN must be one", method)
        return kind(config) if given is None else kind(**options_of(given, kind))
    require(type(method) is str, "a method must have a name", method)
    require(settings is None or isinstance(settings, dict), "settings must have names", settings)
    decoded = settings and decode_settings(settings, type(config))
    return kind(method, settings=decoded, **({} if given is None else options_of(given, kind)))
