"""The testbed's problems: distributions as defined, and the same numbers for the same seed."""

import pytest
import torch

from experiments.testbed.problems import (
    N_CLASSES,
    N_TESTS,
    TAUS,
    WEIGHT_VARIANCE,
    RegressionSetting,
    Setting,
    classification,
    classification_settings,
    deep_relu,
    process_covariance,
    random_layers,
    regression,
    regression_settings,
    truncated_normal,
)

SMALL = Setting(2, 10, 0.1, 3)


def test_the_sweeps_have_360_and_270_problems() -> None:
    settings = classification_settings()
    assert len(TAUS) * len(set(settings)) == 360
    assert len(set(regression_settings())) == 270
    assert {setting.n_labels for setting in settings} == {2, 20, 200, 2000} | {
        10 * 10**k for k in range(5)
    }


def test_a_seed_determines_everything_and_another_changes_it() -> None:
    once, again, other = (classification(s) for s in (SMALL, SMALL, Setting(2, 10, 0.1, 4)))
    assert torch.equal(once.x, again.x)
    assert torch.equal(once.y, again.y)
    assert torch.equal(once.tests(10).counts, again.tests(10).counts)
    assert not torch.equal(once.x, other.x)


def test_weights_are_cut_off_normal_variables() -> None:
    weights = truncated_normal((400, 500), 25, torch.Generator().manual_seed(0))
    assert float(weights.abs().max()) <= 2 / 5
    assert float(25 * weights.var()) == pytest.approx(WEIGHT_VARIANCE, rel=0.01)


def test_a_test_repeats_two_anchors_and_draws_each_label_anew() -> None:
    problem = classification(SMALL)
    tests = problem.tests(10)
    assert tests.anchors.shape == (N_TESTS, 2, 2)
    assert torch.equal(tests.counts.sum((1, 2)), torch.full((N_TESTS,), 10.0))
    by_anchor = tests.counts.sum(2)
    assert float(by_anchor.var()) == pytest.approx(10 / 4, rel=0.1), "rows are drawn one by one"
    p = problem.logits(tests.anchors).softmax(-1)[..., 1]
    seen = tests.counts[..., 1].sum() / tests.counts.sum()
    expected = (by_anchor * p).sum() / by_anchor.sum()
    assert float(seen) == pytest.approx(float(expected), abs=0.01)


def test_the_likelihood_of_a_test_is_that_of_its_counts() -> None:
    problem = classification(SMALL)
    tests = problem.tests(10)
    log_p = problem.logits(tests.anchors).log_softmax(-1).double()
    expected = (tests.counts * log_p).sum((1, 2))
    torch.testing.assert_close(tests.log_likelihood, expected)


def test_many_networks_have_the_covariance_of_the_true_prior() -> None:
    """At width 50 the covariance over networks is already that of infinite width."""
    rng, d = torch.Generator().manual_seed(0), 3
    x = torch.randn(4, d, generator=rng)
    values = []
    for _ in range(4000):
        (w1, b1), (w2, b2), (w3, b3) = random_layers(d, rng)
        values.append(torch.relu(torch.relu(x @ w1 + b1) @ w2 + b2) @ w3 + b3)
    drawn = torch.stack(values)  # networks, rows, classes
    found = torch.einsum("snc,smc->nm", drawn, drawn) / (len(drawn) * N_CLASSES)
    exact = deep_relu(d, WEIGHT_VARIANCE).kernel(x, x)
    torch.testing.assert_close(found, exact, rtol=0.06, atol=0.01)


def test_the_process_is_the_one_of_the_library() -> None:
    x = torch.randn(6, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(process_covariance(x, x), deep_relu(10, 1.0).kernel(x, x))


def test_moments_of_a_regression_are_those_of_its_labels() -> None:
    """With much noise the posterior is the prior; with little it follows the labels."""
    loud = regression(RegressionSetting(1, 1, 1.0, 0))
    prior = process_covariance(loud.x_test, loud.x_test).diagonal().sqrt()
    assert bool((loud.std <= prior + 1e-12).all())
    sharp = regression(RegressionSetting(1, 100, 0.01, 0))
    nearest = (sharp.x_test - sharp.x.T).abs().min(1)
    is_near = nearest.values < 0.01
    assert (sharp.mean - sharp.y[nearest.indices, 0])[is_near].abs().max() < 0.05
    assert sharp.std[is_near].max() < 0.02
