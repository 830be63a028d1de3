"""Affine posteriors against many of their draws, and a trained one against the exact GP."""

from statistics import NormalDist

import pytest
import torch
from torch import Tensor

import gpn
from gpn.core.task import Signature
from gpn.methods.gp import GP, GPConfig
from gpn.methods.gpn import AffinePosterior, ConcatPosterior
from gpn.methods.gpn.model.generator import AffineGenerator
from gpn.metrics import marginal_w2

N = 20_000
X = torch.linspace(-1, 2, 7, dtype=torch.float64)[:, None]


def affine(blocks: int = 1, noise_std: float | None = None) -> AffinePosterior:
    """Two outputs and six code dimensions, not trained: any affine function will do."""
    rng = torch.Generator().manual_seed(0)
    generator = AffineGenerator(gpn.MLPTrunk(widths=(16,)), (1,), 2, 6, rng, blocks=blocks)
    signature = Signature((1,), 2, is_classification=False)
    return AffinePosterior(generator.double(), signature, gpn.GPNConfig(), noise_std)


@pytest.mark.parametrize("blocks", [1, 2], ids=["coupled", "blocks"])
class TestMoments:
    def test_are_those_of_many_draws(self, blocks: int) -> None:
        posterior = affine(blocks)
        draws = posterior.sample(X, N, rng=0)
        mean, variance = posterior.mean(X), posterior.variance(X)
        assert draws.shape == (N, 7, 2)
        assert ((draws.mean(0) - mean).abs() < 5 * (variance / N).sqrt()).all()
        assert ((draws.var(0) - variance).abs() < 5 * variance * (2 / N) ** 0.5).all()
        torch.testing.assert_close(posterior.std(X), variance.sqrt())

    def test_need_one_forward_pass(self, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        posterior, passes = affine(blocks), []
        features = posterior.generator.features.forward
        monkeypatch.setattr(
            posterior.generator.features, "forward", lambda x: passes.append(len(x)) or features(x)
        )
        mean, variance = posterior.moments(X)
        posterior.interval(X)
        assert passes == [len(X)] * 2
        assert torch.equal(mean, posterior.mean(X))
        assert torch.equal(variance, posterior.variance(X))

    def test_covariance_is_that_of_many_draws(self, blocks: int) -> None:
        posterior = affine(blocks)
        covariance, variance = posterior.covariance(X), posterior.variance(X).T
        centred = (posterior.sample(X, N, rng=0) - posterior.mean(X)).movedim(-1, 0)
        error = ((variance[:, :, None] * variance[:, None] + covariance.square()) / N).sqrt()
        assert covariance.shape == (2, 7, 7)
        assert ((centred.mT @ centred / N - covariance).abs() < 5 * error).all()
        torch.testing.assert_close(covariance.diagonal(dim1=1, dim2=2), variance)

    def test_do_not_depend_on_seeds_or_numbers_of_draws(self, blocks: int) -> None:
        posterior = affine(blocks)
        for moment in (posterior.mean, posterior.variance, posterior.covariance):
            assert torch.equal(moment(X, n=2, rng=0), moment(X, n=3, rng=1))

    def test_outputs_are_correlated_only_if_they_share_the_code(self, blocks: int) -> None:
        draws = affine(blocks).sample(X, N, rng=0)
        correlation = torch.stack([draws[:, row].T.corrcoef()[0, 1] for row in range(7)])
        if blocks == 2:
            assert correlation.abs().max() < 5 / N**0.5
        else:
            assert correlation.abs().max() > 0.1


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_are_gaussian_and_noise_adds_in_variance(level: float) -> None:
    """Half-width z √Var[g] for the function, z √(Var[g] + σ_ε²) for a new label."""
    posterior, z = affine(noise_std=0.3), NormalDist().inv_cdf((1 + level) / 2)
    for noisy, added in ((False, 0.0), (True, 0.3**2)):
        low, high = posterior.interval(X, level, observation_noise=noisy)
        half = z * (posterior.variance(X) + added).sqrt()
        torch.testing.assert_close(low, posterior.mean(X) - half)
        torch.testing.assert_close(high, posterior.mean(X) + half)


def test_intervals_of_draws_include_the_noise(quick: gpn.GPNConfig, line: gpn.Task) -> None:
    """The paper's generator: quantiles of draws, and of draws with added noise."""
    posterior = gpn.GPN(quick.replace(noise_std=5.0)).fit(line, rng=0)
    assert isinstance(posterior, ConcatPosterior)
    low, high = posterior.interval(line.x_obs, 0.9, 5000)
    noisy_low, noisy_high = posterior.interval(line.x_obs, 0.9, 5000, observation_noise=True)
    assert ((noisy_high - noisy_low) > (high - low)).all()
    total = (posterior.variance(line.x_obs) + 25.0).sqrt()
    torch.testing.assert_close(noisy_high - noisy_low, 2 * 1.645 * total, rtol=0.1, atol=0.0)


def test_an_unknown_noise_cannot_be_added(quick: gpn.GPNConfig, line: gpn.Task) -> None:
    for posterior in (affine(), gpn.GPN(quick).fit(line, rng=0)):
        assert posterior.noise_std is None
        with pytest.raises(ValueError, match=r"noise_std=None; set posterior\.noise_std, or use"):
            posterior.interval(X, observation_noise=True)
        posterior.noise_std = 0.1
        posterior.interval(X, observation_noise=True)


def test_rows_with_nan_are_refused() -> None:
    with pytest.raises(ValueError, match=r"x must be finite, got NaN .*first: row 1\); drop"):
        affine().mean([[0.0], [float("nan")]])


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_lies_between_zero_and_one(level: float) -> None:
    with pytest.raises(ValueError, match=rf"strictly between 0 and 1, got {level}; try 0\.95"):
        affine().interval(X, level)


def test_a_thousand_functions_cost_one_pass_through_the_trunk() -> None:
    posterior, passes = affine(), []
    posterior.generator.tail.register_forward_hook(lambda *_: passes.append(1))
    posterior.sample(X, 1000, rng=0)
    assert len(passes) == 1
    posterior.covariance(X)
    assert len(passes) == 2


def test_a_drawn_function_is_fixed_and_differentiable() -> None:
    f = affine(blocks=2).draw(rng=3)
    assert torch.equal(f(X), f(X))
    torch.testing.assert_close(f(X[2:3]), f(X)[2:3])
    assert torch.autograd.gradcheck(f, (X.clone().requires_grad_(),))


@pytest.mark.parametrize("question", ["sample", "mean", "variance", "covariance", "interval"])
def test_no_rows_give_empty_results(question: str) -> None:
    answer = getattr(affine(), question)(X[:0])
    assert all(part.numel() == 0 for part in (answer if question == "interval" else [answer]))


@pytest.fixture(scope="module")
def many_labels() -> gpn.Task:
    """400 labels of a sine with noise 0.2."""
    rng = torch.Generator().manual_seed(0)
    x = 4 * torch.rand(400, 1, generator=rng) - 2
    y = torch.sin(3 * x) + 0.2 * torch.randn(400, 1, generator=rng)
    return gpn.Task(x, y, pool=gpn.box([-2.0], [2.0]))


def test_many_labels_give_the_exact_posterior(many_labels: gpn.Task) -> None:
    """By conditioned anchors: joint ones could not factor so many labels at each step."""
    trunk = gpn.MLPTrunk(widths=(128, 128), fourier=64)
    train = gpn.TrainConfig(steps=400, pool_batch=128, learning_rate=0.01)
    config = gpn.GPNConfig(noise_std=0.2, trunk=trunk, train=train)
    posterior = gpn.GPN(config).fit(many_labels, rng=0)
    assert posterior.config.anchor == "conditioned"
    assert posterior.fit_report.posterior_explained_variance > 0.99
    truth = GP(GPConfig(noise_std=0.2)).fit(many_labels)
    grid: Tensor = torch.linspace(-2, 2, 81, dtype=torch.float64)[:, None]
    mean, std = posterior.mean(grid).double(), posterior.std(grid).double()
    assert float(marginal_w2(mean, std, truth.mean(grid), truth.std(grid))) < 0.03
    ratio = float((std / truth.std(grid)).mean())
    assert ratio == pytest.approx(1.0, abs=0.15), "a W2 of 0.03 allows a narrow band"
