"""Diverging training runs: the error names the term, the step and a cause, and keeps a state."""

import itertools
import math

import pytest
import torch
from torch import nn

import gpn
from gpn.training.config import TrainConfig
from gpn.training.divergence import TrainingDiverged
from gpn.training.loop import train
from gpn.training.state import Terms


class Point(nn.Module):
    """One parameter."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.tensor(start))


CONFIG = TrainConfig(steps=1000, optimiser="sgd", schedule="constant", learning_rate=0.1)


@pytest.mark.parametrize("bad_step", [1, 2, 20, 777, 1000])
@pytest.mark.parametrize("term", ["first", "second"])
def test_the_step_and_the_term_are_exact_between_checks(bad_step: int, term: str) -> None:
    """Only every twentieth step is checked; the error still names the step in between."""
    point, count = Point(), itertools.count(1)

    def terms() -> Terms:
        bad = math.inf if next(count) == bad_step else 1.0
        values = {"first": (point.at - 1).square(), "second": (point.at + 1).square()}
        values[term] = values[term] + bad
        return values

    with pytest.raises(TrainingDiverged, match=f"{term}=inf at step {bad_step};") as caught:
        train(point, terms, CONFIG)
    assert (caught.value.step, caught.value.term) == (bad_step, term)


def test_an_infinite_gradient_is_distinguished_from_an_infinite_loss() -> None:
    """√|a| has a finite value and an infinite derivative at 0, where the third step arrives."""
    point = Point(2.0)

    def terms() -> Terms:
        return {"data": point.at, "more": 0 * point.at.abs().sqrt()}

    config = CONFIG.replace(learning_rate=1.0)
    with pytest.raises(TrainingDiverged, match="a gradient step must leave finite") as caught:
        train(point, terms, config)
    assert (caught.value.step, caught.value.term) == (3, "gradient")


def test_an_infinite_gradient_at_the_last_step_is_found() -> None:
    point = Point(2.0)

    def terms() -> Terms:
        return {"data": point.at, "more": 0 * point.at.abs().sqrt()}

    config = CONFIG.replace(learning_rate=1.0, steps=3)
    with pytest.raises(TrainingDiverged) as caught:
        train(point, terms, config)
    assert (caught.value.step, caught.value.term) == (3, "gradient")


def test_too_high_a_rate_is_named_and_the_best_state_is_restored() -> None:
    """Gradient descent on a² with rate 1.5 doubles a at each step, until its square overflows."""
    point = Point(1.0)
    with pytest.raises(TrainingDiverged, match=r"had risen .* try learning_rate=0\.1") as caught:
        train(point, lambda: {"loss": point.at.square()}, CONFIG.replace(learning_rate=1.5))
    error = caught.value
    assert error.module is point
    assert error.good_step < error.step
    assert math.isfinite(point.at.item())
    assert abs(point.at.item()) == 2.0**error.good_step


def test_a_loss_that_was_never_finite_blames_the_data() -> None:
    point = Point(1.0)
    with pytest.raises(TrainingDiverged, match="at step 1; nothing was learnt by then"):
        train(point, lambda: {"loss": point.at / 0}, CONFIG)


def test_bf16_is_blamed() -> None:
    layer, count = nn.Linear(1, 1), itertools.count(1)

    def terms() -> Terms:
        loss = layer(torch.ones(1, 1)).square().sum() / (next(count) < 5)
        return {"loss": loss, "more": 0 * layer.bias.sum()}

    with pytest.raises(TrainingDiverged, match="precision='float32'"):
        train(layer, terms, CONFIG.replace(precision="bf16"))


def test_the_error_of_a_gpn_carries_its_best_posterior(line: gpn.Task) -> None:
    train_config = gpn.TrainConfig(steps=100, learning_rate=1e30, optimiser="sgd", device="cpu")
    config = gpn.GPNConfig.paper(
        n_anchors=8, code_dim=2, trunk=gpn.MLPTrunk(widths=(8,)), train=train_config
    )
    with pytest.raises(gpn.TrainingDiverged, match="learning_rate") as caught:
        gpn.GPN(config).fit(line, rng=0)
    assert caught.value.posterior.sample(line.x_obs, 5, rng=0).isfinite().all()
