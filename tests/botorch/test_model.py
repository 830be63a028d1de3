"""A GPN as a BoTorch model: closed forms, and consistency of functions."""

import math
import subprocess
import sys

import pytest
import torch
from botorch.acquisition import (
    LogExpectedImprovement,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
    qUpperConfidenceBound,
)
from botorch.acquisition.objective import (
    ExpectationPosteriorTransform,
    ScalarizedPosteriorTransform,
)
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.sampling import IIDNormalSampler, SobolQMCNormalSampler
from botorch.sampling.get_sampler import get_sampler
from torch import Size, Tensor

import gpn
from gpn.botorch import GPNModel
from gpn.botorch.posterior import CodePosterior
from gpn.estimators.scaling import Scale
from tests.small_posteriors import FEW, fitted, points, task

BOUNDS = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.float64)


@pytest.fixture(scope="module")
def one() -> gpn.Posterior:
    return fitted()


@pytest.fixture(scope="module")
def two() -> gpn.Posterior:
    return fitted(2)


@pytest.fixture(scope="module")
def concat() -> gpn.Posterior:
    """The paper's generator, with every output moved by every code axis."""
    trunk = gpn.MLPTrunk(widths=(32, 32))
    paper = gpn.GPNConfig.paper(n_anchors=20, code_dim=4, noise_std=0.2, trunk=trunk, train=FEW)
    return gpn.GPN(paper).fit(task(2), rng=0)


@pytest.fixture(scope="module")
def shared() -> gpn.Posterior:
    """Affine with learnt codes: one code for both outputs."""
    small = {"codes": "learnt", "anchor": "independent", "beta": 0.1, "n_anchors": 20}
    return fitted(2, code_dim=4, pool_weights="equal", **small)


@pytest.fixture(params=["one", "two", "concat", "shared"])
def posterior(request: pytest.FixtureRequest) -> gpn.Posterior:
    return request.getfixturevalue(request.param)


def posterior_at(model: GPNModel, x: Tensor, **options: object) -> CodePosterior:
    at_x = model.posterior(x, **options)
    assert isinstance(at_x, CodePosterior)
    return at_x


def y_scale_of(posterior: gpn.Posterior, size: float) -> Scale:
    wide = torch.full((posterior.n_outputs,), size, dtype=torch.float64).numpy()
    return Scale(0 * wide + 1.0, wide)


@pytest.mark.parametrize("name", ["one", "two", "shared"])
def test_moments_are_the_closed_forms(name: str, request: pytest.FixtureRequest) -> None:
    posterior, x = request.getfixturevalue(name), points(3, 5)
    at_x = posterior_at(GPNModel(posterior), x)
    flat = x.reshape(15, 2)
    torch.testing.assert_close(at_x.mean.reshape(15, -1), posterior.mean(flat))
    torch.testing.assert_close(at_x.variance.reshape(15, -1), posterior.variance(flat))
    covariance = posterior_at(GPNModel(posterior), flat).distribution.covariance_matrix
    expected = posterior.covariance(flat)
    for output in range(posterior.n_outputs):
        rows = torch.arange(15) * posterior.n_outputs + output
        torch.testing.assert_close(covariance[rows][:, rows], expected[output])


def test_draws_have_the_moments(posterior: gpn.Posterior) -> None:
    torch.manual_seed(0)
    at_x = posterior_at(GPNModel(posterior), points(2, 3))
    draws = at_x.rsample(Size([4000]))
    assert draws.shape == (4000, 2, 3, posterior.n_outputs)
    std = draws.std(0)
    assert float(((draws.mean(0) - at_x.mean) / std).abs().max()) < 0.25  # 256 codes: 4 of 0.0625
    torch.testing.assert_close(std, at_x.variance.sqrt(), rtol=0.2, atol=0.0)


@pytest.mark.parametrize("name", ["one", "two", "shared"])
def test_the_code_zero_is_the_mean(name: str, request: pytest.FixtureRequest) -> None:
    at_x = posterior_at(GPNModel(request.getfixturevalue(name)), points(4, 3))
    zero = torch.zeros(Size([1]) + at_x.base_sample_shape, dtype=torch.float64)
    torch.testing.assert_close(at_x.rsample_from_base_samples(Size([1]), zero)[0], at_x.mean)


def test_a_code_is_the_generators_own_function(posterior: gpn.Posterior) -> None:
    codes = torch.randn(6, posterior.generator.code_dim, dtype=torch.float64)
    x = points(7)
    expected = posterior.generator(x, codes)
    found = posterior_at(GPNModel(posterior), x).rsample_from_base_samples(Size([6]), codes)
    torch.testing.assert_close(found, expected)


