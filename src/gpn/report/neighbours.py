"""Why a row is unknown: the labeled rows nearest to it, and the features that set it apart."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from gpn.report.rows import Picked, features, predictions, shown
from gpn.tables.model import TableModel

Array = NDArray[np.float64]
NEIGHBOURS = 3
FEATURES = 8


def nearest(x: Array, known: Array, scale: Array, n: int = NEIGHBOURS) -> tuple[Any, Array]:
    """The numbers of the `n` known rows nearest to each row, and their distances.

    d² = Σ ((x − x') / scale)², the distance that the model's network sees.
    """
    distances = cdist(x / scale, known / scale)
    order = np.argsort(distances, axis=1, kind="stable")[:, :n]
    return order, np.take_along_axis(distances, order, axis=1)


def comparisons(model: TableModel, rows: list[Picked]) -> list[dict[str, Any]]:
    """For each row what the model says of it, and its nearest labeled rows where there are any."""
    said = predictions(model, np.stack([row.x for row in rows]))
    near = _neighbours(model, rows)
    return [
        {
            "label": row.label,
            "source": row.source.name,
            "number": int(row.source.numbers[row.place]),
            "score": row.score,
            "prediction": text,
            "truth": _truth(model, row),
            "neighbours": found,
        }
        for row, text, found in zip(rows, said, near, strict=True)
    ]


def _neighbours(model: TableModel, rows: list[Picked]) -> list[list[dict[str, Any]]]:
    record = model.record
    if record is None or record.x is None or record.y is None or len(record.x) == 0:
        return [[] for _ in rows]
    scale = model.estimator.x_scale_.scale
    order, distances = nearest(np.stack([row.x for row in rows]), record.x, scale)
    return [
        [
            {
                "distance": float(distance),
                "target": target_text(model, float(record.y[place])),
                "features": differences(model, row, record.x[place]),
            }
            for place, distance in zip(places, lengths, strict=True)
        ]
        for row, places, lengths in zip(rows, order, distances, strict=True)
    ]


def differences(model: TableModel, row: Picked, other: Array) -> list[dict[str, Any]]:
    """The features in which a row differs most from another, in standard deviations."""
    gaps = (row.x - other) / model.estimator.x_scale_.scale
    found: list[dict[str, Any]] = []
    for name, place in features(model.encoder):
        numeric = name in model.encoder.medians
        own = shown(model.encoder, name, row.x[place]) if numeric else row.text(name)
        theirs = shown(model.encoder, name, other[place])
        units = float(gaps[place][0]) if numeric else float(np.linalg.norm(gaps[place]))
        found.append({"name": name, "here": own, "there": theirs, "units": units})
    found.sort(key=lambda feature: -abs(feature["units"]))
    return [feature for feature in found[:FEATURES] if feature["units"] != 0]


def target_text(model: TableModel, value: float) -> str:
    """A labeled row's target, or the name of its class."""
    return str(model.estimator.classes_[int(value)]) if model.is_classifier else f"{value:.5g}"


def _truth(model: TableModel, row: Picked) -> str | None:
    if model.target not in row.source.frame.columns:
        return None
    value = row.source.frame[model.target].iloc[row.place]
    if value != value or value is None:
        return None
    return f"{value:.5g}" if isinstance(value, float) else str(value)
