"""What decides between priors."""

import numpy as np
import pytest
import torch

from gpn.core.priors import ard_evidence
from gpn.estimators.closed_form.choice import LABELS_PER_EXTREME, _usual_square
from gpn.methods.gpn.model.kernel_generator import condition_exactly


def test_one_label_far_off_does_not_say_that_a_mean_is_hopeless() -> None:
    squares = np.ones(LABELS_PER_EXTREME)
    squares[3] = 1e6
    assert _usual_square(squares) == 1.0


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
