"""Left-out variances against posteriors that were computed again without the label."""

import pytest
import torch
from torch import Tensor

import gpn
from gpn.core.priors.leave_one_out import loo_variance, posterior_variance

NOISE = 0.2


def rows(n: int, seed: int = 0) -> Tensor:
    unit = torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return 4 * unit - 2


def given(x: Tensor, new: Tensor, noise_std: float) -> Tensor:
    """The exact variance at `new`, given labels at `x`."""
    prior = gpn.MLPPrior()
    gram = prior.kernel(x, x) + noise_std**2 * torch.eye(len(x), dtype=x.dtype)
    cross = prior.kernel(new, x)
    return prior.variance(new) - (cross * torch.linalg.solve(gram, cross.T).T).sum(1)


@pytest.mark.parametrize("noise_std", [1e-3, NOISE, 3.0])
def test_it_is_what_a_fit_without_the_label_would_say(noise_std: float) -> None:
    x = rows(12)
    spread = posterior_variance(gpn.MLPPrior().kernel(x, x), noise_std)
    torch.testing.assert_close(spread, given(x, x, noise_std), rtol=1e-5, atol=1e-9)
    wanted = [given(x[torch.arange(12) != i], x[i : i + 1], noise_std)[0] for i in range(12)]
    found = loo_variance(spread, x, noise_std)
    torch.testing.assert_close(found, torch.stack(wanted), rtol=1e-4, atol=1e-9)


def test_copies_of_a_row_are_left_out_together() -> None:
    x = torch.cat([rows(6), rows(6)[:2]])
    spread = posterior_variance(gpn.MLPPrior().kernel(x, x), NOISE)
    wanted = given(x[2:6], x[:2], NOISE)
    expected = given(torch.cat([x[1:6], x[7:]]), x[:1], NOISE)
    found = loo_variance(spread, x, NOISE)
    torch.testing.assert_close(found[:1], expected)
    torch.testing.assert_close(found[6:7], expected)
    assert (found[:2] < wanted).all(), "the other row's two copies are still there"


@pytest.mark.parametrize("anchor", ["joint", "conditioned"])
def test_a_fit_reports_it(anchor: str) -> None:
    x = rows(20)
    task = gpn.Task(x, x.sum(1, keepdim=True), pool=rows(200, seed=1))
    train = gpn.TrainConfig(steps=2)
    config = gpn.GPNConfig(anchor=anchor, noise_std=NOISE, train=train, prior=gpn.MLPPrior())
    found = gpn.GPN(config).fit(task, rng=0).fit_report.label_variance.leave_one_out
    keep = torch.arange(20) != 7
    torch.testing.assert_close(found[7], given(x[keep], x[7:8], NOISE)[0], rtol=0.02, atol=0.0)
