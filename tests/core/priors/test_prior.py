"""Priors: drawn networks against the configured variances and closed forms."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import gpn
from gpn.core.priors import prior as prior_module
from gpn.core.priors.kernel import tanh_expectation
from gpn.core.priors.prior import Prior, PriorSpec
from gpn.core.types import as_generator

IMAGES = torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(0))


def own_module() -> nn.Module:
    """A user's network, built as users do, from torch's global random state."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))


SPECS = {
    "mlp": (gpn.MLPPrior(widths=(8,)), (2,)),
    "conv": (gpn.ConvPrior(channels=(4,)), (2, 5, 4)),
    "module": (gpn.ModulePrior(module=own_module()), (2,)),
}


@pytest.mark.parametrize(("spec", "shape"), SPECS.values(), ids=SPECS.keys())
class TestEveryPrior:
    def test_same_seed_same_functions(self, spec: PriorSpec, shape: tuple[int, ...]) -> None:
        x = torch.randn(7, *shape, generator=torch.Generator().manual_seed(1))
        values = spec.sample(shape, 3, 5, rng=0)(x)
        assert values.shape == (5, 7, 3)
        assert torch.equal(values, spec.sample(shape, 3, 5, rng=0)(x))
        assert not torch.equal(values, spec.sample(shape, 3, 5, rng=1)(x))
        assert len({tuple(function.flatten().tolist()) for function in values}) == 5

    def test_global_random_state_is_untouched(
        self, spec: PriorSpec, shape: tuple[int, ...]
    ) -> None:
        before = torch.get_rng_state()
        spec.sample(shape, 3, 5, rng=0)(torch.zeros(2, *shape))
        assert torch.equal(torch.get_rng_state(), before)

    def test_axis_zero_is_one_network_each(self, spec: PriorSpec, shape: tuple[int, ...]) -> None:
        """prior(x)[j] is the plain network with the j-th weights put into it."""
        prior = spec.sample(shape, 3, 4, rng=0)
        x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(1))
        assert prior.n_anchors == 4
        for j, values in enumerate(prior(x)):
            network = copy.deepcopy(prior.network).to_empty(device="cpu")
            network.load_state_dict(
                {**{name: stack[j] for name, stack in prior.weights.items()}, **prior.buffers}
            )
            torch.testing.assert_close(values, network(x), rtol=1e-4, atol=1e-5)

    def test_rows_do_not_see_each_other(
        self, spec: PriorSpec, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        prior = spec.sample(shape, 3, 4, rng=0)
        x = torch.randn(7, *shape, generator=torch.Generator().manual_seed(1))
        together = prior(x)
        monkeypatch.setattr(prior_module, "CHUNK_ROWS", 2)
        torch.testing.assert_close(prior(x), together, rtol=1e-4, atol=1e-5)

    def test_casting_keeps_the_functions(self, spec: PriorSpec, shape: tuple[int, ...]) -> None:
        prior = spec.sample(shape, 3, 4, rng=0)
        x = torch.randn(7, *shape, generator=torch.Generator().manual_seed(1))
        wide = prior.to(torch.device("cpu"), torch.float64)(x.double())
        assert wide.dtype == torch.float64
        torch.testing.assert_close(wide.float(), prior(x), rtol=1e-3, atol=1e-4)

    def test_functions_are_frozen(self, spec: PriorSpec, shape: tuple[int, ...]) -> None:
        prior = spec.sample(shape, 3, 4, rng=0)
        assert not prior(torch.zeros(2, *shape)).requires_grad
        assert not any(stack.requires_grad for stack in prior.weights.values())


def assert_variance(prior: Prior, name: str, variance: float) -> None:
    """Zero mean and the given variance, within five standard errors of N(0, v) draws."""
    numbers = prior.weights[name].flatten().double()
    assert abs(float(numbers.mean())) < 5 * math.sqrt(variance / len(numbers)) + 1e-12
    assert float(numbers.var()) == pytest.approx(variance, rel=5 * math.sqrt(2 / len(numbers)))


def test_mlp_variances_are_per_fan_in_and_layer() -> None:
    spec = gpn.MLPPrior(
        widths=(8, 4), prior_variance=(40.0, 10.0, 2.0), bias_variance=(5.0, 0.5, 0.0)
    )
    prior = spec.sample((3,), 2, 5000, rng=0)
    expected = [40.0 / 3, 5.0, 10.0 / 8, 0.5, 2.0 / 4, 0.0]
    for name, variance in zip(prior.weights, expected, strict=True):
        assert_variance(prior, name, variance)


def test_conv_variances_are_per_fan_in() -> None:
    """Fan-in of a 3×3 convolution on two channels is 18; six pixels × 4 channels feed the last."""
    spec = gpn.ConvPrior(channels=(4,), prior_variance=(40.0, 10.0), bias_variance=(3.0, 1.0))
    prior = spec.sample((2, 5, 4), 2, 5000, rng=0)
    for name, variance in zip(prior.weights, [40.0 / 18, 3.0, 10.0 / 24, 1.0], strict=True):
        assert_variance(prior, name, variance)


def test_conv_covariance_is_the_mean_over_patches() -> None:
    """Cov[f(x), f(x')] = v₂ mean_p E[tanh(u_p) tanh(u'_p)] + b₂, whatever the width."""
    spec = gpn.ConvPrior(channels=(4,), prior_variance=(3.0, 2.0), bias_variance=(1.0, 0.5))
    values = spec.sample((2, 5, 4), 1, 20_000, rng=0)(IMAGES)[..., 0].double()
    products = values[:, :, None] * values[:, None, :]
    patches = functional.unfold(IMAGES.double(), 3, padding=1, stride=2).movedim(-1, 0)
    cross = 3.0 / 18 * patches @ patches.mT + 1.0
    own = cross.diagonal(dim1=1, dim2=2)
    exact = 2.0 * tanh_expectation(cross, own[:, :, None], own[:, None, :]).mean(0) + 0.5
    error = products.std(0) / 20_000**0.5
    assert ((products.mean(0) - exact).abs() / error).max() < 5


def test_own_module_with_one_variance() -> None:
    prior = gpn.ModulePrior(module=own_module(), prior_variance=0.3).sample((2,), 3, 5000, rng=0)
    for name in prior.weights:
        assert_variance(prior, name, 0.3)


def test_own_module_with_a_variance_for_each_parameter() -> None:
    linear = nn.Linear(2, 1)
    wanted = {"weight": 4.0, "bias": 0.25}
    prior = gpn.ModulePrior(module=linear, prior_variance=wanted).sample((2,), 1, 20_000, rng=0)
    for name, variance in wanted.items():
        assert_variance(prior, name, variance)
    values = prior(torch.tensor([[1.0, 2.0]]))
    assert float(values.var()) == pytest.approx(4.0 * (1 + 4) + 0.25, rel=0.05)


def test_own_module_is_not_changed_and_its_buffers_are_used() -> None:
    module = own_module()
    module[1].running_mean.fill_(100.0)
    before = copy.deepcopy(module.state_dict())
    prior = gpn.ModulePrior(module=module).sample((2,), 3, 5, rng=0)
    prior(torch.randn(9, 2, generator=torch.Generator().manual_seed(0)))
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(prior.buffers["1.running_mean"], torch.full((6,), 100.0))


def test_own_module_may_be_float64() -> None:
    spec = gpn.ModulePrior(module=nn.Linear(2, 1).double())
    cast = spec.sample((2,), 1, 3, rng=0).to(torch.device("cpu"), torch.float64)
    assert cast(torch.zeros(4, 2, dtype=torch.float64)).shape == (3, 4, 1)


def test_errors_about_own_modules() -> None:
    with pytest.raises(ValueError, match=r"must map 2 inputs to shape \(2, 1\), got \(2, 3\)"):
        gpn.ModulePrior(module=own_module()).sample((2,), 1, 4, rng=0)
    partial = gpn.ModulePrior(module=nn.Linear(2, 1), prior_variance={"weight": 1.0})
    with pytest.raises(ValueError, match=r"every parameter, \['weight', 'bias'\], got"):
        partial.sample((2,), 1, 4, rng=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior_variance": (40.0,)}, r"prior_variance must have .* 2 here, got \(40\.0,\)"),
        ({"bias_variance": (1.0, 1.0, 1.0)}, r"bias_variance must have .* 2 here, got \(1\.0, 1"),
        ({"prior_variance": (40.0, -1.0)}, r"non-negative number per layer.*-1\.0"),
        ({"activation": "tahn"}, r"got 'tahn'; did you mean 'tanh'\?"),
    ],
)
@pytest.mark.parametrize("spec", [gpn.MLPPrior, gpn.ConvPrior])
def test_bad_layers(spec: type[PriorSpec], settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spec(**settings)


def test_negative_variance_of_an_own_module_is_refused() -> None:
    for variance in (-1.0, {"weight": 1.0, "bias": -1.0}):
        with pytest.raises(ValueError, match=r"prior_variance must not be negative, got .*-1\.0"):
            gpn.ModulePrior(module=nn.Linear(2, 1), prior_variance=variance)


@pytest.mark.parametrize(
    "make", [lambda: gpn.MLPPrior(widths=(0,)), lambda: gpn.ConvPrior(channels=(0,))]
)
def test_widths_must_be_positive(make: Callable[[], PriorSpec]) -> None:
    with pytest.raises(ValueError, match=r"must be .*positive"):
        make()


@pytest.mark.parametrize("spec", [gpn.MLPPrior(activation="gelu"), gpn.ConvPrior()])
def test_a_kernel_without_closed_form_says_so(spec: PriorSpec) -> None:
    x = torch.zeros(2, 1, 4, 4)
    assert not spec.has_kernel
    with pytest.raises(
        NotImplementedError, match=rf"{type(spec).__name__} has no closed form; .*tanh, erf or relu"
    ):
        spec.kernel(x, x)


@pytest.mark.parametrize("activation", ["tanh", "erf", "relu"])
def test_kernel_of_images_is_that_of_flat_rows(activation: str) -> None:
    spec = gpn.MLPPrior(activation=activation)
    flat: Tensor = IMAGES.flatten(1)
    assert spec.has_kernel
    torch.testing.assert_close(spec.kernel(IMAGES, IMAGES), spec.kernel(flat, flat))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_relu_kernel_vanishes_at_the_origin(dtype: torch.dtype) -> None:
    """Without biases f(0) = 0 for every network, so the kernel is 0 there."""
    spec = gpn.MLPPrior(activation="relu", bias_variance=(0.0, 0.0))
    x = torch.tensor([[0.0], [1.0]], dtype=dtype)
    assert spec.kernel(x, x)[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("activation", ["relu", "tanh", "erf"])
def test_a_kernel_of_many_rows_is_that_of_its_chunks(
    activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prior = gpn.MLPPrior(activation=activation)
    left, right = torch.randn(2, 50, 3, generator=as_generator(0), dtype=torch.float64)
    whole = prior.kernel(left, right)
    monkeypatch.setattr("gpn.core.priors.kernel.CACHED_NUMBERS", 7 * len(right))
    torch.testing.assert_close(prior.kernel(left, right), whole)
    assert prior.kernel(left.requires_grad_(), right).requires_grad
