"""Spectral features: the leading eigenfunctions of a prior's kernel.

Karhunen-Loève on the pool: with K ψ_j = λ_j ψ_j (scaled so that Σ_j ψ_j(x) ψ_j(x') ≈ K(x, x')),

    f(x; z) = Σ_j ψ_j(x) z_j,       z ~ N(0, I)

is a prior function for *every* z. As axes of the code they make anchors unlimited, and no codes
need to be learnt.
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
DRAWN_CHUNK_ROWS = 1024
CACHED_NUMBERS = 2**17  # that a CPU's cache holds


class SpectralAxes(ABC):
    """ψ(x) at any x; `explained_variance` is the axes' share of the prior's variance."""

    explained_variance: float
    n_axes: int

    @abstractmethod
    def __call__(self, x: Inputs) -> PsiTable:
        """ψ_1(x) .. ψ_r(x) at each row."""

    @abstractmethod
    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        """The full prior variance at each row, of which the axes explain Σ_j ψ_j(x)²."""


class KernelAxes(SpectralAxes):
    """Eigenfunctions of a kernel in closed form, extended from landmarks (Nyström).

    K_PP = U Λ Uᵀ on the landmarks P gives ψ(x) = K(x, P) U_r Λ_r^{−1/2}.
    """

    def __init__(self, spec: PriorSpec, landmarks: Inputs, max_axes: int, explained: float) -> None:
        self.spec = spec
        self.landmarks = landmarks.double()
        values, vectors = torch.linalg.eigh(spec.kernel(self.landmarks, self.landmarks))
        values, vectors = values.flip(0).clamp_min(0.0), vectors.flip(1)
        self.n_axes, self.explained_variance = _leading(values, max_axes, explained)
        floor = 1e-12 * float(values[0])
        roots = values[: self.n_axes].clamp_min(floor).sqrt()
        self.projection = vectors[:, : self.n_axes] / roots

    def __call__(self, x: Inputs) -> PsiTable:
        cached_rows = max(1, CACHED_NUMBERS // len(self.landmarks))
        size = cached_rows if x.device.type == "cpu" else CHUNK_ROWS
        chunks = (self.spec.kernel(chunk.double(), self.landmarks) for chunk in x.split(size))
        return torch.cat([chunk @ self.projection for chunk in chunks]).to(x.dtype)

    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        chunks = [self.spec.variance(chunk.double()) for chunk in x.split(CHUNK_ROWS)]
        return torch.cat(chunks).to(x.dtype)


class DrawnKernel:
    """A prior's kernel by Monte Carlo: K(x, x') = Σ_i f_i(x) f_i(x') / k over k drawn functions."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior

    def __call__(self, left: Inputs, right: Float[Tensor, "m *d"]) -> Float[Tensor, "n m"]:
        values = self.values(left).double(), self.values(right).double()
        return values[0] @ values[1].T / values[0].shape[1]

    def values(self, x: Inputs) -> Float[Tensor, "n k"]:
        """f_i(x); every output of every network is one function."""
        example = next(iter(self.prior.weights.values()))
        return self.prior(x.to(example.dtype)).movedim(1, 0).flatten(1)


class DrawnAxes(SpectralAxes):
    """Eigenfunctions of any prior, from draws: principal functions of many networks.

    With F (k × L) the values of k draws f_i at the landmarks and F/√k = V S Uᵀ, the axes are
    ψ_j = Σ_i V_ij f_i / √k.
    """

    def __init__(
        self, kernel: DrawnKernel, landmarks: Inputs, max_axes: int, explained: float
    ) -> None:
        self.kernel = kernel
        values = self.kernel.values(landmarks).double().T
        root_k = len(values) ** 0.5
        left, singular, _ = torch.linalg.svd(values / root_k, full_matrices=False)
        self.n_axes, self.explained_variance = _leading(singular.square(), max_axes, explained)
        self.projection = left[:, : self.n_axes] / root_k

    def __call__(self, x: Inputs) -> PsiTable:
        chunks = (self.kernel.values(chunk).double() for chunk in x.split(DRAWN_CHUNK_ROWS))
        return torch.cat([chunk @ self.projection for chunk in chunks]).to(x.dtype)

    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        chunks = (self.kernel.values(chunk) for chunk in x.split(DRAWN_CHUNK_ROWS))
        return torch.cat([chunk.square().mean(1) for chunk in chunks])


class StretchedAxes(SpectralAxes):
    """Axes stretched row by row to the full prior variance: ψ(x) · (Var[f(x)] / ‖ψ(x)‖²)^{1/2}.

    A few axes explain less of the prior at unusual rows, which matter most. Independent anchors
    treat rows one by one, so that a factor per row does not change their meaning.
    """

    def __init__(self, axes: SpectralAxes) -> None:
        self.axes = axes
        self.n_axes, self.explained_variance = axes.n_axes, axes.explained_variance

    def __call__(self, x: Inputs) -> PsiTable:
        return stretched(self.axes(x), self.variance(x))

    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        return self.axes.variance(x)


def stretched(axes: Float[Tensor, "n q"], variance: Float[Tensor, "n"]) -> Float[Tensor, "n q"]:
    """Each row scaled to the sum of squares `variance`; a row of zeros stays zero."""
    limits = torch.finfo(axes.dtype)
    squares = torch.maximum(axes.square().sum(1), limits.eps * variance.clamp_min(limits.tiny))
    return axes * (variance / squares).sqrt()[:, None]


def spectral_axes(
    spec: PriorSpec,
    landmarks: Inputs,
    n_outputs: int,
    max_axes: int,
    explained: float,
    rng: torch.Generator,
) -> SpectralAxes:
    """Axes from the kernel where it has a closed form, else from draws of the prior.

    As few as explain the share `explained` of the prior's variance at the landmarks, and at most
    `max_axes`.
    """
    if spec.has_kernel:
        return KernelAxes(spec, landmarks, max_axes, explained)
    return DrawnAxes(drawn_kernel(spec, landmarks, n_outputs, rng), landmarks, max_axes, explained)


def drawn_kernel(
    spec: PriorSpec, like: Inputs, n_outputs: int, rng: torch.Generator
) -> DrawnKernel:
    """The Monte-Carlo kernel of some 2,000 prior functions, for rows shaped like these."""
    count = -(-DRAWN_FUNCTIONS // n_outputs)
    prior = spec.sample(tuple(like.shape[1:]), n_outputs, count, rng)
    return DrawnKernel(prior.to(like.device, like.dtype))


def _leading(variances: Float[Tensor, "L"], max_axes: int, explained: float) -> tuple[int, float]:
    """The number of leading variances that explain the share `explained`, and their share."""
    shares = variances.cumsum(0) / variances.sum()
    count = min(int((shares < explained).sum()) + 1, max_axes, len(variances))
    return count, float(shares[count - 1])
