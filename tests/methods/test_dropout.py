"""MC dropout: the distribution of masks and draws, and a draw as one function."""

import pytest
import torch
from torch import nn

import gpn
from gpn.core.types import as_generator
from gpn.methods.dropout import Dropout, DropoutConfig, DropoutNetwork, DropoutPosterior

TRUNK = gpn.MLPTrunk(widths=(16, 16), activation="relu")
QUICK = DropoutConfig(trunk=TRUNK, train=gpn.TrainConfig(steps=40, device="cpu"))


def untrained(rate: float = 0.3, masks: str = "function", width: int = 4000) -> DropoutPosterior:
    config = DropoutConfig(rate=rate, masks=masks, trunk=gpn.MLPTrunk(widths=(width,)))
    signature = gpn.Task(torch.zeros(2, 2), torch.zeros(2)).signature
    network = DropoutNetwork(config.trunk, signature, as_generator(0))
    return DropoutPosterior(network, signature, config)


def test_masks_are_bernoulli_with_mean_one() -> None:
    network = untrained().network
    inputs, hidden = network.masks(50, 1, 0.3, as_generator(1))
    assert torch.equal(inputs, torch.ones(1, 1, 1)), "raw inputs are not dropped"
    assert hidden.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert abs(float(hidden.mean()) - 1) < 0.01


def test_moments_of_draws_are_those_of_the_masks() -> None:
    """One hidden layer: Var f = p / (1 − p) Σ_h (w_h φ_h)², E f = the network without masks."""
    posterior = untrained(rate=0.3, width=50)
    first, last = posterior.network.layers
    x = torch.tensor([[0.5, -1.0]])
    hidden = posterior.network.activation(first(x))
    torch.testing.assert_close(posterior.mean(x, 20_000), last(hidden), atol=0.01, rtol=0)
    exact = 0.3 / 0.7 * (hidden * last.weight).square().sum()
    torch.testing.assert_close(posterior.variance(x, 20_000)[0, 0], exact, rtol=0.05, atol=0)


def test_a_draw_has_one_mask_for_all_rows_or_one_per_row() -> None:
    same = torch.ones(6, 2)
    coherent = untrained().sample(same, 3, rng=0)
    torch.testing.assert_close(coherent, coherent[:, :1].expand(-1, 6, -1))
    per_row = untrained(masks="row").sample(same, 3, rng=0)
    assert bool((per_row.std(1) > 0).all())


def test_per_row_masks_are_the_same_at_every_call() -> None:
    function = untrained(masks="row").draw(rng=0)
    assert torch.equal(function(torch.ones(4, 2)), function(torch.ones(4, 2)))


def test_weight_decay_shrinks_the_weights(line: gpn.Task) -> None:
    weak = Dropout(QUICK.replace(weight_decay=0.0)).fit(line, rng=0)
    strong = Dropout(QUICK.replace(weight_decay=1.0)).fit(line, rng=0)
    norms = [sum(p.square().sum() for p in fit.network.parameters()) for fit in (weak, strong)]
    assert norms[1] < 0.9 * norms[0]


@pytest.mark.parametrize("user_module", [False, True])
def test_learnt_features_of_images_are_dropped_too(user_module: bool) -> None:
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())
    conv = gpn.ConvTrunk(channels=(4,), widths=(8,))
    trunk = gpn.ModuleTrunk(module=module, widths=(8,)) if user_module else conv
    x = torch.randn(12, 1, 6, 6, generator=as_generator(0))
    task = gpn.Task(x, torch.arange(12) % 3)
    config = QUICK.replace(trunk=trunk, train=QUICK.train.replace(steps=5))
    posterior = Dropout(config).fit(task, rng=0)
    assert posterior.network.mask_sizes == ((48, 8) if user_module else (36, 8))
    assert posterior.sample(x, 4, rng=0).shape == (4, 12, 3)


def test_a_small_rate_fits_the_labels(line: gpn.Task) -> None:
    config = QUICK.replace(rate=0.02, train=QUICK.train.replace(steps=600))
    posterior = Dropout(config).fit(line, rng=0)
    assert (posterior.mean(line.x_obs, 200) - line.y_obs).abs().max() < 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": 1.0}, "rate must be below 1"),
        ({"rate": 0.0}, "rate must be positive"),
        ({"weight_decay": -1.0}, "weight_decay must not be negative"),
        ({"masks": "rows"}, "did you mean 'row'"),
    ],
)
def test_wrong_settings_are_errors(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DropoutConfig(**settings)
