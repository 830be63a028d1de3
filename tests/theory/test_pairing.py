"""One random anchor per row is an unbiased estimate of every anchor at every row."""

import torch

from gpn.core.networks.trunks import MLPTrunk
from gpn.core.priors.prior import MLPPrior
from gpn.methods.gpn.model.anchor_terms import IndependentTerm
from gpn.methods.gpn.model.anchors import StoredAnchors
from gpn.methods.gpn.model.batch import Batch
from gpn.methods.gpn.model.codes import Embedding
from gpn.methods.gpn.model.generator import ConcatGenerator
from gpn.methods.gpn.model.objectives import MonteCarlo


def test_one_anchor_per_row_is_unbiased() -> None:
    rng = torch.Generator().manual_seed(0)
    generator = ConcatGenerator(MLPTrunk(widths=(16, 16)), (2,), 2, 3, rng)
    prior = MLPPrior(widths=(16,)).sample((2,), 2, 8, rng)
    noise = torch.randn(8, 5, 2, generator=rng)
    anchors = StoredAnchors(prior, Embedding(8, 3, rng), 0.0, noise)
    x_obs, y_obs = torch.randn(5, 2, generator=rng), torch.randn(5, 2, generator=rng)
    batch = Batch(x_obs, y_obs, torch.arange(5), torch.randn(7, 2, generator=rng))
    every = MonteCarlo(generator, anchors, IndependentTerm(0.1), one_per_row=False)
    single = MonteCarlo(generator, anchors, IndependentTerm(0.1), one_per_row=True)
    with torch.no_grad():
        exact = every.terms(batch, rng)
        estimates = [single.terms(batch, rng) for _ in range(600)]
    for name in ("data", "anchor"):
        values = torch.stack([estimate[name] for estimate in estimates])
        error = values.std() / len(values) ** 0.5
        assert abs(float(values.mean() - exact[name])) < 4 * float(error)
        assert float(values.std()) > 0, "the estimates must differ"
