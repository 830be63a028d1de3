"""The testbed's scores: how far joint predictions, or Gaussian moments, are from the truth."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from experiments.testbed.problems import AnchorTests

CHUNK_TESTS = 100
STD_RIDGE = 1e-3


def joint_kl(tests: AnchorTests, draws: Float[Tensor, "m s 2 c"]) -> float:
    """Mean over tests s of log p*(labels) − log mean_m Π_t softmax(f(x_t, z_m))[y_t].

    `draws` are the logits of the same m functions at the anchors of every test. Probabilities are
    float32 numbers, so that one that is too small is 0: infinite terms become the largest finite
    one, and a problem's score is at least 0.
    """
    terms = torch.cat(
        [
            expected - _log_mean_likelihood(counts, logits)
            for counts, logits, expected in zip(
                tests.counts.to(draws.device).split(CHUNK_TESTS),
                draws.split(CHUNK_TESTS, dim=1),
                tests.log_likelihood.to(draws.device).split(CHUNK_TESTS),
                strict=True,
            )
        ]
    )
    finite = terms[terms.isfinite()]
    if len(finite) == 0:
        return math.inf
    return max(0.0, float(terms.clamp(max=finite.max()).mean()))


def _log_mean_likelihood(
    counts: Float[Tensor, "s 2 c"], logits: Float[Tensor, "m s 2 c"]
) -> Float[Tensor, "s"]:
    log_p = logits.float().softmax(-1).log().double()
    drawn = counts.double() * log_p.where(counts > 0, torch.zeros_like(log_p))
    return drawn.sum((2, 3)).logsumexp(0) - math.log(len(logits))


def gaussian_kl(
    true_mean: Tensor, true_std: Tensor, mean: Tensor, std: Tensor
) -> Float[Tensor, "n"]:
    """KL(N(true) ‖ N(predicted)) of the function at each row, deviations raised a little."""
    true_std, std = true_std + STD_RIDGE, std + STD_RIDGE
    gap = (true_std.square() + (true_mean - mean).square()) / (2 * std.square())
    return (std / true_std).log() + gap - 0.5
