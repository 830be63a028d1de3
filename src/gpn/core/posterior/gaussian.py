"""Posteriors whose values at any row are exactly Gaussian."""

from statistics import NormalDist
from typing import Any

from gpn.core.posterior.base import MOMENT_DRAWS, Posterior
from gpn.core.types import Outputs, Rng


class GaussianPosterior(Posterior):
    """Intervals in closed form, from a mean and a variance that are in closed form too.

    A class of this kind has `mean` and `variance`, or `moments` where one pass gives both.
    """

    def moments(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> tuple[Outputs, Outputs]:
        return self.mean(x, n, rng), self.variance(x, n, rng)

    def interval(
        self,
        x: Any,
        level: float = 0.95,
        n: int = MOMENT_DRAWS,
        rng: Rng = 0,
        *,
        observation_noise: bool = False,
    ) -> tuple[Outputs, Outputs]:
        """mean ± q √(Var[g] + σ_ε²), with σ_ε only where a new label's interval is asked for."""
        reach = NormalDist().inv_cdf(self._tails(level)[1])
        noise = self._noise_variance(observation_noise=observation_noise)
        mean, variance = self.moments(x)
        half = reach * (variance + noise).sqrt()
        return mean - half, mean + half
