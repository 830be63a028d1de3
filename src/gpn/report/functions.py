"""Functions of the posterior along one feature, the others at a chosen row's values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpn.methods.gpn.posterior import AffinePosterior
from gpn.report.codes import base_and_slopes, leading_axes
from gpn.report.measure import noise_of
from gpn.report.rows import Picked
from gpn.tables.model import TableModel

Array = NDArray[np.float64]
MAX_NUMBERS = 600_000  # four bytes each, and a third more as text: about three megabytes
SIZES = ((12, 32, 12), (8, 32, 12), (8, 24, 8), (6, 20, 6), (4, 16, 4), (3, 12, 3))
QUANTILE_DRAWS = 100
RUG = 60


@dataclass(frozen=True)
class Grid:
    """How much a page carries: `rows` to choose from, `features`, `points` along each, `draws`."""

    rows: int
    features: list[int]
    points: int
    draws: int


def functions(
    model: TableModel, picked: list[Picked], x: Array, tell: Callable[[str], Any]
) -> dict[str, Any] | None:
    """Everything that the page needs to draw them; None where no column is of numbers.

    `x` are labeled and test rows, which set each feature's range and the leading code axes.
    """
    grid = size_of(model, picked)
    if not grid.features:
        return None
    rows = np.stack([row.x for row in picked[: grid.rows]])
    at = np.stack([_points(x, rows, place, grid.points) for place in grid.features])
    plane = plane_of(model, x)
    curves = []
    for i, row in enumerate(rows):
        tell(f"functions through row {i + 1} of {len(rows)}")
        curves.append(_curves(model, along(row, grid.features, at), grid, plane))
    joined = {name: np.stack([part[name] for part in curves]) for name in curves[0]}
    names = list(model.encoder.medians)
    return {
        "first": liveliest(joined, classes=model.is_classifier),
        "rows": [row.label for row in picked[: grid.rows]],
        "features": [names[place] for place in grid.features],
        "left_out": len(names) - len(grid.features),
        "values": rows[:, grid.features],
        "at": at,
        "rug": _rug(model, grid.features),
        "plane": None if plane is None else {"shares": plane[1], "size": len(plane[0])},
        "noise": None if model.is_classifier else noise_of(model.estimator),
        **joined,
    }


def liveliest(curves: dict[str, Array], *, classes: bool) -> list[int]:
    """The row and the feature along which knowledge changes most, to be shown first."""
    spread = (curves["high"] - curves["low"]).sum(-1) if classes else curves["std"]
    moves = np.ptp(spread, axis=2)
    row, feature = np.unravel_index(np.argmax(moves), moves.shape)
    return [int(row), int(feature)]


def size_of(model: TableModel, picked: list[Picked]) -> Grid:
    """The finest grid within the page's size; of too many features those that stand out most."""
    count = len(model.encoder.medians)
    for rows, points, draws in SIZES:
        each = _series(model, draws) * points * min(rows, len(picked))
        if count * each <= MAX_NUMBERS:
            return Grid(rows, list(range(count)), points, draws)
    middle = np.array(list(model.encoder.medians.values()))
    gaps = np.stack([row.x[:count] - middle for row in picked])
    far = np.abs(gaps / model.estimator.x_scale_.scale[:count]).max(0)
    best = np.argsort(-far, kind="stable")[: max(1, MAX_NUMBERS // each)]
    return Grid(rows, sorted(best.tolist()), points, draws)


def _series(model: TableModel, draws: int) -> int:
    """How many numbers stand at each point."""
    return len(model.estimator.classes_) * (6 + draws) if model.is_classifier else 4 + draws


def plane_of(model: TableModel, x: Array) -> tuple[Array, Array] | None:
    """The leading code axes, where the functions are affine in a code."""
    posterior = model.estimator.posterior_
    if not isinstance(posterior, AffinePosterior):
        return None
    mixed = np.random.default_rng(0).permutation(x)
    return leading_axes(posterior, model.estimator.x_scale_.apply(mixed[:2000]))


def along(row: Array, places: list[int], at: Array) -> Array:
    """The row again and again, one feature moved at a time: ``(features · points, d)``."""
    moved = np.repeat(row[None], at.size, axis=0).reshape(*at.shape, -1)
    for i, place in enumerate(places):
        moved[i, :, place] = at[i]
    return moved.reshape(at.size, -1)


def _points(x: Array, rows: Array, place: int, points: int) -> Array:
    everything = np.concatenate([x[:, place], rows[:, place]])
    low, high = float(everything.min()), float(everything.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, points)


def _rug(model: TableModel, places: list[int]) -> Array:
    """Quantiles of each feature over labeled rows: where the model has seen it."""
    record = model.record
    if record is None or record.x is None:
        return np.zeros((len(places), 0))
    return np.quantile(record.x[:, places], np.linspace(0, 1, RUG), axis=0).T


def _curves(
    model: TableModel, x: Array, grid: Grid, plane: tuple[Array, Array] | None
) -> dict[str, Array]:
    """Of one row, by feature and point: what is drawn, in the units of the data."""
    estimator: Any = model.estimator
    shape = (len(grid.features), grid.points)
    found = (
        _class_curves(estimator, x, grid)
        if model.is_classifier
        else _value_curves(estimator, x, grid)
    )
    if plane is not None:
        base, slopes = base_and_slopes(
            estimator.posterior_, estimator.x_scale_.apply(x), plane[0].T
        )
        if not model.is_classifier:
            scale = estimator.y_scale_
            base, slopes = scale.undo(base), slopes * scale.scale[:, None]
        found |= {"base": base, "slopes": slopes}
    return {name: values.reshape(*shape, *values.shape[1:]) for name, values in found.items()}


def _value_curves(estimator: Any, x: Array, grid: Grid) -> dict[str, Array]:
    mean, std = estimator.predict(x, return_std=True)
    return {"mean": mean, "std": std, "draws": estimator.sample_y(x, grid.draws)}


def _class_curves(estimator: Any, x: Array, grid: Grid) -> dict[str, Array]:
    draws = estimator.sample_proba(x, QUANTILE_DRAWS)
    low, high = np.quantile(draws, (0.05, 0.95), axis=-1)
    mean = draws.mean(-1)
    return {"mean": mean, "low": low, "high": high, "draws": draws[..., : grid.draws]}
