"""Checks of the rows, weights and unlabeled pools that a user passes."""

from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor
from torch.utils.data import DataLoader

from gpn.columns.frames import ColumnsWarning
from gpn.core.task import lazy_pool
from gpn.core.types import as_generator
from gpn.core.warnings import GPNWarning, warn_caller
from gpn.methods.gpn.pool.synthetic import synthetic_outliers

Array = NDArray[Any]

POOL_TYPES = (
    "X_unlabeled must be rows like those of X (an array, a frame or a tensor), a memory-mapped "
    "array, a torch Dataset, a gpn.DiskPool or another pool, or a function (m, rng) → rows"
)
MAX_MEAN_WEIGHT = 10  # copies per row
MIN_SYNTHETIC_ROWS = 1000
MAX_DENSE_BYTES = 4 << 30
MAX_MEDIAN_ROWS = 10_000
MIN_CHECKED_ROWS, MAX_CHECKED_ROWS = 20, 50_000
MIN_TARGET_VALUES = 10
MIN_COPIES, SAME_LABEL = 0.1, 0.95  # shares of rows, and of copies that have the same label


class CopiesWarning(GPNWarning):
    """Many rows are copies of others, label included."""


class SyntheticPoolWarning(GPNWarning):
    """No unlabeled rows were passed; synthetic ones take their place."""


def as_array(values: Any) -> Any:
    """A tensor as an array, from any device and in a dtype that numpy has; others unchanged."""
    if not isinstance(values, Tensor):
        return values
    plain = values.detach().cpu()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()


def as_dense(values: Any) -> Any:
    """A sparse matrix as an array, if that fits into memory; others unchanged."""
    if not issparse(values):
        return values
    size = 8 * int(np.prod(values.shape))
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"a sparse matrix must fit into {MAX_DENSE_BYTES >> 30} GiB once it is dense, got "
            f"{values.shape}, {size / 2**30:.1f} GiB; use fewer columns, such as the most frequent "
            "values, or TruncatedSVD."
        )
    return values.toarray()


def check_is_frame(X: Any) -> None:
    """Raise unless X is a frame, as in a fit whose columns are not all numbers."""
    if not hasattr(X, "columns"):
        raise ValueError(
            "X must be a frame with the columns of the fit, which are not all numbers, got "
            f"{type(X).__name__}."
        )


def check_labels_known(y: Any) -> None:
    """Raise where a label is missing, and say where rows without one go."""
    labels = np.asarray(y)
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(
            f"Input y contains NaN in {int(np.isnan(labels).sum())} of {len(labels)} rows, every "
            "label must be known; pass rows without one as fit(X, y, X_unlabeled=...)."
        )


