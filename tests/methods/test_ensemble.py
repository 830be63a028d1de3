"""Ensembles: members are independent of each other, and anchored ones minimise their objective."""

import pytest
import torch
from torch import Tensor, nn

import gpn
from gpn.core.types import as_generator
from gpn.methods.ensemble.ensemble import (
    Ensemble,
    EnsembleConfig,
    EnsemblePosterior,
    ensemble_step,
    new_members,
)
from gpn.methods.ensemble.members import Members, ParameterPrior

TRAIN = gpn.TrainConfig(steps=60, pool_batch=16, device="cpu")
TRUNK = gpn.MLPTrunk(widths=(16, 16), activation="relu")
QUICK = EnsembleConfig(trunk=TRUNK, n_members=6, train=TRAIN, prior=gpn.MLPPrior(widths=(32,)))
X = torch.linspace(-2, 2, 9)[:, None]
KINDS = ("parameters", "outputs", "prior", "none")


@pytest.fixture
def posterior(line: gpn.Task) -> EnsemblePosterior:
    return Ensemble(QUICK).fit(line, rng=0)


def rows_of(draws: Tensor) -> set[tuple[float, ...]]:
    return {tuple(draw.flatten().tolist()) for draw in draws}


def test_stacked_members_are_ordinary_networks() -> None:
    """Member j equals an nn.Sequential with its weights."""
    signature = gpn.Task(torch.zeros(2, 3), torch.zeros(2, 2)).signature
    members = Members(TRUNK, signature, 4, as_generator(0))
    x = torch.randn(5, 3, generator=as_generator(1))
    for j in range(4):
        hidden = x
        for layer in members.layers:
            linear = nn.functional.linear(hidden, layer.weight[j], layer.bias[j])
            hidden = linear.relu()
        torch.testing.assert_close(members(x)[j], linear)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_a_member_does_not_depend_on_the_others(line: gpn.Task, kind: str) -> None:
    """Moving member 1 does not change the gradient of member 0."""
    config = QUICK.replace(regularise=kind, n_members=3)
    gradients = []
    for shift in (0.0, 5.0):
        members, step, _ = ensemble_step(config, line, as_generator(0))
        with torch.no_grad():
            members.layers[0].weight[1] += shift
        sum(step.terms(*step.rows()).values()).backward()
        gradients.append(members.layers[0].weight.grad)
    torch.testing.assert_close(gradients[0][0], gradients[1][0])
    assert not torch.allclose(gradients[0][1], gradients[1][1])


def test_few_draws_are_different_members(posterior: EnsemblePosterior) -> None:
    every = rows_of(posterior.sample(X, 6, rng=0))
    assert len(every) == 6
    assert len(rows_of(posterior.sample(X, 4, rng=1))) == 4


def test_many_draws_use_the_members_evenly(posterior: EnsemblePosterior) -> None:
    values, counts = posterior.sample(X[:1], 20, rng=0).flatten().unique(return_counts=True)
    assert len(values) == posterior.members == 6
    assert set(counts.tolist()) == {3, 4}


def test_the_order_of_draws_is_random(posterior: EnsemblePosterior) -> None:
    firsts = [float(posterior.sample(X[:1], 1, rng=seed)) for seed in range(20)]
    assert len(set(firsts)) > 2


def test_first_members_are_a_cumulative_ensemble(posterior: EnsemblePosterior) -> None:
    two, four = posterior.first(2), posterior.first(4)
    assert (two.members, four.members, posterior.members) == (2, 4, 6)
    seen = [
        {tuple(round(v, 4) for v in row) for row in rows_of(part.sample(X, part.members, rng=0))}
        for part in (two, four, posterior)
    ]
    assert seen[0] < seen[1] < seen[2]
    with pytest.raises(ValueError, match="between 1 and the 6 members, got m=7"):
        posterior.first(7)


def test_anchors_follow_the_prior_per_fan_in() -> None:
    signature = gpn.Task(torch.zeros(2, 4), torch.zeros(2, 1)).signature
    members = Members(gpn.MLPTrunk(widths=(50,)), signature, 300, as_generator(0))
    prior = ParameterPrior(members, (40.0, 10.0), (3.0, 0.0))
    prior.initialise(as_generator(1))
    anchors = prior.sample(as_generator(2))
    spreads = [float(anchor.var()) for anchor in anchors]
    assert spreads == pytest.approx([10.0, 3.0, 0.2, 0.0], rel=0.05)
    starts = [gaussian.parameter.detach() for gaussian in prior.gaussians]
    correlation = torch.corrcoef(torch.stack([starts[0].flatten(), anchors[0].flatten()]))[0, 1]
    assert abs(float(correlation)) < 0.02, "members start independently of their anchors"
    assert not members.layers[1].bias.requires_grad, "no variance: fixed at zero"
    assert bool((members.layers[1].bias == 0).all())


def test_anchor_distance_is_that_of_the_prior() -> None:
    """Σ_j ‖Σ_prior^−½ (θ_j − θ_anc,j)‖² has expectation 2 × the number of parameters."""
    signature = gpn.Task(torch.zeros(2, 4), torch.zeros(2, 1)).signature
    members = Members(gpn.MLPTrunk(widths=(50,)), signature, 100, as_generator(0))
    prior = ParameterPrior(members, 2.0, 1.0)
    prior.initialise(as_generator(1))
    count = sum(parameter.numel() for parameter in members.parameters())
    distance = float(prior.distance(prior.sample(as_generator(2))).detach())
    assert distance == pytest.approx(2 * count, rel=0.03)


