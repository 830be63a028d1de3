"""Split conformal prediction (Vovk et al. 2005; Lei et al. 2018): pure functions of scores.

A score says how badly a label fits its prediction. Where the scores of n calibration rows and of a
new row are exchangeable, every rank of the new one is equally likely, and so

    P( new score ≤ the k-th smallest of n ) = k / (n + 1)

(at least that with ties), whatever the model and the data: k = ⌈(n + 1) level⌉ covers `level`.
"""

import math

from jaxtyping import Float, Int
from torch import Tensor

from gpn.core.checks import require_classes, require_level, require_shapes
from gpn.core.types import Outputs

Scores = Float[Tensor, "n o"]

ROUNDING = 1e-9  # 100 · 0.07 is a little more than 7


def interval_scores(y: Outputs, mean: Outputs, std: Outputs) -> Scores:
    """|y − mean| / std, for each output."""
    require_shapes(y=(y, "n o"), mean=(mean, "n o"), std=(std, "n o"))
    return (y - mean).abs() / std


def class_scores(probabilities: Outputs, classes: Int[Tensor, "n"]) -> Float[Tensor, "n 1"]:
    """1 − p of the true class."""
    require_shapes(probabilities=(probabilities, "n o"), classes=(classes, "n"))
    require_classes(classes, probabilities.shape[1])
    return 1 - probabilities.gather(1, classes[:, None])


def conformal_quantile(scores: Scores, level: float) -> Float[Tensor, "o"]:
    """The k-th smallest score of each output, k = ⌈(n + 1) level⌉; k ≤ n is required."""
    require_shapes(scores=(scores, "n o"))
    rank = conformal_rank(len(scores), level)
    if rank > len(scores):
        raise ValueError(
            f"a level of {level:g} needs at least {fewest_rows(level)} calibration rows, got "
            f"{len(scores)}, of which only an infinite interval has that level; calibrate with "
            f"more rows, or use a level of at most {len(scores) / (len(scores) + 1):.3g}."
        )
    return scores.kthvalue(rank, dim=0).values


def conformal_rank(n: int, level: float) -> int:
    """k = ⌈(n + 1) level⌉."""
    require_level(level)
    return math.ceil((n + 1) * level - ROUNDING)


def fewest_rows(level: float) -> int:
    """The smallest n with ⌈(n + 1) level⌉ ≤ n, which is ⌈level / (1 − level)⌉."""
    require_level(level)
    return math.ceil(level / (1 - level) - ROUNDING)
