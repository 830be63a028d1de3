"""What decides between priors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from gpn.core.priors import ard_evidence
from gpn.core.priors.ard_evidence import usual_prior
from gpn.estimators.closed_form.choice import (
    LABELS_PER_EXTREME,
    MAX_SURPRISE,
    Choice,
    _best,
    _comparable,
    _Labels,
    _squared_errors,
    choose,
)
from gpn.estimators.closed_form.groups import category_groups
from gpn.estimators.closed_form.mean import folds_of, nested_predictions
from gpn.methods.gpn.model.kernel_generator import condition_exactly


def test_one_label_far_off_does_not_say_that_a_mean_is_hopeless() -> None:
    squares = np.ones(LABELS_PER_EXTREME)
    squares[3] = 1e6
    errors = _squared_errors(squares)
    assert errors == (1.0, (LABELS_PER_EXTREME - 1 + 1e6) / LABELS_PER_EXTREME)
    assert _comparable(errors, (0.5, 1.0), 2.0)


def test_a_prior_that_is_nearly_exact_does_not_rule_out_one_without_errors() -> None:
    """Both have next to no error at most labels; one is far off at the others."""
    lumpy = _choice(score=-1.0, squared_errors=(1e-5, 1.0))
    smooth = _choice(score=-6.0, squared_errors=(2e-5, 1e-4))
    assert _best([lumpy, smooth]) is smooth


def _choice(**fields: Any) -> Choice:
    return Choice(torch.zeros(100, 2), usual_prior(2), groups=(0, 1), **fields)


def test_narrow_scales_predict_noisy_lines_better(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(1100, 15, generator=rng, dtype=torch.float64)
    f = x @ torch.randn(15, 1, generator=rng, dtype=torch.float64) / 15**0.5
    y = f + 0.7 * torch.randn(1100, 1, generator=rng, dtype=torch.float64)

    def error() -> float:
        learnt = ard_evidence.learn_ard_prior(x[:100], y[:100])
        found = condition_exactly(learnt.prior, x[:100], y[:100], learnt.noise_std)
        return float((found.moments(x[100:])[0] - f[100:]).square().mean())

    narrow = error()
    monkeypatch.setattr(ard_evidence, "LOG_SCALE_STD", ard_evidence.WIDE_LOG_SCALE_STD)
    assert narrow < error()


def test_scales_that_follow_the_noise_are_not_chosen() -> None:
    """Left-out labels that the search for scales has seen would prefer a scale for each column."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(120, 12))
    y = np.tanh(x.mean(1, keepdims=True) * 3) + rng.normal(0, 0.7, (120, 1))
    y = (y - y.mean()) / y.std()
    found = choose(x, torch.from_numpy(x), torch.from_numpy(y), None, lambda: None)
    assert found.complexity < 2


def test_left_out_labels_do_not_change_what_predicts_them() -> None:
    """Not through the prior's scales, nor through the mean model's predictions of other rows."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 1))
    folds = folds_of(x)
    for number, (_, fold) in enumerate(folds):
        changed = y.copy()
        changed[fold] += 5.0
        before, after = (
            nested_predictions(x, targets, LinearRegression(), len(folds))
            for targets in (y, changed)
        )
        np.testing.assert_allclose(before[number], after[number])
        assert not np.allclose(before[number - 1], after[number - 1])


def test_a_category_has_one_scale() -> None:
    colour = np.eye(3)[[0, 1, 2, 0, 1]]
    flag = np.array([1.0, 0, 0, 1, 1])[:, None]
    pair = np.concatenate([flag, 1 - flag], axis=1)
    number = np.array([0.0, 1, 0.5, 0, 1])[:, None]
    X = np.concatenate([number, colour, flag, pair], axis=1)
    assert category_groups(X) == (0, 1, 1, 1, 2, 3, 3)
    assert category_groups(np.zeros((4, 2))) == (0, 1)
    x, y = torch.from_numpy(X), torch.tensor([[1.0], [2], [0], [1], [3]], dtype=torch.float64)
    found = choose(X, x, y, None, lambda: None)
    scales = found.learnt.prior.column_scales
    assert scales[1] == scales[2] == scales[3]


def test_equal_rows_with_other_labels_do_not_bend_functions_wildly() -> None:
    """Three pairs that differ by a hair in a column contradict each other: the slope along it is
    huge, and four labels far out in that column are missed by a lot."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(np.c_[rng.uniform(-1, 1, 200), np.zeros(200)])
    x[1:6:2] = x[0:6:2]
    x[1:6:2, 1], x[-4:, 1] = 1e-3, 1.0
    y = (3 * x[:, :1]).sin()
    y[1:6:2] += 0.1
    learnt = replace(usual_prior(2), noise_std=1e-3)
    labels = _Labels(y, None, None)
    before = labels.scored(Choice(x, learnt))
    steady = labels.steadied(before)
    assert before.surprise > MAX_SURPRISE > steady.surprise
    assert steady.squared_errors[1] < before.squared_errors[1] / 20
    assert steady.learnt.noise_std > learnt.noise_std


def test_a_wrong_label_is_no_reason_for_more_noise() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.uniform(-1, 1, (400, 1)))
    y = (3 * x).sin() + 0.01 * torch.from_numpy(rng.normal(size=(400, 1)))
    y[7] = 30.0
    choice = Choice(x, replace(usual_prior(1), noise_std=0.01))
    labels = _Labels(y, None, None)
    scored = labels.scored(choice)
    assert scored.surprise > MAX_SURPRISE
    assert labels.steadied(scored).learnt.noise_std <= 0.03
