"""Spectral anchors: the prior's leading eigenfunctions as the code's own axes.

Karhunen-Loève on the pool: with K ψ_j = λ_j ψ_j (scaled so that Σ_j ψ_j(x) ψ_j(x') ≈ K(x, x')),

    f(x; z) = Σ_j ψ_j(x) z_j,       z ~ N(0, I)

is a prior function for *every* z, so anchors are unlimited and no codes are learnt.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.priors.prior import Prior, PriorSpec
from gpn.core.types import Inputs

PsiTable = Float[Tensor, "n r"]

DRAWN_FUNCTIONS = 2048

CHUNK_ROWS = 4096

NUMBERS_IN_A_CACHE = 2**17


class SpectralAxes(ABC):
    """ψ(x), evaluable at any x; `kept` is the share of the prior's variance that the axes hold."""

    kept: float
    n_axes: int

    @abstractmethod
    def __call__(self, x: Inputs) -> PsiTable:
        """ψ_1(x) .. ψ_r(x) at each row."""

    @abstractmethod
    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        """The prior's whole variance at each row, of which the axes hold Σ_j ψ_j(x)²."""


class KernelAxes(SpectralAxes):
    """Eigenfunctions of a kernel known in closed form, extended from landmarks (Nyström).

    K_PP = U Λ Uᵀ on the landmarks P gives ψ(x) = K(x, P) U_r Λ_r^{−1/2}.
    """

    def __init__(self, spec: PriorSpec, landmarks: Inputs, most: int, enough: float) -> None:
        self.spec = spec
        self.landmarks = landmarks.double()
        values, vectors = torch.linalg.eigh(spec.kernel(self.landmarks, self.landmarks))
        values, vectors = values.flip(0).clamp_min(0.0), vectors.flip(1)
        self.n_axes, self.kept = _leading(values, most, enough)
        floor = 1e-12 * float(values[0])
        roots = values[: self.n_axes].clamp_min(floor).sqrt()
        self.projection = vectors[:, : self.n_axes] / roots

    def __call__(self, x: Inputs) -> PsiTable:
        fitting = NUMBERS_IN_A_CACHE // len(self.landmarks)
        size = max(1, fitting) if x.device.type == "cpu" else CHUNK_ROWS
        return torch.cat([self._extend(part) for part in x.split(size)]).to(x.dtype)

    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        return torch.cat([self.spec.variance(part.double()) for part in x.split(CHUNK_ROWS)]).to(
            x.dtype
        )

    def _extend(self, x: Inputs) -> PsiTable:
        return self.spec.kernel(x.double(), self.landmarks) @ self.projection


class DrawnKernel:
    """A prior's kernel by its own draws: K(x, x') = Σ_i f_i(x) f_i(x') / k over k functions."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior

    def __call__(self, left: Inputs, right: Float[Tensor, "m *d"]) -> Float[Tensor, "n m"]:
        values = self.values(left).double(), self.values(right).double()
        return values[0] @ values[1].T / values[0].shape[1]

    def values(self, x: Inputs) -> Float[Tensor, "n k"]:
        """Every output of every network is one function."""
        example = next(iter(self.prior.weights.values()))
        return self.prior(x.to(example.dtype)).movedim(1, 0).flatten(1)


class DrawnAxes(SpectralAxes):
    """Eigenfunctions of any prior, from its own draws: principal functions of many networks.

    With F (k × L) the values of k draws f_i at the landmarks and F/√k = V S Uᵀ, the axes are
    ψ_j = Σ_i V_ij f_i / √k.
    """

    def __init__(self, kernel: DrawnKernel, landmarks: Inputs, most: int, enough: float) -> None:
        self.kernel = kernel
        values = self.kernel.values(landmarks).double().T
        root_k = len(values) ** 0.5
        left, spread, _ = torch.linalg.svd(values / root_k, full_matrices=False)
        self.n_axes, self.kept = _leading(spread.square(), most, enough)
        self.projection = left[:, : self.n_axes] / root_k

    def __call__(self, x: Inputs) -> PsiTable:
        parts = [self.kernel.values(part).double() @ self.projection for part in x.split(1024)]
        return torch.cat(parts).to(x.dtype)

    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        return torch.cat([self.kernel.values(part).square().mean(1) for part in x.split(1024)])


class StretchedAxes(SpectralAxes):
    """Axes stretched row by row to the prior's whole variance: ψ(x) · (Var[f(x)] / ‖ψ(x)‖²)^{1/2}.

    Few axes hold less of the prior at unusual rows, which are the ones that matter; independent
    anchors look at rows one by one, so that a factor per row costs them nothing.
    """

    def __init__(self, axes: SpectralAxes) -> None:
        self.axes = axes
        self.n_axes, self.kept = axes.n_axes, axes.kept

    def __call__(self, x: Inputs) -> PsiTable:
        return stretched(self.axes(x), self.variance(x))

    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        return self.axes.variance(x)


def stretched(axes: Float[Tensor, "n q"], variance: Float[Tensor, "n"]) -> Float[Tensor, "n q"]:
    """Each row scaled to that sum of squares; a row that is zero stays so."""
    limits = torch.finfo(axes.dtype)
    held = torch.maximum(axes.square().sum(1), limits.eps * variance.clamp_min(limits.tiny))
    return axes * (variance / held).sqrt()[:, None]


def spectral_axes(
    spec: PriorSpec,
    landmarks: Inputs,
    n_outputs: int,
    most: int,
    enough: float,
    rng: torch.Generator,
) -> SpectralAxes:
    """Axes from the kernel where it is known, else from the prior's own draws.

    As few as hold the share `enough` of the prior's variance on the landmarks, but at most `most`.
    """
    if spec.has_kernel:
        return KernelAxes(spec, landmarks, most, enough)
    return DrawnAxes(drawn_kernel(spec, landmarks, n_outputs, rng), landmarks, most, enough)


def drawn_kernel(
    spec: PriorSpec, like: Inputs, n_outputs: int, rng: torch.Generator
) -> DrawnKernel:
    """Some two thousand functions of the prior, for rows like these."""
    count = -(-DRAWN_FUNCTIONS // n_outputs)
    prior = spec.sample(tuple(like.shape[1:]), n_outputs, count, rng)
    return DrawnKernel(prior.to(like.device, like.dtype))


def _leading(variances: Float[Tensor, "L"], most: int, enough: float) -> tuple[int, float]:
    """How many of the leading variances to keep, and the share that they hold."""
    shares = variances.cumsum(0) / variances.sum()
    count = min(int((shares < enough).sum()) + 1, most, len(variances))
    return count, float(shares[count - 1])
