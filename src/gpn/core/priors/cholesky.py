"""Cholesky factors of matrices that are positive definite on paper, and nearly so in numbers."""

import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.warnings import GPNWarning

FIRST, MOST = 1e-12, 1e-3


class JitterWarning(GPNWarning):
    """A matrix was not positive definite in floating point, and something was added to it."""


class NotPositiveDefinite(torch.linalg.LinAlgError, ValueError):  # type: ignore[name-defined]
    """A matrix that has no Cholesky factor: what was given does not allow one."""


def cholesky(matrix: Float[Tensor, "*b n n"], what: str) -> Float[Tensor, "*b n n"]:
    """L with L Lᵀ = matrix; where rounding forbids it, of the matrix with a larger diagonal."""
    factor, share = jittered_cholesky(matrix, what)
    if share > 0:
        warn_of_jitter(what, share)
    return factor


def inverse_root(matrix: Float[Tensor, "*b n n"], what: str) -> Float[Tensor, "*b n n"]:
    """R with R Rᵀ = matrix⁻¹: the inverse transpose of its Cholesky factor."""
    factor = cholesky(matrix, what)
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return torch.linalg.solve_triangular(factor.mT, identity, upper=True)


def jittered_cholesky(
    matrix: Float[Tensor, "*b n n"], what: str
) -> tuple[Float[Tensor, "*b n n"], float]:
    """L, and the share of the mean diagonal that had to be added to every entry of it, or 0.

    Tenfold more at each try, from a few roundings to a thousandth; where that does not help, an
    error says so.
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not bool(info.any()):
        return factor, 0.0
    scale = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None]
    share = max(FIRST, 10 * torch.finfo(matrix.dtype).eps) / 10
    while share < MOST and bool((scale > 0).all()):
        share = min(10 * share, MOST)
        shifted = matrix.clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(share * scale)
        factor, info = torch.linalg.cholesky_ex(shifted)
        if not bool(info.any()):
            return factor, share
    raise NotPositiveDefinite(_refusal(matrix, what))


def warn_of_jitter(what: str, share: float) -> None:
    warnings.warn(
        f"{what} should be positive definite, in floating point it is not quite; {share:.0e} of "
        "its mean was added to its diagonal. Rows that (nearly) repeat others do this, and a very "
        "small noise_std or jitter.",
        JitterWarning,
        stacklevel=4,
    )


def _refusal(matrix: Tensor, what: str) -> str:
    if not bool(matrix.isfinite().all()):
        return f"{what} must be finite, got NaN or infinity; look for huge values in x."
    return (
        f"{what} must be positive definite, got one that is not even with {MOST:g} of its mean "
        "added to its diagonal; use float64, scale x, or raise noise_std or jitter."
    )
