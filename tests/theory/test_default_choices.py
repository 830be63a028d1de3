"""The default configuration is close to the exact posterior, in few dimensions and in many."""

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import Tensor

import gpn
from gpn import methods

NOISE = 0.1


def rows(n: int, dim: int, seed: int) -> Tensor:
    unit = torch.rand(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return 2 * unit - 1


@pytest.mark.parametrize("dim", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_few_labels_in_many_dimensions_have_the_exact_spread_and_mean(dim: int) -> None:
    """With independent anchors, 40 labels of 20 columns would have almost no effect."""
    x, new = rows(40, dim, seed=0), rows(200, dim, seed=1)
    y = x.sin().sum(1, keepdim=True) / dim**0.5
    task = gpn.Task(x, y, pool=rows(600, dim, seed=2))
    config = gpn.GPNConfig(noise_std=NOISE, prior=gpn.MLPPrior())
    posterior = gpn.GPN(config).fit(task, rng=0)
    exact = methods.get("gp", noise_std=NOISE).fit(task, rng=0)
    assert posterior.config.anchor == "conditioned"
    ratio = (posterior.std(new) / exact.std(new)).median()
    assert 0.9 < ratio < 1.1
    gap = (posterior.mean(new) - exact.mean(new)).abs() / exact.std(new)
    assert gap.median() < 0.25


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gpn.GPNWarning")
def test_few_labels_of_many_classes_are_learnt_as_well_as_by_a_linear_model() -> None:
    """400 handwritten digits of 64 pixels; β and the network for targets reached 57 %."""
    x, y = load_digits(return_X_y=True)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).numpy()
    known, rest = order[:400], order[400:]
    model = gpn.GPNClassifier(random_state=0).fit(x[known], y[known], X_unlabeled=x[rest])
    linear = LogisticRegression(C=0.01, max_iter=3000).fit(x[known], y[known])
    assert model.score(x[rest], y[rest]) > linear.score(x[rest], y[rest]) - 0.02
    assert model.is_ood(x[rest]).mean() < 0.15
