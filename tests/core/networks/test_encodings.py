"""Encodings before a trunk's first layer: random Fourier features, and ramps."""

import math
from pathlib import Path

import pytest
import torch

import gpn
from gpn.core.networks.encodings import PiecewiseLinearEncoding, RandomFourierFeatures
from tests.core.networks.test_networks import seeded


def test_cosines_are_features_of_a_gaussian_kernel() -> None:
    """At one scale w ~ N(0, s²/d I), E[cos(w·x + c) cos(w·x' + c)] = ½ exp(−s² ‖x − x'‖² / 2d)."""
    scale, count = 0.7, 100_000
    x = torch.randn(5, 2, generator=seeded(1))
    cosines = RandomFourierFeatures(2, count, (scale, scale), seeded())(x)[:, 2:]
    products = cosines[:, None] * cosines[None]
    exact = 0.5 * torch.exp(-(scale**2) * torch.cdist(x, x).square() / 4)
    error = products.std(-1) / math.sqrt(count)
    assert ((products.mean(-1) - exact).abs() / error).max() < 5


def test_frequencies_spread_evenly_on_a_log_scale() -> None:
    """w = s N(0, 1) with log s ~ U[log a, log b] has E[w²] = (b² − a²) / (2 log(b/a))."""
    low, high = 0.5, 8.0
    squared = (
        RandomFourierFeatures(1, 100_000, (low, high), seeded()).frequencies[0].double().square()
    )
    exact = (high**2 - low**2) / (2 * math.log(high / low))
    error = float(squared.std()) / math.sqrt(100_000)
    assert abs(float(squared.mean()) - exact) < 5 * error


def test_the_features_hold_the_input_and_the_cosines() -> None:
    module, size = gpn.MLPTrunk(fourier=6).features((2, 3), seeded())
    x = torch.randn(4, 2, 3, generator=seeded(1))
    assert size == 6 + 6
    assert torch.equal(module(x)[:, :6], x.flatten(1))
    assert list(module.parameters()) == [], "the frequencies are fixed, not trained"


@pytest.mark.parametrize("name", ["fourier", "ramps"])
def test_counts_of_features_are_not_negative(name: str) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        gpn.MLPTrunk(**{name: -1})


class TestRamps:
    def test_each_number_climbs_its_own_quantiles(self) -> None:
        """At quantile b of a number, its first b ramps are up and the others still down."""
        x = torch.rand(999, 3, generator=seeded()) * torch.tensor([1.0, 10.0, 0.1])
        ramps = PiecewiseLinearEncoding(3, 4)
        ramps.fit(x)
        at = x.quantile(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]), dim=0)
        coded = ramps(at)[:, 3:].reshape(5, 3, 4)
        stairs = 2 * torch.tril(torch.ones(5, 4), diagonal=-1) - 1
        torch.testing.assert_close(coded, stairs[:, None].expand(5, 3, 4), atol=0.02, rtol=0)
        torch.testing.assert_close(ramps(at)[:, :3], at)

    def test_a_number_with_two_values_is_a_step(self) -> None:
        x = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0])[:, None]
        ramps = PiecewiseLinearEncoding(1, 3)
        ramps.fit(x)
        coded = ramps(x)[:, 1:]
        assert coded.isfinite().all()
        assert (coded[3:] > coded[:1]).any(1).all()
        assert torch.equal(coded[0], coded[2])

    def test_before_fitting_they_suit_standardised_numbers(self) -> None:
        coded = PiecewiseLinearEncoding(1, 4)(torch.randn(4000, 1, generator=seeded()))[:, 1:]
        rising = ((coded > -1) & (coded < 1)).double().mean(0)
        torch.testing.assert_close(rising, torch.full((4,), 0.25).double(), atol=0.03, rtol=0)

    def test_a_gpn_cuts_at_its_pool_and_saves_the_cuts(self, tmp_path: Path) -> None:
        x = torch.rand(30, 2, generator=seeded()) * 50
        trunk = gpn.MLPTrunk(widths=(8,), ramps=4)
        for settings in ({"noise_std": 0.1}, {"codes": "learnt", "noise_std": 0.1}):
            config = gpn.GPNConfig(trunk=trunk, train=gpn.TrainConfig(steps=2), **settings)
            posterior = gpn.GPN(config).fit(gpn.Task(x[:5], x[:5, :1], pool=x), rng=0)
            features = posterior.generator.features
            assert isinstance(features, PiecewiseLinearEncoding)
            torch.testing.assert_close(features.starts[:, 0], x.amin(0))
            gpn.save(posterior, tmp_path / "ramps.gpn")
            again = gpn.load(tmp_path / "ramps.gpn")
            assert torch.equal(again.mean(x), posterior.mean(x))

    def test_not_together_with_fourier_features(self) -> None:
        with pytest.raises(ValueError, match=r"ramps, not both, got fourier=2 and ramps=3"):
            gpn.MLPTrunk(fourier=2, ramps=3)
