"""How well a classifier keeps its word: pure functions of class probabilities."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpn.report.measure import Array

FENCES = (0.05, 0.25, 0.5, 0.75, 0.95)
BOX_DRAWS = 200


def reliability(p: Array, numbers: NDArray[np.int64], bins: int = 10) -> dict[str, Any]:
    """Rows by how probable their class was said to be, and how often that was right."""
    confidence, right = p.max(1), p.argmax(1) == numbers
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    full = [b for b in range(bins) if (which == b).any()]
    return {
        "said": np.array([confidence[which == b].mean() for b in full]),
        "found": np.array([right[which == b].mean() for b in full]),
        "rows": np.array([(which == b).sum() for b in full]),
    }


def entropy(p: Array) -> Array:
    """−Σ_c p_c log p_c, in nats."""
    return -(p * np.log(np.clip(p, 1e-300, None))).sum(1)


def boxes(estimator: Any, x: Array) -> Array:
    """Quantiles over draws of each class's probability: ``(rows, classes, 5)``."""
    draws = estimator.sample_proba(x, BOX_DRAWS)
    return np.moveaxis(np.quantile(draws, FENCES, axis=-1), 0, -1)
