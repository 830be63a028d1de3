"""Epinets: the index as a function's name, prior functions that stay, and what learns from what."""

import pytest
import torch

import gpn
from gpn.core.types import as_generator
from gpn.methods.epinet import Epinet, EpinetConfig, EpinetNetwork, EpinetPosterior

TRUNK = gpn.MLPTrunk(widths=(16, 16), activation="relu")
QUICK = EpinetConfig(trunk=TRUNK, index_dim=4, train=gpn.TrainConfig(steps=40, device="cpu"))
X = torch.linspace(-2, 2, 9)[:, None]


def untrained(**changes: float) -> EpinetNetwork:
    signature = gpn.Task(torch.zeros(2, 1), torch.zeros(2, 2)).signature
    return EpinetNetwork(QUICK.replace(**changes), signature, as_generator(0))


def test_index_zero_is_the_base_network() -> None:
    network = untrained()
    base = network.head(network.hidden(network.features(X)))
    torch.testing.assert_close(network(X, torch.zeros(3, 4)), base.expand(3, -1, -1))


def test_prior_functions_are_added_in_proportion_to_the_index() -> None:
    z = torch.randn(5, 4, generator=as_generator(1))
    without, once, twice = (untrained(prior_scale=scale)(X, z) for scale in (0.0, 1.0, 2.0))
    network = untrained()
    added = sum(z[:, i, None, None] * network.prior(X)[i] for i in range(4))
    torch.testing.assert_close(once - without, added)
    torch.testing.assert_close(twice - without, 2 * added)


def test_prior_functions_do_not_change_in_training(line: gpn.Task) -> None:
    before = EpinetNetwork(QUICK, line.signature, as_generator(0)).prior(X)
    after = Epinet(QUICK).fit(line, rng=0).network.prior(X)
    assert torch.equal(before, after)


def test_the_base_network_learns_as_if_it_were_alone() -> None:
    """No gradient of the epinet's terms reaches the hidden layers."""
    network, z = untrained().train(), torch.ones(1, 4)
    base = network.head(network.hidden(network.features(X)))
    (network(X, z) - base).square().sum().backward()
    first = network.hidden[0].weight
    assert first.grad is None or not bool(first.grad.any())
    assert bool(network.epinet[0].weight.grad.any())


def test_without_labels_nearby_the_spread_grows_with_the_prior_scale(line: gpn.Task) -> None:
    train = QUICK.train.replace(steps=150)
    far = torch.tensor([[-30.0], [30.0]])
    spread = [
        Epinet(QUICK.replace(prior_scale=scale, train=train)).fit(line, rng=0).std(far).mean()
        for scale in (0.1, 3.0)
    ]
    assert spread[1] > 5 * spread[0]


def test_weight_decay_shrinks_the_weights(line: gpn.Task) -> None:
    fits = [Epinet(QUICK.replace(weight_decay=decay)).fit(line, rng=0) for decay in (0.0, 1.0)]
    norms = [sum(p.square().sum() for p in fit.network.parameters()) for fit in fits]
    assert norms[1] < 0.9 * norms[0]


def test_images_go_through_convolutions() -> None:
    x = torch.randn(12, 1, 6, 6, generator=as_generator(0))
    trunk = gpn.ConvTrunk(channels=(4,), widths=(8,))
    config = QUICK.replace(trunk=trunk, train=QUICK.train.replace(steps=5))
    posterior = Epinet(config).fit(gpn.Task(x, torch.arange(12) % 3), rng=0)
    assert posterior.sample(x, 4, rng=0).shape == (4, 12, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"index_dim": 0}, "index_dim must be a whole number"),
        ({"prior_scale": -1.0}, "prior_scale must not be negative"),
        ({"widths": (0,)}, "layer sizes must be positive"),
    ],
)
def test_settings_are_checked(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QUICK.replace(**changes)


def test_a_draw_is_a_function_of_its_index(line: gpn.Task) -> None:
    posterior = Epinet(QUICK).fit(line, rng=0)
    assert isinstance(posterior, EpinetPosterior)
    z = torch.randn(6, 4, generator=as_generator(3))
    torch.testing.assert_close(posterior.sample(X, 6, rng=3), posterior.network(X, z))
