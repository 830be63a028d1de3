"""One label of two classes: the best Gaussian posterior has a closed form.

For the difference d = f₁ − f₀ of two independent logits, each with prior variance k, and q(d) =
N(m, v), the minimum of KL(q ‖ p) is where

    m = 2k E_q[1 − σ(d)],        1/v = 1/2k + E_q[σ(d) (1 − σ(d))].
"""

import math

import numpy as np
import pytest
import torch

import gpn

X = torch.tensor([[0.3]])


def best_gaussian(k: float) -> tuple[float, float]:
    """m and v by damped fixed-point iteration, with Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    m, v = 0.0, 2 * k
    for _ in range(500):
        p = 1 / (1 + np.exp(-(m + math.sqrt(v) * nodes)))
        gradient, curvature = (
            float((weights * values).sum() / weights.sum()) for values in (1 - p, p - p * p)
        )
        m += 0.2 * (2 * k * gradient - m)
        v += 0.2 * (1 / (1 / (2 * k) + curvature) - v)
    return m, v


def test_the_posterior_is_the_best_gaussian() -> None:
    prior = gpn.MLPPrior()
    train = gpn.TrainConfig(steps=500, device="cpu")
    config = gpn.GPNConfig(anchor="joint", prior=prior, train=train)
    task = gpn.Task(X, torch.tensor([1]), pool=gpn.box([-1.0], [1.0]), n_classes=2)
    posterior = gpn.GPN(config).fit(task, rng=0)
    m, v = best_gaussian(float(prior.kernel(X, X)))
    (low, high), roots = posterior.mean(X)[0], posterior.covariance_root(X)
    assert float(high - low) == pytest.approx(m, rel=0.03)
    assert float((roots[1] - roots[0]).square().sum()) == pytest.approx(v, rel=0.05)
