"""Convergence diagnostics of Markov chains: pure functions of chains ``(c, t, q)``.

c chains, t draws in each, q quantities; formulas of Gelman et al. (2013, section 11) and of
Vehtari et al. (2021).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.checks import require_shapes

Chains = Float[Tensor, "c t q"]


def split_rhat(chains: Chains) -> Float[Tensor, "q"]:
    """R̂ = √(((t − 1)/t · W + B/t) / W) of the 2c half chains of length t.

    W is the mean variance within a chain, B/t the variance of the chains' means. R̂ is near 1 if
    the chains agree with each other and with their own later halves; below 1.05 is usual.
    """
    halves = _half_chains(chains)
    length = halves.shape[1]
    within = halves.var(1).mean(0)
    between = halves.mean(1).var(0)
    return (((length - 1) / length * within + between) / within).sqrt()


def effective_sample_size(chains: Chains) -> Float[Tensor, "q"]:
    """ESS = c t / (1 + 2 Σ_k ρ_k), summed by Geyer's initial monotone sequence.

    ρ_k = 1 − (W − mean autocovariance at lag k) / V, with V the pooled variance of R̂, on half
    chains. Capped at c t log10(c t), as in Stan, if draws are negatively correlated.
    """
    halves = _half_chains(chains)
    n_chains, length, _ = halves.shape
    autocovariance = _autocovariance(halves)
    within = autocovariance[0] * length / (length - 1)
    pooled = autocovariance[0] + halves.mean(1).var(0)
    correlation = 1 - (within - autocovariance) / pooled
    correlation[0] = 1.0
    even = correlation[: length - length % 2]
    pairs = even.reshape(-1, 2, even.shape[-1]).sum(1)
    monotone = pairs.clamp_min(0.0).cummin(0).values
    positive = (pairs > 0).cumprod(0)
    total = n_chains * length
    time = (2 * (monotone * positive).sum(0) - 1).clamp_min(1 / torch.tensor(total).log10())
    return total / time


def _half_chains(chains: Chains) -> Float[Tensor, "2*c t//2 q"]:
    """Each chain as two half chains, in float64; the middle one of an odd number is dropped."""
    require_shapes(chains=(chains, "c t q"))
    half = chains.shape[1] // 2
    if half < 2:
        raise ValueError(f"chains must have at least 4 draws each, got {chains.shape[1]}.")
    return torch.cat([chains[:, :half], chains[:, -half:]]).double()


def _autocovariance(chains: Chains) -> Float[Tensor, "t q"]:
    """Biased autocovariance at each lag, averaged over the chains, by FFT."""
    length = chains.shape[1]
    centred = chains - chains.mean(1, keepdim=True)
    spectrum = torch.fft.rfft(centred, n=2 * length, dim=1)
    power = (spectrum.real.square() + spectrum.imag.square()).mean(0)
    return torch.fft.irfft(power, n=2 * length, dim=0)[:length] / length
