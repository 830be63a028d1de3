"""Cholesky factors of matrices that are positive definite up to rounding."""

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.warnings import GPNWarning, warn_caller

MIN_JITTER, MAX_JITTER = 1e-12, 1e-3  # shares of the mean diagonal


class JitterWarning(GPNWarning):
    """A matrix was not positive definite in floating point, and its diagonal was raised."""


class NotPositiveDefinite(torch.linalg.LinAlgError, ValueError):  # type: ignore[name-defined]
    """A matrix has no Cholesky factor."""


def cholesky(matrix: Float[Tensor, "*b n n"], name: str) -> Float[Tensor, "*b n n"]:
    """L with L Lᵀ = matrix, or, where rounding forbids it, of the matrix with a raised diagonal."""
    factor, jitter = jittered_cholesky(matrix, name)
    if jitter > 0:
        warn_of_jitter(name, jitter)
    return factor


def inverse_root(matrix: Float[Tensor, "*b n n"], name: str) -> Float[Tensor, "*b n n"]:
    """R with R Rᵀ = matrix⁻¹: the inverse transpose of its Cholesky factor."""
    factor = cholesky(matrix, name)
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return torch.linalg.solve_triangular(factor.mT, identity, upper=True)


def jittered_cholesky(
    matrix: Float[Tensor, "*b n n"], name: str
) -> tuple[Float[Tensor, "*b n n"], float]:
    """L, and the share of the mean diagonal that was added to the diagonal, or 0.

    The share grows tenfold at each attempt, from a few roundings to a thousandth; if that does not
    help, `NotPositiveDefinite` is raised.
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not bool(info.any()):
        return factor, 0.0
    scale = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None]
    jitter = max(MIN_JITTER, 10 * torch.finfo(matrix.dtype).eps) / 10
    while jitter < MAX_JITTER and bool((scale > 0).all()):
        jitter = min(10 * jitter, MAX_JITTER)
        raised = matrix.clone()
        raised.diagonal(dim1=-2, dim2=-1).add_(jitter * scale)
        factor, info = torch.linalg.cholesky_ex(raised)
        if not bool(info.any()):
            return factor, jitter
    if not bool(matrix.isfinite().all()):
        raise NotPositiveDefinite(
            f"{name} must be finite, got NaN or infinity; look for huge values in x."
        )
    raise NotPositiveDefinite(
        f"{name} must be positive definite, got one that is not even with {MAX_JITTER:g} of its "
        "mean added to its diagonal; use float64, scale x, or raise noise_std or jitter."
    )


def warn_of_jitter(name: str, jitter: float) -> None:
    warn_caller(
        f"{name} should be positive definite, in floating point it is not quite; {jitter:.0e} of "
        "its mean was added to its diagonal. (Nearly) duplicate rows cause this, and a very small "
        "noise_std or jitter.",
        JitterWarning,
    )
