"""The posterior in closed form against the textbook formulas of Gaussian processes."""

from collections.abc import Callable

import pytest
import torch
from sklearn.gaussian_process.kernels import Matern
from torch import Tensor

import gpn
from gpn.core.priors.ard import ARDPrior, RandomFeatures
from gpn.core.priors.ard_evidence import (
    LearntPrior,
    learn_ard_prior,
    log_evidence_and_gradient,
)
from gpn.core.priors.linear_evidence import learn_linear_prior
from gpn.core.types import as_generator
from gpn.methods.gpn.model.kernel_generator import (
    FeatureSums,
    KernelGenerator,
    condition_exactly,
    leave_one_out,
)

NOISE = 0.2
PRIOR = ARDPrior(column_scales=(0.5, 2.0, 1.0), height=1.5, bias=0.7, linear=0.4)


@pytest.fixture
def labels() -> tuple[Tensor, Tensor]:
    x = torch.randn(40, 3, generator=as_generator(0), dtype=torch.float64)
    return x, torch.stack([x[:, 0].sin() + x[:, 2], x[:, 1] * 0.3], dim=1)


def textbook(prior: ARDPrior, x: Tensor, y: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """K (K + σ²I)⁻¹ y and K − K (K + σ²I)⁻¹ K."""
    inverse = torch.linalg.inv(prior.kernel(x, x) + NOISE**2 * torch.eye(len(x), dtype=x.dtype))
    cross = prior.kernel(new, x)
    return cross @ inverse @ y, prior.kernel(new, new) - cross @ inverse @ cross.T


@pytest.mark.parametrize("activation", ["erf", "tanh", "relu", "cos", "matern"])
def test_the_kernel_is_the_covariance_of_wide_networks(activation: str) -> None:
    prior = PRIOR.replace(activation=activation, width=256)
    x = torch.randn(5, 3, generator=as_generator(1))
    values = prior.sample((3,), 1, 4000, rng=0)(x)[..., 0].double()
    products = values[:, :, None] * values[:, None, :]
    error = products.std(0) / 4000**0.5
    assert ((products.mean(0) - prior.kernel(x.double(), x.double())).abs() < 5 * error).all()
    assert prior.variance(x) == pytest.approx(prior.kernel(x, x).diagonal(), rel=1e-5)


@pytest.mark.parametrize("activation", ["erf", "tanh", "relu"])
def test_equal_scales_are_the_networks_prior(activation: str) -> None:
    network = gpn.MLPPrior(
        prior_variance=(3.0, 2.0), bias_variance=(0.7, 0.0), activation=activation
    )
    x = torch.randn(5, 3, generator=as_generator(1), dtype=torch.float64)
    assert ARDPrior.of(network, 3).kernel(x, x) == pytest.approx(network.kernel(x, x))


@pytest.mark.parametrize("activation", ["erf", "cos", "matern"])
def test_random_features_have_the_kernel_as_their_product(activation: str) -> None:
    prior = PRIOR.replace(width=100_000, activation=activation)
    x = torch.randn(6, 3, generator=as_generator(1), dtype=torch.float64)
    features = RandomFeatures(prior, as_generator(0), x)(x)
    assert features @ features.T == pytest.approx(prior.kernel(x, x), abs=0.03)


def test_cosines_with_random_phases_have_the_rbf_kernel() -> None:
    prior = ARDPrior(column_scales=(0.5, 2.0), height=1.5, activation="cos")
    x = torch.randn(6, 2, generator=as_generator(1), dtype=torch.float64)
    gaps = (x[:, None] - x) / x.new_tensor([0.5, 2.0])
    torch.testing.assert_close(prior.kernel(x, x), 1.5 * (-gaps.square().sum(-1) / 2).exp())


def test_cosines_of_heavy_tails_have_the_matern_kernel() -> None:
    """That of scikit-learn, with a slope where two rows are equal."""
    scales = [0.5, 2.0]
    prior = ARDPrior(column_scales=tuple(scales), height=1.5, activation="matern")
    x = torch.randn(6, 2, generator=as_generator(1), dtype=torch.float64).requires_grad_()
    kernel = prior.kernel(x, x)
    expected = 1.5 * Matern(scales, nu=2.5)(x.detach().numpy())
    torch.testing.assert_close(kernel.detach(), torch.from_numpy(expected))
    kernel.sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


def test_a_column_of_infinite_scale_is_irrelevant() -> None:
    x = torch.randn(6, 3, generator=as_generator(1), dtype=torch.float64)
    moved = x + torch.tensor([0.0, 0.0, 5.0], dtype=x.dtype)
    prior = PRIOR.replace(column_scales=(0.5, 2.0, 1e9))
    assert prior.kernel(x, moved) == pytest.approx(prior.kernel(x, x), abs=1e-6)


def by_sums(prior: ARDPrior, x: Tensor, y: Tensor) -> KernelGenerator:
    """The labels are the landmarks, but enter through sums, in chunks."""
    chunks = zip(x.split(7), y.split(7), strict=True)
    return FeatureSums(prior, x, y.shape[1], NOISE).add(chunks).generator()


def exactly(prior: ARDPrior, x: Tensor, y: Tensor) -> KernelGenerator:
    return condition_exactly(prior, x, y, NOISE)


@pytest.mark.parametrize("condition", [exactly, by_sums])
def test_moments_are_those_of_the_textbook(
    labels: tuple[Tensor, Tensor], condition: Callable[..., KernelGenerator]
) -> None:
    """At labels, between them and far outside; with landmarks at all labels sums lose nothing."""
    x, y = labels
    new = torch.cat([x[:5], x[5:10] + 0.1, 10 * x[:5], 1000 * x[:2]])
    generator = condition(PRIOR, x, y)
    mean, covariance = textbook(PRIOR, x, y, new)
    found, variance = generator.moments(new)
    assert found == pytest.approx(mean, rel=1e-5, abs=2e-4)
    assert variance[:, 0] == pytest.approx(covariance.diagonal(), rel=1e-3, abs=1e-5)
    assert generator.covariance(new) == pytest.approx(covariance, rel=1e-3, abs=1e-2)


@pytest.mark.parametrize("condition", [exactly, by_sums])
def test_draws_have_the_moments_in_closed_form(
    labels: tuple[Tensor, Tensor], condition: Callable[..., KernelGenerator]
) -> None:
    x, y = labels
    new = torch.cat([x[:4] + 0.3, 3 * x[:3]])
    generator = condition(PRIOR, x, y)
    codes = torch.randn(4000, generator.code_dim, generator=as_generator(2), dtype=x.dtype)
    draws = torch.cat([generator(new, some) for some in codes.split(500)])
    mean, variance = generator.moments(new)
    assert draws.mean(0) == pytest.approx(mean, abs=0.12)
    assert draws.var(0) / variance == pytest.approx(torch.ones_like(variance), abs=0.15)


def test_leave_one_out_is_a_fit_without_that_label(labels: tuple[Tensor, Tensor]) -> None:
    x, y = labels
    mean, variance = leave_one_out(condition_exactly(PRIOR, x, y, NOISE), y, NOISE)
    for i in (0, 7, 39):
        rest = torch.arange(len(x)) != i
        expected, covariance = textbook(PRIOR, x[rest], y[rest], x[i : i + 1])
        assert mean[i] == pytest.approx(expected[0], abs=1e-8)
        assert variance[i, 0] == pytest.approx(float(covariance), abs=1e-8)


def test_the_mean_columns_are_the_prior_mean(labels: tuple[Tensor, Tensor]) -> None:
    """Conditioning y with mean p is conditioning y − p, and adding p at new rows."""
    x, y = labels
    p = torch.randn(len(x), 2, generator=as_generator(3), dtype=x.dtype)
    scales = (*PRIOR.column_scales, 1e9, 1e9)
    prior = PRIOR.replace(column_scales=scales, mean_columns=2)
    both = condition_exactly(prior, torch.cat([x, p], 1), y, NOISE)
    new = torch.cat([x[:5] + 0.2, p[:5] + 7.0], 1)
    plain = prior.replace(mean_columns=0)
    alone = condition_exactly(plain, torch.cat([x, p], 1), y - p, NOISE)
    assert both.moments(new)[0] == pytest.approx(alone.moments(new)[0] + p[:5] + 7.0)


def test_the_gradient_of_the_evidence(labels: tuple[Tensor, Tensor]) -> None:
    x, y = labels
    gram = (PRIOR.kernel(x, x) + 0.1 * torch.eye(len(x), dtype=x.dtype)).requires_grad_()
    normal = torch.distributions.MultivariateNormal(x.new_zeros(len(x)), gram)
    expected = normal.log_prob(y.T).sum()
    expected.backward()
    evidence, gradient = log_evidence_and_gradient(gram.detach(), y)
    assert evidence == pytest.approx(float(expected.detach()))
    assert gram.grad is not None
    assert torch.allclose(gradient, (gram.grad + gram.grad.T) / 2, rtol=1e-6)


def test_evidence_finds_which_column_matters_and_the_noise() -> None:
    x = torch.randn(300, 4, generator=as_generator(0), dtype=torch.float64)
    noise = 0.3 * torch.randn(300, 1, generator=as_generator(1), dtype=torch.float64)
    y = (2 * x[:, :1]).sin() + 0.5 * x[:, 1:2] + noise
    learnt = learn_ard_prior(x, y)
    scales = learnt.prior.column_scales
    assert min(scales[2:]) > 5 * scales[0]
    assert learnt.noise_std == pytest.approx(0.3, abs=0.05)
    assert learnt.at_edge == ()


@pytest.mark.parametrize("n_columns", [3, 60])
def test_linear_functions_have_the_evidence_of_their_kernel(n_columns: int) -> None:
    """Fewer columns than labels, and more; the answer is the best of its neighbours."""
    x = torch.randn(40, n_columns, generator=as_generator(0), dtype=torch.float64)
    noise = 0.3 * torch.randn(40, 2, generator=as_generator(1), dtype=torch.float64)
    y = x[:, :2] - 0.5 * x[:, 2:3] + noise
    learnt = learn_linear_prior(x + 3.0, y + 1.0)
    x, y = x - x.mean(0), y - y.mean(0)  # an intercept changes nothing

    def evidence(linear: float, noise: float) -> float:
        prior = learnt.prior.replace(linear=linear, height=1e-9)
        gram = prior.kernel(x, x) + (noise**2 + 1e-6) * torch.eye(40, dtype=x.dtype)
        return log_evidence_and_gradient(gram, y)[0] / 40

    linear, noise_std = learnt.prior.linear, learnt.noise_std
    found = evidence(linear, noise_std)
    assert learnt.log_evidence == pytest.approx(found, abs=1e-5)
    neighbours = [(linear * 2, noise_std), (linear / 2, noise_std)]
    neighbours += [(linear, noise_std * 1.5), (linear, noise_std / 1.5)]
    assert all(evidence(*other) < found + 0.01 for other in neighbours)


def test_columns_of_a_group_share_a_scale() -> None:
    x = torch.randn(60, 4, generator=as_generator(0), dtype=torch.float64)
    learnt = learn_ard_prior(x, x[:, :1], groups=(0, 1, 1, 2))
    assert learnt.prior.column_scales[1] == learnt.prior.column_scales[2]
    assert len(set(learnt.prior.column_scales)) == 3


def test_a_search_at_its_edge_says_so() -> None:
    """Labels that are pure noise of a large size: the noise would be larger still."""
    x = torch.randn(60, 2, generator=as_generator(0), dtype=torch.float64)
    y = 1000 * torch.randn(60, 1, generator=as_generator(1), dtype=torch.float64)
    assert "noise" in learn_ard_prior(x, y).at_edge


def test_the_posterior_of_a_gpn_is_exact(labels: tuple[Tensor, Tensor]) -> None:
    x, y = labels
    task = gpn.Task(x, y, pool=3 * x)
    posterior = gpn.GPN(gpn.GPNConfig(prior=PRIOR, noise_std=NOISE)).fit(task, rng=0)
    assert posterior.config.generator == "closed-form"
    mean, covariance = textbook(PRIOR, x, y, 5 * x)
    assert posterior.mean(5 * x) == pytest.approx(mean, abs=1e-8)
    assert posterior.covariance(5 * x)[1] == pytest.approx(covariance, abs=1e-8)
    draws = posterior.sample(5 * x[:6], 4000, rng=0)
    assert draws.var(0)[:, 0] == pytest.approx(covariance.diagonal()[:6], rel=0.12)


def test_a_label_left_out_of_the_sums_is_a_label_that_was_not_added(
    labels: tuple[Tensor, Tensor],
) -> None:
    x, y = labels
    sums = FeatureSums(PRIOR, x[:10], 2, NOISE).add([(x, y)])
    mean, variance = sums.leave_one_out(x, y)
    for row in (0, 17, 39):
        rest = torch.arange(len(x)) != row
        others = FeatureSums(PRIOR, x[:10], 2, NOISE).add([(x[rest], y[rest])])
        expected_mean, expected_variance = others.moments(x[row : row + 1])
        torch.testing.assert_close(mean[row], expected_mean[0])
        torch.testing.assert_close(variance[row], expected_variance[0])


COPIES = torch.arange(40) % 3 + 1  # one, two or three labels of each value


def test_a_weight_is_a_number_of_labels(labels: tuple[Tensor, Tensor]) -> None:
    """Noise σ²/c and c copies of a label give the same posterior: exactly, and by landmarks."""
    x, y = labels
    new, rows = 2 * x[:9] + 0.1, torch.arange(40).repeat_interleave(COPIES)
    for condition in (condition_exactly, by_landmarks):
        weighted = condition(PRIOR, x, y, NOISE, COPIES.double())
        copied = condition(PRIOR, x[rows], y[rows], NOISE)
        for found, expected in zip(weighted.moments(new), copied.moments(new), strict=True):
            assert found == pytest.approx(expected, abs=1e-7)


def by_landmarks(
    prior: ARDPrior, x: Tensor, y: Tensor, noise_std: float, weights: Tensor | None = None
) -> KernelGenerator:
    chunk = (x, y) if weights is None else (x, y, weights)
    landmarks = x.unique(dim=0)[::4]
    return FeatureSums(prior, landmarks, 2, noise_std).add([chunk]).generator()


def test_weighted_labels_are_left_out_one_by_one(labels: tuple[Tensor, Tensor]) -> None:
    x, y = labels
    weights = torch.linspace(0.3, 11.0, 40, dtype=torch.float64)
    exact = leave_one_out(condition_exactly(PRIOR, x, y, NOISE, weights), y, NOISE, weights)
    sums = FeatureSums(PRIOR, x[:10], 2, NOISE).add([(x, y, weights)])
    by_sums = sums.leave_one_out(x, y, weights)
    for row in (0, 17, 39):
        rest = torch.arange(40) != row
        others = x[rest], y[rest]
        expected = condition_exactly(PRIOR, *others, NOISE, weights[rest]).moments(x[row : row + 1])
        for found, moment in zip(exact, expected, strict=True):
            assert found[row].tolist() == pytest.approx(moment[0].tolist(), abs=1e-9)
        fewer = FeatureSums(PRIOR, x[:10], 2, NOISE).add([(*others, weights[rest])])
        for found, moment in zip(by_sums, fewer.moments(x[row : row + 1]), strict=True):
            assert found[row].tolist() == pytest.approx(moment[0].tolist(), abs=1e-6)


@pytest.mark.parametrize("learn", [learn_ard_prior, learn_linear_prior])
def test_weights_tell_the_evidence_how_noisy_labels_are(learn: Callable[..., LearntPrior]) -> None:
    """Noise of two sizes: with its weights the search finds the noise of weight one."""
    rng = as_generator(0)
    x = torch.randn(300, 2, generator=rng, dtype=torch.float64)
    weights = torch.where(torch.arange(300) % 2 == 0, 0.1, 10.0).double()
    noise = 0.2 * torch.randn(300, 1, generator=rng, dtype=torch.float64) / weights.sqrt()[:, None]
    assert learn(x, x[:, :1] + noise, weights=weights).noise_std == pytest.approx(0.2, rel=0.15)
    assert learn(x, x[:, :1] + noise).noise_std > 0.3
