"""Posterior functions along one feature, and the code plane that moves one of them.

z ~ N(0, I) in any rotated basis, so the leading right singular vectors R of A over the rows are
code axes: g = b + A R w at the point w of the plane.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.linalg import eigh

from gpn.methods.gpn.posterior import AffinePosterior
from gpn.report.measure import noise_std_of
from gpn.report.rows import Array, SelectedRow
from gpn.tables.model import TableModel

MAX_NUMBERS = 600_000  # four bytes each in base64: about three megabytes of the page
SIZES = ((12, 32, 12), (8, 32, 12), (8, 24, 8), (6, 20, 6), (4, 16, 4), (3, 12, 3))
QUANTILE_DRAWS = 100
RUG_TICKS = 60
CHUNK_ROWS = 4000
MAX_LOADINGS = 4_000_000
PLANE_ROWS = 2000


@dataclass(frozen=True)
class Grid:
    """How much the page holds: `rows`, indices of `features`, `points` along each, `draws`."""

    rows: int
    features: list[int]
    points: int
    draws: int


def functions(
    model: TableModel, rows: list[SelectedRow], x: Array, on_progress: Callable[[str], Any]
) -> dict[str, Any] | None:
    """What the page needs to draw the functions; None if no column is numeric.

    `x` are labeled and test rows, which set each feature's range and the code plane.
    """
    grid = grid_size(model, rows)
    if not grid.features:
        return None
    centres = np.stack([row.x for row in rows[: grid.rows]])
    at = np.stack([_points(x, centres, feature, grid.points) for feature in grid.features])
    plane = code_plane(model, x)
    curves = []
    for i, row in enumerate(centres):
        on_progress(f"functions through row {i + 1} of {len(centres)}")
        curves.append(_curves(model, vary_features(row, grid.features, at), grid, plane))
    stacked = {name: np.stack([curve[name] for curve in curves]) for name in curves[0]}
    names = list(model.encoder.medians)
    return {
        "initial": largest_change(stacked, classes=model.is_classifier),
        "rows": [row.label for row in rows[: grid.rows]],
        "features": [names[feature] for feature in grid.features],
        "times": [model.encoder.times.get(names[feature], "") for feature in grid.features],
        "left_out": len(names) - len(grid.features),
        "values": centres[:, grid.features],
        "at": at,
        "rug": _rug(model, grid.features),
        "plane": None if plane is None else {"shares": plane[1], "size": len(plane[0])},
        "noise_std": None if model.is_classifier else noise_std_of(model.estimator),
        **stacked,
    }


def largest_change(curves: dict[str, Array], *, classes: bool) -> list[int]:
    """The row and the feature along which the spread changes most, to be shown first."""
    spread = (curves["high"] - curves["low"]).sum(-1) if classes else curves["std"]
    change = np.ptp(spread, axis=2)
    row, feature = np.unravel_index(np.argmax(change), change.shape)
    return [int(row), int(feature)]


def grid_size(model: TableModel, rows: list[SelectedRow]) -> Grid:
    """The finest grid within MAX_NUMBERS; of too many features those furthest from the median."""
    count = len(model.encoder.medians)
    for n_rows, points, draws in SIZES:
        series = len(model.estimator.classes_) * (6 + draws) if model.is_classifier else 4 + draws
        per_feature = series * points * min(n_rows, len(rows))
        if count * per_feature <= MAX_NUMBERS:
            return Grid(n_rows, list(range(count)), points, draws)
    median = np.array(list(model.encoder.medians.values()))
    gaps = np.stack([row.x[:count] - median for row in rows])
    distance = np.abs(gaps / model.estimator.x_scale_.scale[:count]).max(0)
    best = np.argsort(-distance, kind="stable")[: max(1, MAX_NUMBERS // per_feature)]
    return Grid(n_rows, sorted(best.tolist()), points, draws)


def vary_features(row: Array, features: list[int], at: Array) -> Array:
    """Copies of the row with one feature changed at a time: ``(features · points, d)``."""
    varied = np.repeat(row[None], at.size, axis=0).reshape(*at.shape, -1)
    for i, feature in enumerate(features):
        varied[i, :, feature] = at[i]
    return varied.reshape(at.size, -1)


def _points(x: Array, rows: Array, feature: int, points: int) -> Array:
    values = np.concatenate([x[:, feature], rows[:, feature]])
    low, high = float(values.min()), float(values.max())
    margin = 0.5 if low == high else 0.0
    return np.linspace(low - margin, high + margin, points)


def _rug(model: TableModel, features: list[int]) -> Array:
    """Quantiles of each feature over the stored labeled rows."""
    record = model.record
    if record is None or record.x is None:
        return np.zeros((len(features), 0))
    return np.quantile(record.x[:, features], np.linspace(0, 1, RUG_TICKS), axis=0).T


def _curves(
    model: TableModel, x: Array, grid: Grid, plane: tuple[Array, Array] | None
) -> dict[str, Array]:
    """All lines through one row, by feature and point, in units of the target."""
    estimator: Any = model.estimator
    if model.is_classifier:
        draws = estimator.sample_proba(x, QUANTILE_DRAWS)
        low, high = np.quantile(draws, (0.05, 0.95), axis=-1)
        drawn = draws[..., : grid.draws]
        found = {"mean": draws.mean(-1), "low": low, "high": high, "draws": drawn}
    else:
        mean, std = estimator.predict(x, return_std=True)
        found = {"mean": mean, "std": std, "draws": estimator.sample_y(x, grid.draws)}
    if plane is not None:
        rows = estimator.x_scale_.apply(x)
        base, loadings = base_and_loadings(estimator.posterior_, rows, plane[0].T)
        if not model.is_classifier:
            scale = estimator.y_scale_
            base, loadings = scale.undo(base), loadings * scale.scale[:, None]
        found |= {"base": base, "loadings": loadings}
    shape = (len(grid.features), grid.points)
    return {name: values.reshape(*shape, *values.shape[1:]) for name, values in found.items()}


def code_plane(model: TableModel, x: Array) -> tuple[Array, Array] | None:
    """`leading_axes` over a sample of the rows, if the functions are affine in a code."""
    posterior = model.estimator.posterior_
    if not isinstance(posterior, AffinePosterior):
        return None
    shuffled = np.random.default_rng(0).permutation(x)
    return leading_axes(posterior, model.estimator.x_scale_.apply(shuffled[:PLANE_ROWS]))


def leading_axes(posterior: AffinePosterior, x: Any) -> tuple[Array, Array]:
    """R ``(q, 2)``, and the share of the functions' variance at the rows along each axis.

    Logits are centred over the classes first: a softmax does not depend on their mean.
    """
    size = posterior.generator.code_dim
    max_rows = max(1, MAX_LOADINGS // (size * posterior.n_outputs))
    identity = torch.eye(size, dtype=posterior.dtype, device=posterior.device)
    _, loadings = base_and_loadings(posterior, x[:max_rows], identity)
    if posterior.signature.is_classification:
        loadings = loadings - loadings.mean(1, keepdims=True)
    flat = loadings.reshape(-1, size)
    gram = flat.T @ flat
    values, vectors = eigh(gram, subset_by_index=[max(0, size - 2), size - 1])
    axes = vectors[:, ::-1] * np.sign(vectors.sum(0))[::-1]
    shares = values[::-1].clip(0) / max(np.trace(gram), np.finfo(float).tiny)
    missing = 2 - len(shares)
    return np.pad(axes, ((0, 0), (0, missing))), np.pad(shares, (0, missing))


@torch.no_grad()
def base_and_loadings(posterior: AffinePosterior, x: Any, axes: Any) -> tuple[Array, Array]:
    """b ``(n, o)``, and the loadings A ``(n, o, k)`` along `axes` ``(k, q)`` of the code."""
    rows = torch.as_tensor(x).to(posterior.device, posterior.dtype)
    codes = torch.as_tensor(axes).to(rows)
    chunks = []
    for chunk in rows.split(CHUNK_ROWS):
        columns = posterior.generator.columns(chunk)
        along = posterior.generator.combine(columns, codes) - columns[0]
        chunks.append(torch.cat([columns[:1], along]).cpu().double())
    both = torch.cat(chunks, dim=1).numpy()
    return both[0], np.moveaxis(both[1:], 0, -1)
