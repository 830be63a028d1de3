"""The testbed's scores: closed values, and no agent below the true posterior."""

import math

import pytest
import torch
from torch import Tensor

from experiments.testbed import problems
from experiments.testbed.problems import (
    TAUS,
    AnchorTests,
    Classification,
    RegressionSetting,
    Setting,
    classification,
    random_layers,
    regression,
)
from experiments.testbed.score import STD_RIDGE, gaussian_kl, joint_kl

TINY = [Setting(2, 1, 0.5, seed) for seed in range(10)]


@pytest.fixture(autouse=True)
def few_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "N_TESTS", 300)


def at_anchors(logits: Tensor, n: int = 1) -> Tensor:
    """The same logits for every draw."""
    return logits.expand(n, problems.N_TESTS, 2, 2)


def draws_of(problem: Classification, tests: AnchorTests, n: int, weighted: bool) -> Tensor:
    """Networks of the prior, or resampled by the likelihood of the labels: the true posterior."""
    rng = torch.Generator().manual_seed(1)
    networks = [
        Classification(problem.setting, random_layers(2, rng), problem.x, problem.y)
        for _ in range(n)
    ]
    rows = torch.arange(len(problem.y))
    if weighted:
        log_p = torch.stack([net.logits(problem.x) for net in networks]).log_softmax(-1)
        fit = log_p[:, rows, problem.y].sum(1)
        picked = torch.multinomial(fit.softmax(0), n, replacement=True, generator=rng)
        networks = [networks[int(i)] for i in picked]
    return torch.stack([net.logits(tests.anchors) for net in networks])


@pytest.mark.parametrize("tau", TAUS)
def test_the_true_function_has_score_zero(tau: int) -> None:
    problem = classification(TINY[0])
    tests = problem.tests(tau)
    assert joint_kl(tests, problem.logits(tests.anchors)[None]) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("tau", TAUS)
def test_uniform_probabilities_have_the_closed_value(tau: int) -> None:
    """τ log 2 minus the mean entropy of the labels, up to the sampling of labels."""
    problem = classification(TINY[0])
    tests = problem.tests(tau)
    exact = tau * math.log(2) + float(tests.log_likelihood.mean())
    assert joint_kl(tests, at_anchors(torch.zeros(2), 3)) == pytest.approx(exact, rel=1e-5)


def test_a_draw_is_one_function_for_all_rows_of_a_test() -> None:
    """Two sure functions, right and wrong: log 2 once, not once for each of ten rows."""
    counts = torch.tensor([[[5.0, 0.0], [5.0, 0.0]]])
    tests = AnchorTests(torch.zeros(1, 2, 1), counts, torch.zeros(1, dtype=torch.float64))
    right = torch.tensor([40.0, -40.0]).expand(1, 2, 2)
    assert joint_kl(tests, torch.stack([right, -right])) == pytest.approx(math.log(2))


def test_infinite_terms_become_the_largest_finite_one() -> None:
    counts = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])
    tests = AnchorTests(torch.zeros(2, 2, 1), counts, torch.zeros(2, dtype=torch.float64))
    sure = torch.tensor([2.0, -2.0]).expand(1, 2, 2, 2).clone()
    sure[0, 1] = torch.tensor([500.0, -500.0])  # the label's probability is 0 in float32
    expected = math.log1p(math.exp(-4.0))
    assert joint_kl(tests, sure) == pytest.approx(expected, rel=1e-5)


def test_no_agent_is_better_than_the_true_posterior() -> None:
    """Importance sampling of the posterior, against the prior, uniform and certain predictions."""
    totals: dict[str, float] = {"posterior": 0.0, "prior": 0.0, "uniform": 0.0, "certain": 0.0}
    for setting in TINY:
        problem = classification(setting)
        tests = problem.tests(10)
        posterior = draws_of(problem, tests, 400, weighted=True)
        totals["posterior"] += joint_kl(tests, posterior)
        totals["prior"] += joint_kl(tests, draws_of(problem, tests, 400, weighted=False))
        totals["uniform"] += joint_kl(tests, at_anchors(torch.zeros(2)))
        totals["certain"] += joint_kl(tests, posterior.mean(0, keepdim=True))
    best = min(totals, key=totals.__getitem__)
    assert best == "posterior", totals
    assert totals["prior"] > 1.02 * totals["posterior"]
    assert totals["certain"] > 1.2 * totals["posterior"]


def test_the_divergence_of_equal_gaussians_is_zero_and_of_others_closed() -> None:
    one = torch.ones(1, dtype=torch.float64)
    assert float(gaussian_kl(0 * one, one, 0 * one, one)) == pytest.approx(0.0, abs=1e-15)
    wide, narrow = 2.0 + STD_RIDGE, 1.0 + STD_RIDGE
    expected = math.log(wide / narrow) + (narrow**2 + 9) / (2 * wide**2) - 0.5
    assert float(gaussian_kl(3 * one, one, 0 * one, 2 * one)) == pytest.approx(expected)


def test_the_prior_is_far_from_the_posterior_of_a_regression() -> None:
    problem = regression(RegressionSetting(1, 10, 0.1, 0))
    same = gaussian_kl(problem.mean, problem.std, problem.mean, problem.std)
    assert float(same.abs().max()) < 1e-12
    flat = gaussian_kl(problem.mean, problem.std, 0 * problem.mean, torch.ones_like(problem.std))
    assert float(flat.mean()) > 0.1