def column_medians(X: Array) -> Array:
    """The median of what each column holds, of some 10,000 rows; 0 of an empty column."""
    some = X[:: max(1, len(X) // MAX_MEDIAN_ROWS)] if np.isfinite(X).all() else X
    empty = np.isnan(some).all(0)
    medians: Array = np.zeros(X.shape[1])
    medians[~empty] = np.nanmedian(some[:, ~empty], axis=0)
    return medians


def imputed(X: Array, medians: Array | None) -> Array:
    """Missing values as the median of their column."""
    missing = np.isnan(X)
    if not missing.any():
        return X
    if medians is None:
        raise ValueError(
            "X must have no missing values for this model, whose file knows no medians, got NaN; "
            "impute them, or fit again."
        )
    return np.where(missing, medians, X)


def warn_of_missing(X: Array, names: Array | None) -> None:
    """Warn where columns have missing values, which are taken as their median."""
    if X.ndim != 2:
        return
    counts = np.isnan(X).sum(0)
    columns = np.flatnonzero(counts)
    if len(columns):
        some = [f"{i if names is None else repr(names[i])} ({counts[i]})" for i in columns[:3]]
        more = f" and {len(columns) - 3} more" if len(columns) > 3 else ""
        warn_caller(
            f"X has missing values, which are taken as the median of their column in the fit: "
            f"column {', '.join(some)}{more}.",
            ColumnsWarning,
        )


def warn_of_copies(X: Array, targets: Array) -> None:
    """Warn where many rows are copies of others, and copies of a row have its label, too.

    Repeated measurements differ in their labels; few values of a target repeat by chance.
    """
    if X.ndim != 2 or not MIN_CHECKED_ROWS <= len(X) <= MAX_CHECKED_ROWS:
        return
    if len(np.unique(targets, axis=0)) < MIN_TARGET_VALUES:
        return
    of_rows = len(X) - len(np.unique(X, axis=0))
    both = len(X) - len(np.unique(np.concatenate([X, targets], axis=1), axis=0))
    if both >= MIN_COPIES * len(X) and both >= SAME_LABEL * of_rows:
        warn_caller(
            f"rows should be measured one by one, got {both} of {len(X)} that are copies of "
            "others, label included; each counts as a measurement of its own, so that intervals "
            "are too narrow: drop them, with drop_duplicates() for example.",
            CopiesWarning,
        )


def shape_of(rows: Any) -> tuple[int, ...]:
    """The shape of rows; of lists and the like, that of the array they make."""
    shape = getattr(rows, "shape", None)
    return tuple(np.asarray(rows).shape if shape is None else shape)


def check_row_shape(X: Any, input_shape: tuple[int, ...]) -> None:
    """Raise unless rows have the shape of the fit's; scikit-learn checks two-dimensional ones."""
    shape = shape_of(X)
    if max(len(shape), len(input_shape) + 1) > 2 and shape[1:] != input_shape:
        wanted = ", ".join(map(str, input_shape))
        hint = "; one row alone is X[None]" if shape == input_shape else ""
        raise ValueError(f"X must be rows as in the fit, shape (n, {wanted}), got {shape}{hint}.")


def check_pool_type(pool: Any) -> None:
    """Raise unless `pool` is a type of unlabeled rows, and say what to pass instead."""
    if isinstance(pool, DataLoader):
        raise TypeError(f"{POOL_TYPES}, got a DataLoader; pass its Dataset, loader.dataset.")
    if isinstance(pool, str | bytes | PathLike):
        raise TypeError(
            f"{POOL_TYPES}, got a path, {str(pool)!r:.200}; read it first, with np.load or "
            "pandas.read_csv, or use gpn.DiskPool(path) for an .npy file of many rows."
        )
    if pool is None or lazy_pool(pool) is not None:
        return
    if isinstance(pool, dict | set) or len(shape_of(pool)) == 0:
        raise TypeError(f"{POOL_TYPES}, got {type(pool).__name__}.")
    if len(shape_of(pool)) == 1:
        raise ValueError(
            f"{POOL_TYPES}, got one of shape {shape_of(pool)}; weights of labels go to "
            "fit(X, y, sample_weight=...)."
        )


def checked_pool(pool: Any, X: Array, check: Callable[[Any], Array]) -> Array:
    """Unlabeled rows as an array, after the `check` of new rows; errors speak of X_unlabeled."""
    try:
        rows = check(pool)
    except ValueError as error:
        first = str(error).partition("\n")[0]
        value = first.replace("Input X ", "what ").replace("X has ", "one that has ").rstrip(".")
        missing = "NaN" in first or "infinity" in first
        hint = "; impute or drop what is missing" if missing else ""
        raise ValueError(f"X_unlabeled must be rows like those of X, got {value}{hint}.") from error
    if rows.shape[1:] != X.shape[1:]:
        raise ValueError(
            f"X_unlabeled must have rows of the shape of those of X, {X.shape[1:]}, got "
            f"{rows.shape[1:]}; give both the same features in the same order."
        )
    return rows


def synthetic_pool(x: Tensor, seed: int) -> Tensor:
    """The labeled rows and synthetic outliers, in place of unlabeled rows."""
    warn_caller(
        "a fit should see unlabeled rows like those it will predict, got none; synthetic rows "
        "take their place, which is second best; pass fit(X, y, X_unlabeled=...).",
        SyntheticPoolWarning,
    )
    count = max(MIN_SYNTHETIC_ROWS, len(x))
    return torch.cat([x, synthetic_outliers(x, count, as_generator(seed))])


def repeated_rows(X: Array, y: Array, weights: Any, random_state: Any) -> tuple[Array, Array]:
    """Each row as often as its weight says, in an order that depends on values alone."""
    rows = repeats(weights, X, check_random_state(random_state))
    if X.ndim == 2:
        rows = rows[np.lexsort((*X[rows].T, *np.atleast_2d(y[rows].T)))]
    return X[rows], y[rows]


def weighted_rows(X: Array, y: Array, weights: Any) -> tuple[Array, Array, Array | None]:
    """The rows of a table whose weight is not 0, and their weights; None where these are all 1.

    Their order depends on values alone.
    """
    if weights is None:
        return (*repeated_rows(X, y, None, None), None)
    each = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
    rows = np.flatnonzero(each)
    rows = rows[np.lexsort((each[rows], *X[rows].T, *y[rows].T))]
    return X[rows], y[rows], None if (each[rows] == 1).all() else each[rows]


def repeats(weights: Any, X: Array, state: np.random.RandomState) -> Array:
    """Row numbers, each as often as its weight says; fractions are rounded without bias."""
    if weights is None:
        return np.arange(len(X))
    counts = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
    if np.any(counts % 1) or counts.sum() > MAX_MEAN_WEIGHT * len(X):
        marks = np.concatenate([[0.0], np.cumsum(counts * len(X) / counts.sum())])
        counts = np.diff(np.floor(marks + state.uniform()))
    return np.repeat(np.arange(len(X)), counts.astype(int))
