"""One random anchor per row is an unbiased estimate of every anchor at every row."""

import torch

from gpn.core.embedding import Embedding
from gpn.core.generator import ConcatGenerator
from gpn.core.networks import MLPTrunk
from gpn.core.objective import Batch, StoredAnchors, paper_terms
from gpn.core.prior import MLPPrior


def test_one_anchor_per_row_is_unbiased() -> None:
    rng = torch.Generator().manual_seed(0)
    trunk = MLPTrunk(widths=(16, 16))
    anchors = StoredAnchors(
        ConcatGenerator(trunk, (2,), 2, 3, rng),
        Embedding(8, 3, rng),
        MLPPrior(widths=(16,)).sample((2,), 2, 8, rng),
        code_noise=0.0,
    )
    x_obs, y_obs = torch.randn(5, 2, generator=rng), torch.randn(5, 2, generator=rng)
    batch = Batch(x_obs, y_obs, torch.arange(5), torch.randn(7, 2, generator=rng))
    codes = anchors.embedding.codes
    exact = paper_terms(anchors.every_row(batch, rng), y_obs, codes, beta=0.1)
    singles = [
        paper_terms(anchors.one_per_row(batch, rng), y_obs, codes, beta=0.1) for _ in range(3000)
    ]
    for name in ("data", "anchor"):
        values = torch.stack([single[name] for single in singles]).detach()
        error = values.std() / len(values) ** 0.5
        assert abs(float(values.mean() - exact[name].detach())) < 4 * float(error)
        assert float(values.std()) > 0, "each draw must differ, or nothing was estimated"