def test_a_code_is_one_function_at_all_points_and_in_all_batches(posterior: gpn.Posterior) -> None:
    """Whatever batch a point stands in, and whatever the sampler is shown in between."""
    model, sampler = GPNModel(posterior), SobolQMCNormalSampler(Size([5]), seed=1)
    x = points(4, 3)
    together = sampler(model.posterior(x))
    assert together.shape == (5, 4, 3, posterior.n_outputs)
    alone = torch.stack([sampler(model.posterior(x[i])) for i in range(4)], dim=1)
    flipped = sampler(model.posterior(x.flip(0))).flip(1)
    flat = sampler(model.posterior(x.reshape(12, 2))).reshape(together.shape)
    for other in (alone, flipped, flat):
        torch.testing.assert_close(other, together)


def test_batches_may_have_codes_of_their_own(posterior: gpn.Posterior) -> None:
    at_x = posterior_at(GPNModel(posterior), points(4, 3))
    base = torch.randn(Size([5]) + at_x.base_sample_shape, dtype=torch.float64)
    found = at_x.rsample_from_base_samples(Size([5]), base)
    for batch in range(4):
        single = posterior_at(GPNModel(posterior), points(4, 3)[batch])
        expected = single.rsample_from_base_samples(Size([5]), base[:, batch])
        torch.testing.assert_close(found[:, batch], expected)


def test_gradients_match_finite_differences(posterior: gpn.Posterior) -> None:
    model, sampler = GPNModel(posterior), IIDNormalSampler(Size([3]), seed=0)

    def value(x: Tensor) -> Tensor:
        at_x = model.posterior(x)
        return sampler(at_x).sum() + at_x.mean.square().sum() + at_x.variance.sqrt().sum()

    assert torch.autograd.gradcheck(value, points(2, 2).requires_grad_())


def test_noise_adds_its_variance(posterior: gpn.Posterior) -> None:
    torch.manual_seed(0)
    model, x = GPNModel(posterior, y_scale=y_scale_of(posterior, 3.0)), points(2, 3)
    plain, noisy = posterior_at(model, x), posterior_at(model, x, observation_noise=True)
    sigma = 3.0 * posterior.noise_std
    torch.testing.assert_close(
        noisy.variance - plain.variance, torch.full_like(plain.mean, sigma**2)
    )
    torch.testing.assert_close(noisy.mean, plain.mean)
    assert noisy.base_sample_shape[-1] == plain.code_dim + plain.event_shape.numel()
    draws = noisy.rsample(Size([4000]))
    torch.testing.assert_close(draws.var(0), noisy.variance, rtol=0.25, atol=0.0)
    variances = torch.full((1, posterior.n_outputs), 4.0, dtype=torch.float64)
    noisier = posterior_at(model, x, observation_noise=variances)
    torch.testing.assert_close(noisier.variance - plain.variance, torch.full_like(plain.mean, 4.0))


def test_noise_of_different_points_is_independent(one: gpn.Posterior) -> None:
    torch.manual_seed(0)
    x = points(1).expand(2, 2)  # the same point twice
    draws = posterior_at(GPNModel(one), x, observation_noise=True).rsample(Size([4000]))[..., 0]
    gap = draws[:, 0] - draws[:, 1]
    assert float(gap.var()) == pytest.approx(2 * one.noise_std**2, rel=0.1)


@pytest.mark.parametrize("name", ["two", "concat", "shared"])
@pytest.mark.parametrize("noise", [False, True])
def test_outputs_can_be_weighed(name: str, noise: bool, request: pytest.FixtureRequest) -> None:
    """By BoTorch's own transform, draw by draw; noise adds Σ w² σ²."""
    model, x = GPNModel(request.getfixturevalue(name)), points(2, 3)
    weights = torch.tensor([2.0, -1.0], dtype=torch.float64)
    transform = ScalarizedPosteriorTransform(weights, offset=0.5)
    mixed = posterior_at(model, x, observation_noise=noise, posterior_transform=transform)
    sampler = IIDNormalSampler(Size([2000]), seed=0)
    plain, added = posterior_at(model, x), 5 * 0.04 if noise else 0.0
    torch.testing.assert_close(mixed.mean, 0.5 + (plain.mean @ weights)[..., None])
    assert mixed.shape == (2, 3, 1)
    expected = (sampler(plain) @ weights).var(0)[..., None] + added
    torch.testing.assert_close(mixed.variance, expected, rtol=0.25, atol=0.0)
    if not noise:
        torch.testing.assert_close(sampler(mixed)[..., 0], 0.5 + sampler(plain) @ weights)


def test_other_transforms_get_the_joint_distribution(one: gpn.Posterior) -> None:
    x = points(4)
    mean = GPNModel(one).posterior(x, posterior_transform=ExpectationPosteriorTransform(n_w=2)).mean
    torch.testing.assert_close(mean, one.mean(x).reshape(2, 2).mean(1, keepdim=True))


