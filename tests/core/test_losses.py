"""Losses of numbers in bfloat16 are in float32, and those of others in their own dtype."""

import pytest
import torch
from torch import Tensor

from gpn.core.losses import anchor_gap, cross_entropy, joint_gap, squared_error


def some(seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("loss", [squared_error, anchor_gap, joint_gap])
def test_losses_have_digits(loss: object, dtype: torch.dtype) -> None:
    ours, theirs = some(0, dtype), some(1, dtype)
    more = (torch.eye(5, dtype=torch.float64),) if loss is joint_gap else ()
    found = loss(ours, theirs, *more)  # type: ignore[operator]
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    exact = loss(ours.double(), theirs.double(), *more)  # type: ignore[operator]
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_smoothing_spreads_its_share_over_all_classes(smoothing: float) -> None:
    """(1 − s) of the loss at the label and s of its mean over the classes."""
    logits = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 2, 1, 1, 0])
    losses = -logits.log_softmax(-1)
    at_label = losses[:, torch.arange(5), labels].mean(1)
    expected = (1 - smoothing) * at_label + smoothing * losses.mean((1, 2))
    torch.testing.assert_close(cross_entropy(logits, labels, smoothing), expected)