def test_members_with_large_noise_return_to_their_anchors(line: gpn.Task) -> None:
    """With a large noise_std the loss is the distance to the anchors: members follow the prior."""
    config = EnsembleConfig.of_prior(
        gpn.MLPPrior(widths=(64,), prior_variance=(4.0, 4.0), bias_variance=(1.0, 0.0)),
        noise_std=100.0,
        n_members=100,
        train=TRAIN.replace(steps=800, learning_rate=0.03),
    )
    posterior = Ensemble(config).fit(line, rng=0)
    exact = gpn.MLPPrior(widths=(64,), prior_variance=(4.0, 4.0), bias_variance=(1.0, 0.0)).kernel(
        X, X
    )
    torch.testing.assert_close(posterior.variance(X)[:, 0], exact.diagonal(), rtol=0.5, atol=0)


def test_output_anchors_pull_members_to_their_prior_functions(line: gpn.Task) -> None:
    free = Ensemble(QUICK.replace(regularise="none")).fit(line, rng=0)
    pulled = Ensemble(QUICK.replace(regularise="outputs")).fit(line, rng=0)
    assert pulled.std(X).mean() > 3 * free.std(X).mean()


def test_a_larger_beta_gives_more_weight_to_the_prior(line: gpn.Task) -> None:
    long = TRAIN.replace(steps=300, learning_rate=0.01)
    gaps = []
    for beta in (0.01, 10.0):
        config = QUICK.replace(regularise="outputs", beta=beta, train=long)
        gaps.append((Ensemble(config).fit(line, rng=0).mean(line.x_obs) - line.y_obs).abs().mean())
    assert gaps[0] < gaps[1]


@pytest.mark.parametrize("kind", KINDS)
def test_default_weights_of_the_anchors(kind: str) -> None:
    expected = {"parameters": 1.0, "outputs": 0.1, "prior": 0.0, "none": 0.0}
    assert EnsembleConfig(regularise=kind).anchor_weight == expected[kind]
    assert EnsembleConfig(regularise="outputs", beta=0.7).anchor_weight == 0.7


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("user_module", [False, True])
def test_images_and_user_modules(kind: str, user_module: bool) -> None:
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())
    conv = gpn.ConvTrunk(channels=(4,), widths=(8,))
    trunk = gpn.ModuleTrunk(module=module, widths=(8,)) if user_module else conv
    x = torch.randn(12, 1, 6, 6, generator=as_generator(0))
    task = gpn.Task(x, torch.arange(12) % 3, pool=x)
    config = QUICK.replace(trunk=trunk, regularise=kind, train=TRAIN.replace(steps=5))
    posterior = Ensemble(config).fit(task, rng=0)
    draws = posterior.sample(x, 6, rng=0)
    assert draws.shape == (6, 12, 3)
    assert len(rows_of(draws)) == 6
    torch.testing.assert_close(posterior.sample(x[:3], 6, rng=0), draws[:, :3])


def test_each_member_has_its_own_fourier_features(line: gpn.Task) -> None:
    trunk = gpn.MLPTrunk(widths=(16,), fourier=8)
    posterior = Ensemble(QUICK.replace(trunk=trunk, n_members=3)).fit(line, rng=0)
    assert posterior.sample(X, 3, rng=0).shape == (3, 9, 1)
    frequencies = posterior.networks.features.frequencies
    assert not torch.equal(frequencies[0], frequencies[1])


def test_output_anchors_need_a_pool() -> None:
    with pytest.raises(ValueError, match="must have a pool"):
        Ensemble(QUICK.replace(regularise="outputs")).fit(gpn.Task(X, X))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"regularise": "output"}, "did you mean 'outputs'"),
        ({"n_members": 0}, "n_members must be a whole number"),
        ({"beta": -1.0}, "beta must be positive"),
    ],
)
def test_wrong_settings_are_errors(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EnsembleConfig(**settings)


def test_the_number_of_variances_must_match_the_layers(line: gpn.Task) -> None:
    with pytest.raises(ValueError, match=r"one per layer, 3 here, got \(1.0, 2.0\)"):
        Ensemble(QUICK.replace(prior_variance=(1.0, 2.0))).fit(line)


def test_a_member_is_a_learnt_network_plus_a_prior_function_that_stays(line: gpn.Task) -> None:
    config = QUICK.replace(regularise="prior", prior_scale=0.5)
    untrained = new_members(config, line.signature, as_generator(0))
    fitted = Ensemble(config).fit(line, rng=0).networks
    assert torch.equal(fitted.prior(X), untrained.prior(X)), "prior functions are not learnt"
    learnt = Members.forward(fitted, X)
    torch.testing.assert_close(fitted(X), learnt + 0.5 * fitted.prior(X))
    assert not torch.equal(learnt, Members.forward(untrained, X))


def test_prior_functions_spread_members_where_no_labels_are(line: gpn.Task) -> None:
    """At the labels members agree; far away their spread is that of the prior functions."""
    train = TRAIN.replace(steps=300)
    config = QUICK.replace(regularise="prior", n_members=10, train=train)
    small, large = (
        Ensemble(config.replace(prior_scale=scale)).fit(line, rng=0) for scale in (0.1, 2.0)
    )
    far = torch.tensor([[-6.0], [6.0]])
    assert large.std(far).mean() > 3 * small.std(far).mean()
    assert large.std(line.x_obs).mean() < 0.2 * large.std(far).mean()


def test_the_first_members_keep_their_prior_functions(line: gpn.Task) -> None:
    posterior = Ensemble(QUICK.replace(regularise="prior")).fit(line, rng=0)
    torch.testing.assert_close(posterior.first(2).networks(X), posterior.networks(X)[:2])
