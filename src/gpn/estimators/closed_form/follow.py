"""Rows at which a network learns a posterior in closed form by heart, beside the labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from gpn.estimators.closed_form.choice import Choice

Array = NDArray[Any]

MIN_FOLLOWED_ROWS, MAX_FOLLOWED_ROWS = 4000, 8000
NEIGHBOURS = 10
UNLIKELY_SHARE = 4  # one row in so many is a combination of columns that no label has


def rows_to_follow(X: Array, found: Choice, unlabeled: Array | None, seed: int) -> Array:
    """Rows between labels that are near each other under the prior's scales, and unlabeled ones.

    Without unlabeled rows, rows whose columns are those of different labels take their place.
    """
    rng, count = np.random.default_rng(seed), min(max(MIN_FOLLOWED_ROWS, len(X)), MAX_FOLLOWED_ROWS)
    scaled = found.x.cpu().numpy() / np.array(found.learnt.prior.column_scales)
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
