"""What draws are worth: pure functions of draws ``(s, n, o)`` or of Gaussian moments."""

from jaxtyping import Float
from torch import Tensor

from gpn.core.types import Draws, Outputs


def interval_width(draws: Draws, level: float = 0.95) -> Float[Tensor, "n o"]:
    """Width of the middle `level` of the draws (the paper's CI-width, per row)."""
    low, high = _ends(draws, level)
    return high - low


def interval_coverage(draws: Draws, targets: Outputs, level: float = 0.95) -> Float[Tensor, "o"]:
    """Share of targets inside the middle `level` of the draws (the paper's CI-correct)."""
    low, high = _ends(draws, level)
    return ((targets >= low) & (targets <= high)).to(draws.dtype).mean(0)


def _ends(draws: Draws, level: float) -> Float[Tensor, "2 n o"]:
    return draws.quantile(draws.new_tensor([(1 - level) / 2, (1 + level) / 2]), dim=0)


def marginal_w2(
    mean: Outputs, std: Outputs, true_mean: Outputs, true_std: Outputs
) -> Float[Tensor, ""]:
    """Root mean square over rows of the 2-Wasserstein distance between Gaussian marginals.

    W2² = (μ − μ*)² + (σ − σ*)² at each row and output.
    """
    squared = (mean - true_mean).square() + (std - true_std).square()
    return squared.mean().sqrt()


def draws_w2(draws: Draws, true_mean: Outputs, true_std: Outputs) -> Float[Tensor, ""]:
    """`marginal_w2` with the moments of the draws themselves."""
    return marginal_w2(draws.mean(0), draws.std(0), true_mean, true_std)


def probability_variance(logits: Draws) -> Float[Tensor, "n"]:
    """Σ_c Var_s[softmax(logits)_c]: the paper's "posterior variance" for classes, an OOD score."""
    return logits.softmax(-1).var(0).sum(-1)
