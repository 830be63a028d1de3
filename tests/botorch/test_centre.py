"""The prior mean of Bayesian optimisation: the likeliest constant, not the labels' average."""

import torch

from gpn.botorch.model import GPNModel, likeliest_constant
from gpn.core.priors.ard import ARDPrior

PRIOR = ARDPrior(column_scales=(0.3,), activation="cos")
BOUNDS = torch.tensor([[0.0], [1.0]], dtype=torch.float64)


def test_the_constant_solves_its_normal_equation() -> None:
    """d/dc [½ (y − c)ᵀC⁻¹(y − c) + ½ c²] = 0."""
    x = torch.linspace(0, 1, 7, dtype=torch.float64)[:, None]
    y, noise_std = torch.sin(5 * x) + 0.5, 0.1
    c = likeliest_constant(PRIOR, x, y, noise_std)
    covariance = PRIOR.kernel(x, x) + noise_std**2 * torch.eye(7, dtype=torch.float64)
    slope = torch.linalg.solve(covariance, y - c).sum() - c
    assert abs(float(slope)) < 1e-9


def test_a_crowd_of_high_labels_does_not_lift_the_rest_of_the_box() -> None:
    """Twelve labels crowd at the maximum; where nothing was measured, the mean is lower than their
    average."""
    crowd = 0.5 + 0.01 * torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None]
    x = torch.cat([torch.tensor([[0.0], [0.25], [1.0]], dtype=torch.float64), crowd])
    y = torch.exp(-(((x - 0.5) / 0.1) ** 2))
    model = GPNModel.fit(x, y, BOUNDS, rng=0)
    away = float(model.posterior(torch.tensor([[0.75]], dtype=torch.float64)).mean)
    assert away < float(y.mean()) - 0.2
