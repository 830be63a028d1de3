"""Posteriors whose values at any row are exactly Gaussian."""

from abc import abstractmethod
from statistics import NormalDist
from typing import Any

from gpn.core.posterior.base import MOMENT_DRAWS, Posterior
from gpn.core.types import Outputs, Rng


class GaussianPosterior(Posterior):
    """A method supplies `moments` in closed form; its intervals are then in closed form, too."""

    @abstractmethod
    def moments(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> tuple[Outputs, Outputs]:
        """E[g(x, z)] and Var[g(x, z)], exactly; `n` and `rng` play no part."""

    def interval(
        self,
        x: Any,
        level: float = 0.95,
        n: int = MOMENT_DRAWS,
        rng: Rng = 0,
        *,
        observation_noise: bool = False,
    ) -> tuple[Outputs, Outputs]:
        return self.interval_of(*self.moments(x), level, observation_noise=observation_noise)

    def interval_of(
        self, mean: Outputs, variance: Outputs, level: float, *, observation_noise: bool
    ) -> tuple[Outputs, Outputs]:
        """mean ± q √(Var[g] + σ_ε²), with σ_ε only for the interval of a new label."""
        quantile = NormalDist().inv_cdf(self._tails(level)[1])
        noise = self._noise_variance(observation_noise=observation_noise)
        half = quantile * (variance + noise).sqrt()
        return mean - half, mean + half
