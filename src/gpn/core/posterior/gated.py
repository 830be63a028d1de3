"""A posterior that is as unsure as the prior at rows that are unlike the labeled ones.

With s(x) = P(known | x), the values at a row are a mixture of two distributions,

    s(x) · posterior at x  +  (1 − s(x)) · N(m(x), v₀),        m(x) the posterior's mean

Logits of classes have mean 0 in the second part, so that no class is likelier than another. A draw
is still one function: it has one threshold u ~ U(0, 1), follows the posterior where s(x) ≥ u, and
m(x) plus one function of the prior elsewhere.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.posterior.base import (
    MOMENT_DRAWS,
    FunctionBatch,
    Posterior,
    entropy,
)
from gpn.core.posterior.gaussian import GaussianPosterior
from gpn.core.types import Draws, Inputs, Outputs, Rng, as_generator, normal

Known = Callable[[Inputs], Float[Tensor, "n"]]

FREQUENCIES = 64
BISECTIONS = 40
ENTROPY_DRAWS = 4000


class GatedPosterior(Posterior):
    """`posterior` where rows are known, a prior of variance v₀ elsewhere.

    v₀ is `prior_variance`, or the posterior's own variance where that is larger.
    """

    def __init__(self, posterior: Posterior, known: Known, prior_variance: float) -> None:
        super().__init__(
            posterior.signature, posterior.device, posterior.dtype, posterior.noise_std
        )
        self.inner, self.temperature = posterior, posterior.temperature
        self.known = known
        self.prior_variance = prior_variance

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        """Draws of the posterior, each replaced by a draw of the prior where s(x) < its u."""
        inner = self.inner.functions(n, rng)
        thresholds = torch.rand(n, 1, 1, generator=rng, device=rng.device).to(self.device)
        prior = self._prior_functions(n, rng)

        def values(x: Inputs) -> Draws:
            share = self.known(x).to(self.device)[None, :, None]
            return torch.where(share >= thresholds, inner(x), prior(x))

        return values

    def sample(self, x: Any, n: int = 100, rng: Rng = None) -> Draws:
        """Joint draws at the rows of `x`, with the posterior's exact ones where it has them."""
        if type(self.inner).sample is Posterior.sample:
            return super().sample(x, n, rng)
        rows, generator = self._rows(x), as_generator(rng, self.device)
        with torch.no_grad():
            inner = self.inner.sample(rows, n, generator)
            thresholds = torch.rand(n, 1, 1, generator=generator, device=generator.device)
            share = self.known(rows).to(self.device)[None, :, None]
            prior = self._prior_functions(n, generator)
            return torch.where(share >= thresholds.to(share), inner, prior(rows))

    def moments(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> tuple[Outputs, Outputs]:
        """m and s v + (1 − s) v₀; of logits, also the variance between the two means."""
        mean, variance = self.inner.moments(x, n, rng)
        share = self._share(x).to(mean)
        other = variance.clamp_min(self.prior_variance)
        total = share * variance + (1 - share) * other
        if self.signature.is_classification:
            return share * mean, total + share * (1 - share) * mean.square()
        return mean, total

    def mean(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        mean = self.inner.mean(x, n, rng)
        return self._share(x).to(mean) * mean if self.signature.is_classification else mean

    @torch.no_grad()
    def covariance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "o n n"]:
        """min(s, s') K + (1 − max(s, s')) K₀: rows are known together, or unknown together.

        K₀ is that of the prior's functions, whose frequencies are random. Of logits, over draws.
        """
        if self.signature.is_classification:
            return super().covariance(x, n, rng)
        rows, share = self._rows(x), self._share(x).to(self.dtype)
        deviation = self.inner.variance(rows, n, rng).clamp_min(self.prior_variance).sqrt().T
        flat = rows.flatten(1)
        near = torch.exp(-torch.cdist(flat, flat).square() / (2 * flat.shape[1]))
        prior = deviation[:, :, None] * deviation[:, None, :] * near
        both, neither = share.minimum(share.T), 1 - share.maximum(share.T)
        return both * self.inner.covariance(rows, n, rng) + neither * prior

    def interval(
        self,
        x: Any,
        level: float = 0.95,
        n: int = MOMENT_DRAWS,
        rng: Rng = 0,
        *,
        observation_noise: bool = False,
    ) -> tuple[Outputs, Outputs]:
        """Quantiles of the mixture: by bisection where the posterior is Gaussian, else of draws."""
        if self.signature.is_classification or not isinstance(self.inner, GaussianPosterior):
            return super().interval(x, level, n, rng, observation_noise=observation_noise)
        noise = self._noise_variance(observation_noise=observation_noise)
        mean, variance = self.inner.moments(x)
        other = variance.clamp_min(self.prior_variance)
        upper = self._tails(level)[1]
        half = half_width(self._share(x), variance + noise, other + noise, upper).to(mean)
        return mean - half, mean + half

    def _class_moments(self, x: Any, n: int, rng: Rng) -> tuple[Outputs, Tensor]:
        """s E[p] + (1 − s)/C, and the same of entropies."""
        mean, mean_entropy = self.inner._class_moments(x, n, rng)
        share = self._share(x).to(mean)
        uniform = torch.full_like(mean, 1 / self.n_outputs)
        of_prior = self._prior_entropy()
        share_of_rows = share[:, 0]
        entropies = share_of_rows * mean_entropy + (1 - share_of_rows) * of_prior
        return share * mean + (1 - share) * uniform, entropies

    def _prior_functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        """m(x) plus random Fourier features with Gaussian weights: N(m(x), v₀) at every row."""
        n_columns = 1
        for size in self.signature.input_shape:
            n_columns *= size
        like = torch.zeros((), device=self.device, dtype=self.dtype)
        waves = normal((n_columns, FREQUENCIES), rng, like) / max(1, n_columns) ** 0.5
        weights = normal((n, 2 * FREQUENCIES, self.n_outputs), rng, like)

        def values(x: Inputs) -> Draws:
            phase = x.flatten(1).to(like) @ waves
            features = torch.cat([phase.cos(), phase.sin()], dim=1) / FREQUENCIES**0.5
            unit = features @ weights
            if self.signature.is_classification:
                return unit * self.prior_variance**0.5
            mean, variance = self.inner.moments(x)
            return mean + unit * variance.clamp_min(self.prior_variance).sqrt()

        return values

    def _prior_entropy(self) -> float:
        """E H[softmax(g / T)] of logits g ~ N(0, v₀)."""
        like = torch.zeros((), dtype=torch.float64)
        logits = normal((ENTROPY_DRAWS, self.n_outputs), as_generator(0), like)
        scale = self.prior_variance**0.5 / self.temperature
        return float(entropy((logits * scale).softmax(-1)).mean())

    def _share(self, x: Any) -> Float[Tensor, "n 1"]:
        with torch.no_grad():
            return self.known(self._rows(x)).to(self.device)[:, None]


def half_width(
    share: Float[Tensor, "n 1"], variance: Outputs, other: Outputs, upper: float
) -> Outputs:
    """From the mean to the quantile `upper` of share · N(0, variance) + rest · N(0, other).

    It lies between the quantiles of the two parts, and bisection finds it there.
    """
    wide = variance.double(), other.double()
    narrow, broad = (
        part.sqrt() * torch.special.ndtri(torch.tensor(upper, dtype=torch.float64)) for part in wide
    )
    low, high = narrow.minimum(broad), narrow.maximum(broad)
    known = share.double()
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        first, second = (
            torch.special.ndtr(middle / part.sqrt().clamp_min(1e-150)) for part in wide
        )
        below = known * first + (1 - known) * second < upper
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2
