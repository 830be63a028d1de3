"""Unlabeled rows: what may stand for them, what is said of anything else, and what if none came."""

from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from gpn.core.task import lazy_pool
from gpn.core.types import as_generator
from gpn.core.warnings import GPNWarning, warn_caller
from gpn.methods.gpn.pool.synthetic import synthetic_outliers

Array = NDArray[Any]

KINDS = (
    "X_unlabeled must be rows like those of X (an array, a frame or a tensor), a memory-mapped "
    "array, a torch Dataset, a gpn.DiskPool or another pool, or a function (m, rng) → rows"
)

WEIGHTS = "weights of labels go to fit(X, y, sample_weight=...)"


class SyntheticPoolWarning(GPNWarning):
    """No unlabeled rows were given, and some had to be made up."""


def shape_of(rows: Any) -> tuple[int, ...]:
    """The shape that rows say they have; of lists and the like, that of the array they make."""
    said = getattr(rows, "shape", None)
    return tuple(np.asarray(rows).shape if said is None else said)


def check_kind(given: Any) -> None:
    """Raise where `given` holds rows only by some detour, and say which."""
    if isinstance(given, DataLoader):
        raise TypeError(f"{KINDS}, got a DataLoader; pass its Dataset, loader.dataset.")
    if isinstance(given, str | bytes | PathLike):
        raise TypeError(
            f"{KINDS}, got a path, {str(given)!r:.200}; read it first, with np.load or "
            "pandas.read_csv, or use gpn.DiskPool(path) for an .npy file of many rows."
        )
    inside = given is not None and lazy_pool(given) is None
    if inside and (isinstance(given, dict | set) or len(shape_of(given)) == 0):
        raise TypeError(f"{KINDS}, got {type(given).__name__}.")
    if inside and len(shape_of(given)) == 1:
        raise ValueError(f"{KINDS}, got one of shape {shape_of(given)}; {WEIGHTS}.")


def checked_rows(given: Any, X: Array, check: Callable[[Any], Array]) -> Array:
    """Unlabeled rows as an array, after the `check` that new rows have."""
    try:
        rows = check(given)
    except ValueError as error:
        raise ValueError(f"X_unlabeled must be rows like those of X, got {_said(error)}") from error
    if rows.shape[1:] != X.shape[1:]:
        raise ValueError(
            f"X_unlabeled must have rows of the shape of those of X, {X.shape[1:]}, got "
            f"{rows.shape[1:]}; give both the same features in the same order."
        )
    return rows


def _said(error: ValueError) -> str:
    """What scikit-learn says of X, said of X_unlabeled, and no more than its first line."""
    first = str(error).partition("\n")[0]
    return first.replace("Input X ", "what ").replace("X has ", "one that has ").rstrip(".") + (
        "; impute or drop what is missing." if "NaN" in first or "infinity" in first else "."
    )


def made_up_pool(x: Tensor, seed: int) -> Tensor:
    """The labeled rows and some that are made up from them, in place of unlabeled ones."""
    warn_caller(
        "a fit should see unlabeled rows like those it will be asked about, got none; some are "
        "made up from the labeled ones, which is second best; pass fit(X, y, X_unlabeled=...).",
        SyntheticPoolWarning,
    )
    return torch.cat([x, synthetic_outliers(x, max(1000, len(x)), as_generator(seed))])
