"""g(x, z) against literal concatenation, and the two ways to pair rows with codes."""

import copy

import pytest
import torch
from torch import nn

import gpn
from gpn.core.networks.trunks import Trunk
from gpn.methods.gpn.model.codes import Embedding
from gpn.methods.gpn.model.generator import AffineGenerator, ConcatGenerator


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def user_module() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 6), nn.Tanh())


TRUNKS = {
    "mlp": (gpn.MLPTrunk(widths=(7, 5)), (2,)),
    "fourier": (gpn.MLPTrunk(widths=(7,), fourier=4), (2,)),
    "conv": (gpn.ConvTrunk(channels=(3, 4), widths=(7, 5)), (1, 5, 6)),
    "module": (gpn.ModuleTrunk(module=user_module(), widths=(7,)), (2,)),
}


@pytest.mark.parametrize(("trunk", "shape"), TRUNKS.values(), ids=TRUNKS.keys())
class TestConcat:
    def test_equals_literal_concatenation(self, trunk: Trunk, shape: tuple[int, ...]) -> None:
        """The tail of W [φ(x); z] + b, one row and one code at a time."""
        generator = ConcatGenerator(trunk, shape, 2, 3, seeded())
        x = torch.randn(5, *shape, generator=seeded(1))
        codes = torch.randn(4, 3, generator=seeded(2))
        features = generator.features(x)
        literal = torch.stack(
            [
                torch.stack([generator.tail(generator.join(torch.cat([f, z]))) for f in features])
                for z in codes
            ]
        )
        outputs = generator(x, codes)
        assert outputs.shape == (4, 5, 2)
        torch.testing.assert_close(outputs, literal)

    def test_paired_is_the_diagonal_of_every_pair(
        self, trunk: Trunk, shape: tuple[int, ...]
    ) -> None:
        generator = ConcatGenerator(trunk, shape, 2, 3, seeded())
        x = torch.randn(6, *shape, generator=seeded(1))
        codes = torch.randn(6, 3, generator=seeded(2))
        every = generator(x, codes).diagonal(dim1=0, dim2=1).T
        torch.testing.assert_close(generator.paired(x, codes), every)

    def test_randomness_is_the_argument(self, trunk: Trunk, shape: tuple[int, ...]) -> None:
        before = torch.get_rng_state()
        first, repeated, other = (
            ConcatGenerator(trunk, shape, 2, 3, seeded(seed)) for seed in (1, 1, 2)
        )
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(first.join.weight, repeated.join.weight)
        assert not torch.equal(first.join.weight, other.join.weight)

    def test_every_parameter_and_the_code_get_a_gradient(
        self, trunk: Trunk, shape: tuple[int, ...]
    ) -> None:
        generator = ConcatGenerator(trunk, shape, 2, 3, seeded())
        codes = torch.randn(4, 3, generator=seeded(2)).requires_grad_()
        generator(torch.randn(5, *shape, generator=seeded(1)), codes).square().sum().backward()
        assert codes.grad is not None
        assert codes.grad.abs().min() > 0
        for name, parameter in generator.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


def test_rows_and_codes_are_independent() -> None:
    """g(x, z) of one pair does not depend on which other rows and codes are asked for."""
    generator = ConcatGenerator(gpn.MLPTrunk(widths=(7, 5)), (2,), 2, 3, seeded())
    x, codes = torch.randn(5, 2, generator=seeded(1)), torch.randn(4, 3, generator=seeded(2))
    torch.testing.assert_close(generator(x[3:4], codes[1:2]), generator(x, codes)[1:2, 3:4])


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_head_per_code_is_b_plus_a_z(blocks: int) -> None:
    """Few codes at many rows have a head each; many codes share the columns."""
    generator = AffineGenerator(gpn.MLPTrunk(widths=(7, 5)), (2,), 3, 12, seeded(), blocks).eval()
    x, codes = torch.randn(40, 2, generator=seeded(1)), torch.randn(50, 12, generator=seeded(2))
    columns = generator.columns(x)
    for n, s in ((40, 2), (40, 50), (1, 2), (1, 50)):
        expected = generator.combine(columns, codes)[:s, :n]
        torch.testing.assert_close(generator(x[:n], codes[:s]), expected)
        torch.testing.assert_close(generator._by_heads(x[:n], codes[:s]), expected)
    assert generator._heads_cost_less(40, 2, torch.device("cpu"))
    assert not generator._heads_cost_less(1, 50, torch.device("cpu"))
    assert not generator._heads_cost_less(40, 2, torch.device("cuda"))
    assert not generator.train()._heads_cost_less(40, 2, torch.device("cpu"))


@pytest.mark.parametrize(("blocks", "code_dim"), [(1, 12), (3, 12), (1, 0)])
def test_moments_are_b_and_the_sum_of_squared_columns(blocks: int, code_dim: int) -> None:
    generator = AffineGenerator(gpn.MLPTrunk(widths=(7, 5)), (2,), 3, code_dim, seeded(), blocks)
    x = torch.randn(40, 2, generator=seeded(1))
    columns, (mean, variance) = generator.columns(x), generator.moments(x)
    torch.testing.assert_close(mean, columns[0])
    torch.testing.assert_close(variance, columns[1:].square().sum(0))
    draws = generator(x, torch.randn(20_000, code_dim, generator=seeded(2)))
    torch.testing.assert_close(draws.mean(0), mean, atol=0.05, rtol=0)
    torch.testing.assert_close(draws.var(0), variance, atol=0.01, rtol=0.1)


def test_a_users_module_is_trained_as_a_copy(quick: gpn.GPNConfig, classes: gpn.Task) -> None:
    module = user_module()
    before = copy.deepcopy(module.state_dict())
    config = quick.replace(trunk=gpn.ModuleTrunk(module=module, widths=(16,)))
    posterior = gpn.GPN(config).fit(classes, rng=0)
    trained = posterior.generator.features.state_dict()
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), "the user's module must not change"
        assert not torch.equal(value, trained[name]), "its copy must be trained"


def test_codes_start_at_a_standard_normal_and_noise_has_its_scale() -> None:
    embedding = Embedding(5000, 3, seeded())
    assert embedding.codes.mean(0).abs().max() < 5 / 5000**0.5
    torch.testing.assert_close(embedding.codes.var(0), torch.ones(3), rtol=0.1, atol=0.0)
    noise = (embedding.noisy(0.3, seeded(1)) - embedding.codes).detach()
    torch.testing.assert_close(noise.var(0), torch.full((3,), 0.09), rtol=0.1, atol=0.0)
    assert torch.equal(embedding.noisy(0.0, seeded(1)), embedding.codes)


@pytest.mark.parametrize("n_anchors", [2, 3])
def test_codes_need_more_anchors_than_dimensions(n_anchors: int) -> None:
    with pytest.raises(
        ValueError, match=rf"n_anchors={n_anchors} and code_dim=3; try n_anchors=30"
    ):
        Embedding(n_anchors, 3, seeded())
