"""Rows at which a network learns a posterior in closed form by heart, beside the labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

Array = NDArray[Any]

MIN_FOLLOWED_ROWS, MAX_FOLLOWED_ROWS = 4000, 8000
NEIGHBOURS = 10
UNLIKELY_SHARE = 4  # one row in so many is a combination of columns that no label has
# Labels at which the network is not trained: they tell what it misses at new rows.
MIN_LABELS_TO_CALIBRATE, MAX_CALIBRATION_LABELS = 50, 1000
CALIBRATION_SHARE, CALIBRATION_SHARE_OF_FEW, MAX_FEW = 0.1, 0.2, 1000


def calibration_share(n_labels: int) -> float:
    """The share of labels at which a network that follows a posterior is not trained."""
    if n_labels < MIN_LABELS_TO_CALIBRATE:
        return 0.0
    share = CALIBRATION_SHARE_OF_FEW if n_labels <= MAX_FEW else CALIBRATION_SHARE
    return min(share, MAX_CALIBRATION_LABELS / n_labels)


def rows_to_follow(X: Array, x: Tensor, unlabeled: Array | None, seed: int) -> Array:
    """Rows between labels that are near each other, and unlabeled ones.

    Nearness is that of the inputs `x`, divided by the prior's scales. Without unlabeled rows, rows
    whose columns are those of different labels take their place.
    """
    rng, count = np.random.default_rng(seed), min(max(MIN_FOLLOWED_ROWS, len(X)), MAX_FOLLOWED_ROWS)
    scaled = x.cpu().numpy()
    first = rng.integers(len(X), size=count)
    near = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(X))).fit(scaled)
    others = near.kneighbors(scaled, return_distance=False)
    second = others[first, rng.integers(others.shape[1], size=count)]
    between = X[first] + rng.random((count, 1)) * (X[second] - X[first])
    if unlabeled is None:
        size = len(X), count // UNLIKELY_SHARE
        unlabeled = np.stack(
            [column[rng.integers(size[0], size=size[1])] for column in X.T], axis=1
        )
    return np.concatenate([between, unlabeled])
