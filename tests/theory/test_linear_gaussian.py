"""The paper's theorem and its corrections in a linear-Gaussian model, against closed forms.

Function values Ŷ ~ N(0, Σ) at M points, labels y = H Ŷ + ε with ε ~ N(0, σ²). The MAP function is
affine in the anchor: F(Ŷ_anc) = Σ_post Σ⁻¹ Ŷ_anc + Σ_post Hᵀ y / σ². Here it is found by minimising
the library's loss terms, which are quadratic, so that one Newton step is exact.
"""

import pytest
import torch
from torch import Tensor

from gpn.core.losses import joint_gap, squared_error
from gpn.core.priors.prior import MLPPrior

SIGMA = 0.3
N_LABELS = 4


@pytest.fixture(scope="module")
def model() -> dict[str, Tensor]:
    x = torch.linspace(-2, 2, 12, dtype=torch.float64)[:, None]
    prior = MLPPrior().kernel(x, x) + 1e-6 * torch.eye(12, dtype=torch.float64)
    picked = torch.tensor([1, 4, 6, 9])
    observe = torch.eye(12, dtype=torch.float64)[picked]
    like_precision = observe.T @ observe / SIGMA**2
    posterior = torch.linalg.inv(torch.linalg.inv(prior) + like_precision)
    y = torch.tensor([0.5, -1.0, 0.2, 1.5], dtype=torch.float64)
    return {
        "prior": prior,
        "observe": observe,
        "picked": picked,
        "like_precision": like_precision,
        "posterior": posterior,
        "mean": posterior @ observe.T @ y / SIGMA**2,
        "y": y,
    }


def loss(model: dict[str, Tensor], values: Tensor, anchor: Tensor, targets: Tensor) -> Tensor:
    """(1/N) Σ ‖y − g‖² + (1/N) σ² δᵀ Σ⁻¹ δ: the library's terms, the paper's full form."""
    functions, anchors = values[None, :, None], anchor[None, :, None]
    data = squared_error(functions[:, model["picked"]], targets[None, :, None])
    gap = joint_gap(functions, anchors, torch.linalg.cholesky(model["prior"]))
    return (data + SIGMA**2 * gap / N_LABELS)[0]


def map_function(model: dict[str, Tensor], anchor: Tensor, targets: Tensor) -> Tensor:
    """argmin of the loss over function values: one Newton step from zero."""
    start = torch.zeros(12, dtype=torch.float64)

    def at(values: Tensor) -> Tensor:
        return loss(model, values, anchor, targets)

    gradient = torch.func.grad(at)(start)
    return start - torch.linalg.solve(torch.func.hessian(at)(start), gradient)


def map_moments(
    model: dict[str, Tensor], anchor_covariance: Tensor, noise_variance: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the MAP function when anchors and targets are Gaussian."""
    zero = torch.zeros(12, dtype=torch.float64)
    mean = map_function(model, zero, model["y"])
    by_anchor = torch.func.jacrev(lambda a: map_function(model, a, model["y"]))(zero)
    by_target = torch.func.jacrev(lambda y: map_function(model, zero, y))(model["y"])
    covariance = by_anchor @ anchor_covariance @ by_anchor.T
    return mean, covariance + noise_variance * by_target @ by_target.T


def test_theorem_wide_anchors_give_the_posterior(model: dict[str, Tensor]) -> None:
    """(a) Σ_anc = Σ + Σ Σ_like⁻¹ Σ: the MAP functions are exact posterior draws."""
    prior = model["prior"]
    mean, covariance = map_moments(model, prior + prior @ model["like_precision"] @ prior)
    torch.testing.assert_close(mean, model["mean"], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(covariance, model["posterior"], rtol=1e-5, atol=1e-7)


def test_prior_anchors_underestimate_variance(model: dict[str, Tensor]) -> None:
    """(b) Σ_anc = Σ gives Σ_post Σ⁻¹ Σ_post, *smaller* than Σ_post; the paper says larger."""
    _, covariance = map_moments(model, model["prior"])
    expected = model["posterior"] @ torch.linalg.inv(model["prior"]) @ model["posterior"]
    torch.testing.assert_close(covariance, expected, rtol=1e-5, atol=1e-7)
    missing = torch.linalg.eigvalsh(model["posterior"] - covariance)
    assert missing.min() > -1e-8, "Σ_post − Σ_post Σ⁻¹ Σ_post must be positive semidefinite"
    at_labels = (covariance.diagonal() / model["posterior"].diagonal())[model["picked"]]
    assert at_labels.max() < 0.1, "at the labels nearly all of the variance is lost"


def test_target_noise_restores_the_posterior(model: dict[str, Tensor]) -> None:
    """(c) Prior anchors and one N(0, σ²) draw per target give Σ_post exactly."""
    mean, covariance = map_moments(model, model["prior"], noise_variance=SIGMA**2)
    torch.testing.assert_close(mean, model["mean"], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(covariance, model["posterior"], rtol=1e-5, atol=1e-7)


def test_loss_is_the_negative_log_posterior(model: dict[str, Tensor]) -> None:
    """(d) N / (2σ²) × loss = −log p(Ŷ | y) up to a constant, when the anchor is the prior mean."""
    rng = torch.Generator().manual_seed(0)
    values = torch.randn(6, 12, generator=rng, dtype=torch.float64)
    zero = torch.zeros(12, dtype=torch.float64)
    losses = torch.stack([loss(model, v, zero, model["y"]) for v in values])
    exact = torch.distributions.MultivariateNormal(model["mean"], model["posterior"])
    log_posterior = exact.log_prob(values)
    constant = losses * N_LABELS / (2 * SIGMA**2) + log_posterior
    torch.testing.assert_close(constant, constant[:1].expand(6), rtol=1e-6, atol=1e-6)
