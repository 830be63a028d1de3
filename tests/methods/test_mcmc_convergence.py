"""R̂ and ESS on chains whose convergence is known."""

import pytest
import torch
from torch import Tensor

from gpn.methods.mcmc.convergence import effective_sample_size, split_rhat


@pytest.fixture
def white() -> Tensor:
    return torch.randn(8, 500, 3, generator=torch.Generator().manual_seed(0))


def test_independent_chains_have_rhat_one(white: Tensor) -> None:
    assert (split_rhat(white) - 1).abs().max() < 0.01


def test_a_shifted_chain_raises_rhat(white: Tensor) -> None:
    white[0] += 3.0
    assert split_rhat(white).min() > 1.2


def test_a_trend_within_every_chain_raises_rhat(white: Tensor) -> None:
    trend = torch.linspace(-2, 2, 500)[None, :, None]
    assert split_rhat(white + trend).min() > 1.2


def test_independent_draws_have_full_effective_sample_size(white: Tensor) -> None:
    ess = effective_sample_size(white)
    assert ess.min() > 0.8 * 4000
    assert ess.max() < 1.2 * 4000


def test_autoregressive_chains_have_the_known_ess() -> None:
    """x_t = ρ x_{t−1} + √(1 − ρ²) ξ has n (1 − ρ) / (1 + ρ) effective draws."""
    rng, rho = torch.Generator().manual_seed(1), 0.8
    noise = torch.randn(2000, 8, 4, generator=rng)
    states = [noise[0]]
    for step in noise[1:]:
        states.append(rho * states[-1] + (1 - rho**2) ** 0.5 * step)
    ess = effective_sample_size(torch.stack(states, dim=1))
    exact = 16000 * (1 - rho) / (1 + rho)
    assert ess.mean() == pytest.approx(exact, rel=0.1)


def test_short_chains_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least 4 draws"):
        split_rhat(torch.zeros(2, 3, 1))
