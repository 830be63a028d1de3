"""The testbed's agents on tiny problems, with short training; and runs that resume."""

from pathlib import Path

import pytest
import torch

from experiments.testbed import agents, networks, problems
from experiments.testbed.agents import (
    AGENTS,
    Networks,
    Outcome,
    fit_true_prior,
    one_class_logits,
    run_regression,
)
from experiments.testbed.networks import (
    SGMCMC,
    Batch,
    Dropout,
    Ensemble,
    Epinet,
    forward,
    l2_weight,
    random_stack,
)
from experiments.testbed.problems import (
    TAUS,
    RegressionSetting,
    Setting,
    classification,
    regression,
)
from experiments.testbed.run import Options, batches, read, run, run_all_regression, setting_of

CPU = torch.device("cpu")
MANY = Setting(2, 100, 0.1, 0)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "STEPS", 20)
    monkeypatch.setattr(agents, "N_DRAWS", 50)
    monkeypatch.setattr(problems, "N_TESTS", 200)


def outcome(agent: agents.Agent, *settings: Setting) -> list[Outcome]:
    return agent.run([classification(setting) for setting in settings], CPU)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ensemble(n_members=3),
        lambda: Ensemble(n_members=3, prior_scale=3.0),
        Dropout,
        Epinet,
        lambda: SGMCMC(steps=30, warm_up=10, keep_every=5),
    ],
)
def test_networks_score_every_problem_of_a_batch(make: object) -> None:
    found = outcome(Networks(make), MANY, Setting(2, 100, 0.5, 0))  # type: ignore[arg-type]
    assert len(found) == 2
    for one in found:
        assert set(one.scores) == set(TAUS)
        assert all(0 <= score < 100 for score in one.scores.values())


def test_problems_of_a_batch_are_fitted_apart() -> None:
    """A problem's functions depend on its own labels alone."""
    first, second = classification(MANY), classification(Setting(2, 100, 0.1, 1))
    logits = []
    for other in (second, first):
        agent, rng = Ensemble(n_members=2), torch.Generator().manual_seed(0)
        batch = Batch.of([first, other], CPU)
        agent.fit(batch, rng)
        logits.append(agent.draws(batch.x[:1, :5].expand(2, -1, -1), 2, rng)[0])
    torch.testing.assert_close(*logits)


def test_stacked_networks_are_ordinary_ones() -> None:
    stack = random_stack(2, 3, (4, 5, 2), torch.Generator().manual_seed(0), first_bias=True)
    x = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))
    (w1, b1), (w2, b2) = stack
    one = torch.relu(x[1] @ w1[1, 2] + b1[1, 2]) @ w2[1, 2] + b2[1, 2]
    torch.testing.assert_close(forward(stack, x[:, None])[1, 2], one)


def test_an_epoch_shows_each_label_once() -> None:
    batch = Batch.of([classification(MANY)], CPU)
    minibatches = batch.minibatches(torch.Generator().manual_seed(0))
    rows = torch.cat([next(minibatches)[0] for _ in range(2)], dim=1)[0]
    assert torch.equal(rows.sort(0).values, batch.x[0].sort(0).values)


def test_training_lowers_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, losses = Batch.of([classification(MANY)], CPU), []
    for steps in (1, 200):
        monkeypatch.setattr(networks, "STEPS", steps)
        agent, rng = Ensemble(n_members=5), torch.Generator().manual_seed(0)
        agent.fit(batch, rng)
        losses.append(float(agent.loss(batch.x, batch.y, agent.decay(batch), rng)))
    assert losses[1] < 0.8 * losses[0]


def test_weight_decay_falls_with_labels_per_input() -> None:
    assert l2_weight(MANY) == pytest.approx(0.1**0.5 / 100)


def test_with_many_labels_the_true_prior_comes_near_the_truth() -> None:
    few, many = (outcome(AGENTS["gpn-true-prior"], Setting(2, n, 0.1, 0))[0] for n in (1, 100))
    for tau in TAUS:
        assert many.scores[tau] < 0.5 * few.scores[tau]


def test_draws_of_the_true_prior_are_functions() -> None:
    """The same row has the same value in a draw, up to the jitter of joint draws."""
    sampler = fit_true_prior(classification(Setting(2, 10, 0.1, 0)), CPU)
    x = torch.randn(1, 2, generator=torch.Generator().manual_seed(0)).expand(3, -1)
    draws = sampler(x)
    assert draws.std(0).min() > 0.1
    torch.testing.assert_close(draws, draws[:, :1].expand(-1, 3, -1), atol=0.02, rtol=0)


def test_labels_of_one_class_are_a_coin_with_one_draw_for_all_rows() -> None:
    problem = classification(Setting(2, 10, 0.1, 0))
    problem.y.fill_(1)
    p = one_class_logits(problem, 4).exp()
    torch.testing.assert_close(p.sum(-1), torch.ones(50, 4, dtype=torch.float64))
    assert torch.equal(p, p[:, :1].expand(-1, 4, -1))
    assert float(p[..., 1].mean()) == pytest.approx(21 / 22, abs=0.02)


@pytest.mark.parametrize("noise_std", [0.01, 1.0])
def test_the_exact_process_has_no_divergence_in_regression(noise_std: float) -> None:
    kl, _ = run_regression("gpn-true-prior", regression(RegressionSetting(10, 10, noise_std, 0)))
    assert abs(kl) < 1e-6


def test_a_run_resumes_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(tmp_path, seeds=(0,), shapes=((2, 10),))
    run("mlp", options)
    lines = read(tmp_path / "mlp.jsonl")
    assert [line["temperature"] for line in lines] == [0.01, 0.1, 0.5]
    text = (tmp_path / "mlp.jsonl").read_text().splitlines()
    (tmp_path / "mlp.jsonl").write_text("\n".join([*text[:2], text[2][:30]]) + "\n")
    asked: list[Setting] = []
    original = Networks.run

    def spy(self: Networks, problems: list, device: torch.device) -> list[Outcome]:
        asked.extend(problem.setting for problem in problems)
        return original(self, problems, device)

    monkeypatch.setattr(Networks, "run", spy)
    run("mlp", options)
    assert asked == [Setting(2, 10, 0.5, 0)]
    assert {setting_of(line) for line in read(tmp_path / "mlp.jsonl")} == {
        setting_of(line) for line in lines
    }


def test_processes_share_the_problems(tmp_path: Path) -> None:
    settings = [Setting(2, 10, 0.1, seed) for seed in range(7)]
    parts = [Options(tmp_path, share=(i, 3)).mine(settings) for i in range(3)]
    assert sorted(setting for part in parts for setting in part) == settings
    assert batches(settings, one_by_one=True) == [[setting] for setting in settings]
    assert batches(settings, one_by_one=False) == [settings]


def test_a_deadline_ends_a_run(tmp_path: Path) -> None:
    run("mlp", Options(tmp_path, seeds=(0,), shapes=((2, 10),), deadline=-1.0))
    run_all_regression("gpn-true-prior", Options(tmp_path, seeds=(0,), deadline=-1.0))
    assert not list(tmp_path.iterdir())
