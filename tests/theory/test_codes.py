"""(e) The code regulariser is the closed-form Gaussian divergence."""

import torch
from torch.distributions import Normal, kl_divergence

from gpn.core.losses import code_kl


def test_code_kl_equals_torch_distributions() -> None:
    codes = 0.7 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) + 0.3
    fitted = Normal(codes.mean(0), codes.var(0, correction=0).sqrt())
    standard = Normal(torch.zeros(4), torch.ones(4))
    torch.testing.assert_close(code_kl(codes), kl_divergence(fitted, standard).sum())


def test_code_kl_is_zero_only_for_standard_codes() -> None:
    codes = torch.randn(200, 3, generator=torch.Generator().manual_seed(1))
    standard = (codes - codes.mean(0)) / codes.std(0, correction=0)
    assert abs(float(code_kl(standard))) < 1e-6
    assert float(code_kl(standard * 0.5)) > 0.1
    assert float(code_kl(standard + 0.5)) > 0.1
