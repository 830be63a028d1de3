"""The variance from bands of a triangular root is that of the whole root."""

import pytest
import torch

from gpn.core.priors.ard import ARDPrior
from gpn.methods.gpn.model.kernel_generator import BAND, condition_exactly

PRIOR = ARDPrior(column_scales=(1.0, 2.0))


@pytest.mark.parametrize("n", [20, BAND, BAND + 1, 3 * BAND])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_are_those_of_the_covariance(n: int, weighted: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    x, new = (torch.randn(rows, 2, generator=rng, dtype=torch.float64) for rows in (n, 30))
    weights = torch.rand(n, generator=rng, dtype=torch.float64) + 0.5 if weighted else None
    generator = condition_exactly(PRIOR, x, x[:, :1].sin(), 0.1, weights)
    assert generator._is_triangular == (n > BAND)
    mean, variance = generator.moments(new)
    torch.testing.assert_close(variance[:, 0], generator.covariance(new).diagonal())
    torch.testing.assert_close(mean, generator.mean(new))
