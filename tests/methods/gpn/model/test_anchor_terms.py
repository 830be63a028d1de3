"""β may rise from nothing, as a network that finds classes first needs it."""

import pytest
import torch

from gpn.methods.gpn.model.anchor_terms import IndependentTerm
from gpn.methods.gpn.model.batch import Batch

BATCH = Batch(torch.zeros(2, 1), torch.zeros(2, 1), torch.arange(2), torch.zeros(5, 1))


def test_beta_rises_linearly_and_then_stays() -> None:
    term, steady = IndependentTerm(0.3, ramp_steps=4), IndependentTerm(0.3)
    ours, theirs = torch.randn(2, 3, 5, 1, generator=torch.Generator().manual_seed(0)).unbind(0)
    whole = steady(ours, theirs, BATCH)
    shares = [float((term(ours, theirs, BATCH) / whole).mean()) for _ in range(6)]
    assert shares == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_a_resumed_fit_goes_on_where_the_ramp_was() -> None:
    """The step is part of the state that a checkpoint keeps."""
    term, resumed = (IndependentTerm(0.3, ramp_steps=4) for _ in range(2))
    ours, theirs = torch.zeros(3, 5, 1), torch.ones(3, 5, 1)
    term(ours, theirs, BATCH)
    resumed.load_state_dict(term.state_dict())
    assert torch.equal(term(ours, theirs, BATCH), resumed(ours, theirs, BATCH))
