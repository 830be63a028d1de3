"""The code plane: the two directions of z that move the functions most.

z ~ N(0, I) stays so however its axes are turned, so that the leading directions of A over the
rows are code axes like any others: z = R w with w the point in the plane, g = b + A R w.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh

from gpn.methods.gpn.posterior import AffinePosterior

Array = NDArray[np.float64]
CHUNK_ROWS = 4000
MAX_ENTRIES = 4_000_000


def leading_axes(posterior: AffinePosterior, x: Any) -> tuple[Array, Array]:
    """R ``(q, 2)``, and the share of the functions' variance at the rows that each axis carries.

    Of classes, the variance of logits around their mean over the classes, which is all that a
    softmax sees.
    """
    size = posterior.generator.code_dim
    most = max(1, MAX_ENTRIES // (size * posterior.n_outputs))
    every = torch.eye(size, dtype=posterior.dtype, device=posterior.device)
    _, slopes = base_and_slopes(posterior, x[:most], every)
    if posterior.signature.is_classification:
        slopes = slopes - slopes.mean(1, keepdims=True)
    flat = slopes.reshape(-1, size)
    gram = flat.T @ flat
    first = max(0, size - 2)
    values, vectors = eigh(gram, subset_by_index=[first, size - 1])
    axes = vectors[:, ::-1] * np.sign(vectors.sum(0))[::-1]
    shares = values[::-1].clip(0) / max(np.trace(gram), np.finfo(float).tiny)
    missing = 2 - len(shares)
    return np.pad(axes, ((0, 0), (0, missing))), np.pad(shares, (0, missing))


@torch.no_grad()
def base_and_slopes(posterior: AffinePosterior, x: Any, axes: Any) -> tuple[Array, Array]:
    """b ``(n, o)``, and the slopes ``(n, o, k)`` along `axes` ``(k, q)`` of the code."""
    rows = torch.as_tensor(x).to(posterior.device, posterior.dtype)
    codes = torch.as_tensor(axes).to(rows)
    parts = []
    for part in rows.split(CHUNK_ROWS):
        columns = posterior.generator.columns(part)
        moved = posterior.generator.combine(columns, codes) - columns[0]
        parts.append(torch.cat([columns[:1], moved]).cpu().double())
    both = torch.cat(parts, dim=1).numpy()
    return both[0], np.moveaxis(both[1:], 0, -1)
