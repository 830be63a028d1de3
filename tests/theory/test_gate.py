"""The gate between posterior and prior: why it is the paper's loss, and what its draws are."""

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor

from gpn.core.posterior.base import FunctionBatch
from gpn.core.posterior.gated import GatedPosterior, half_width
from gpn.core.posterior.gaussian import GaussianPosterior
from gpn.core.task import Signature

PRIOR_VARIANCE = 4.0


class Line(GaussianPosterior):
    """g(x) = x₀ + z x₁ of one output, or of two logits."""

    def __init__(self, n_classes: int | None = None) -> None:
        outputs = n_classes or 1
        signature = Signature((2,), outputs, is_classification=n_classes is not None)
        super().__init__(signature, torch.device("cpu"), torch.float64, 0.1)

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        z = torch.randn(n, 1, self.n_outputs, generator=rng, dtype=torch.float64)
        return lambda x: x[:, :1] + z * x[:, 1:]

    def moments(self, x: Tensor, n: int = 0, rng: object = 0) -> tuple[Tensor, Tensor]:
        rows = self._rows(x)
        ones = torch.ones(1, self.n_outputs, dtype=torch.float64)
        return rows[:, :1] * ones, rows[:, 1:].square() * ones


def known(x: Tensor) -> Tensor:
    """1 at x₀ = 0, and less further away."""
    return torch.exp(-x[:, 0].abs())


ROWS = torch.tensor([[0.0, 0.5], [0.5, 0.5], [1.0, 0.3], [8.0, 0.5]], dtype=torch.float64)


def test_the_minimiser_of_the_practical_loss_is_a_gate_by_the_density_ratio() -> None:
    """p_obs (μ − g)² + β p_pool (f − g)² is least at s μ + (1 − s) f, s = r/(r + β)."""
    rng = np.random.default_rng(0)
    for p_obs, p_pool, mu, f, beta in rng.uniform(0.1, 2, (20, 5)):

        def loss(g: float, a=p_obs, b=p_pool, m=mu, prior=f, c=beta) -> float:
            return a * (m - g) ** 2 + c * b * (prior - g) ** 2

        ratio = p_obs / p_pool
        share = ratio / (ratio + beta)
        found = optimize.minimize_scalar(loss).x
        assert found == pytest.approx(share * mu + (1 - share) * f, abs=1e-6)


def test_draws_have_the_moments_of_the_mixture() -> None:
    gated = GatedPosterior(Line(), known, PRIOR_VARIANCE)
    draws = torch.cat([gated.sample(ROWS, 400, rng=seed) for seed in range(200)])[:, :, 0]
    mean, variance = gated.moments(ROWS)
    s = known(ROWS)
    torch.testing.assert_close(variance[:, 0], s * ROWS[:, 1] ** 2 + (1 - s) * PRIOR_VARIANCE)
    torch.testing.assert_close(draws.mean(0), mean[:, 0], atol=0.04, rtol=0)
    torch.testing.assert_close(draws.var(0), variance[:, 0], rtol=0.12, atol=0.01)
    covariance = torch.cov(draws.T)
    torch.testing.assert_close(covariance, gated.covariance(ROWS)[0], atol=0.15, rtol=0.1)


def test_draws_have_the_quantiles_of_the_mixture() -> None:
    """Over many batches, since all draws of one batch share the prior's frequencies."""
    gated = GatedPosterior(Line(), known, PRIOR_VARIANCE)
    draws = torch.cat([gated.sample(ROWS, 1000, rng=seed) for seed in range(40)])
    low, high = gated.interval(ROWS, 0.9)
    inside = ((low <= draws) & (draws <= high)).double().mean(0)
    torch.testing.assert_close(inside, torch.full_like(inside, 0.9), atol=0.01, rtol=0)


def test_a_draw_is_one_function() -> None:
    """The same values at the same rows, whatever other rows are in the call."""
    gated = GatedPosterior(Line(), known, PRIOR_VARIANCE)
    values = gated.draw_many(20, rng=0)
    torch.testing.assert_close(values(ROWS)[:, 1:3], values(ROWS[1:3]))


def test_the_width_solves_the_equation_of_the_quantile() -> None:
    s, v, other = torch.tensor([[0.7]]), torch.tensor([[0.25]]), torch.tensor([[9.0]])
    half = float(half_width(s, v, other, 0.975))
    reached = 0.7 * stats.norm.cdf(half, scale=0.5) + 0.3 * stats.norm.cdf(half, scale=3.0)
    assert reached == pytest.approx(0.975, abs=1e-6)


def test_unknown_rows_have_no_likelier_class() -> None:
    """s p + (1 − s)/C, in closed form and over draws."""
    plain, gated = Line(2), GatedPosterior(Line(2), known, PRIOR_VARIANCE)
    rows = torch.tensor([[0.0, 1.0], [1.0, 1.0], [50.0, 1.0]], dtype=torch.float64)
    s = known(rows)[:, None]
    expected = s * plain.probabilities(rows) + (1 - s) / 2
    torch.testing.assert_close(gated.probabilities(rows), expected)
    over_draws = gated.sample(rows, 20_000, rng=0).softmax(-1).mean(0)
    torch.testing.assert_close(over_draws, expected, atol=0.02, rtol=0)
    assert float(gated.mutual_information(rows)[2]) > 0.1