def test_outputs_can_be_picked(two: gpn.Posterior) -> None:
    model, x = GPNModel(two, y_scale=y_scale_of(two, 2.0)), points(3)
    part, whole = model.subset_output([1]), model.posterior(x)
    assert (part.num_outputs, model.num_outputs) == (1, 2)
    torch.testing.assert_close(part.posterior(x).mean, whole.mean[:, 1:])
    torch.testing.assert_close(
        model.posterior(x, output_indices=[1]).variance, whole.variance[:, 1:]
    )


def test_expected_improvement_is_that_of_the_posteriors_own_draws(one: gpn.Posterior) -> None:
    """And, for one point, the closed form of a Gaussian."""
    model, x = GPNModel(one), points(5, 2)
    best = float(one.mean(points(50)).max()) - 0.2
    sampler = SobolQMCNormalSampler(Size([4096]), seed=0)
    found = qLogExpectedImprovement(model, best_f=best, sampler=sampler)(x).exp()
    draws = one.sample(x.reshape(10, 2), 20_000, rng=0).reshape(-1, 5, 2)
    expected = (draws.amax(2) - best).clamp_min(0.0).mean(0)
    torch.testing.assert_close(found, expected, rtol=0.1, atol=1e-3)
    single = qLogExpectedImprovement(model, best_f=best, sampler=sampler)(x[:, :1]).exp()
    closed = LogExpectedImprovement(model, best_f=best)(x[:, :1]).exp()
    torch.testing.assert_close(single, closed, rtol=0.05, atol=1e-3)


def test_a_sampler_is_found_and_other_acquisitions_work(posterior: gpn.Posterior) -> None:
    model, x = GPNModel(posterior), points(6, 2)
    assert isinstance(get_sampler(model.posterior(x), Size([4])), SobolQMCNormalSampler)
    weights = torch.ones(posterior.n_outputs, dtype=torch.float64)
    transform = ScalarizedPosteriorTransform(weights)
    ucb = qUpperConfidenceBound(model, beta=2.0, posterior_transform=transform)
    noisy = qLogNoisyExpectedImprovement(
        model, points(8), posterior_transform=transform, cache_root=False
    )
    noisy.set_X_pending(points(2, seed=3))
    for values in (ucb(x), noisy(x)):
        assert values.shape == (6,)
        assert bool(values.isfinite().all())


def test_a_thompson_path_is_one_function(posterior: gpn.Posterior) -> None:
    torch.manual_seed(0)
    model = GPNModel(posterior)
    transform = ScalarizedPosteriorTransform(torch.ones(model.num_outputs, dtype=torch.float64))
    path = PathwiseThompsonSampling(model, posterior_transform=transform)
    x = points(5, 2)
    both = path(x)
    torch.testing.assert_close(path(x.flip(0)).flip(0), both)
    codes = path.samples._path.codes  # two functions, one for each of q = 2 points
    expected = posterior.generator.paired(
        x.reshape(10, 2), codes.repeat(5, 1).to(posterior.dtype)
    ).sum(-1)
    torch.testing.assert_close(both, expected.reshape(5, 2).sum(1))


def test_importing_the_library_leaves_botorch_alone() -> None:
    code = "import sys, gpn; sys.exit('botorch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_not_there_says_what_to_do(one: gpn.Posterior) -> None:
    x, y = points(3), torch.zeros(3, 1, dtype=torch.float64)
    with pytest.raises(NotImplementedError, match=r"GPNModel.fit\(torch.cat"):
        GPNModel(one).condition_on_observations(x, y)
    with pytest.raises(NotImplementedError, match="new fit"):
        GPNModel(one).fantasize(x, None)
    with pytest.raises(TypeError, match=r"posterior of a GPN.*got EnsemblePosterior"):
        GPNModel(gpn.methods.get("ensemble", train=FEW).fit(task(1), rng=0))
    with pytest.raises(ValueError, match="b × q × 2, got"):
        GPNModel(one).posterior(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="base samples must have the shape"):
        posterior_at(GPNModel(one), x).rsample_from_base_samples(Size([2]), torch.zeros(3, 1))
    with pytest.raises(ValueError, match=r"one target is a column, Y\[:, None\]"):
        GPNModel.fit(x, y[:, 0], BOUNDS)
    with pytest.raises(ValueError, match="low < high"):
        GPNModel.fit(x, y, BOUNDS.flip(0))


def test_classes_are_refused(quick: gpn.GPNConfig, classes: gpn.Task) -> None:
    with pytest.raises(ValueError, match="needs a regression"):
        GPNModel(gpn.GPN(quick).fit(classes, rng=0))


def test_float32_inputs_give_float32(one: gpn.Posterior) -> None:
    at_x = posterior_at(GPNModel(one), points(2, 2).float())
    assert at_x.rsample(Size([3])).dtype == at_x.mean.dtype == at_x.dtype == torch.float32
    assert math.isfinite(float(at_x.variance.sum()))
