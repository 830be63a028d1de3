"""Split conformal prediction (Vovk et al. 2005; Lei et al. 2018): pure functions of scores.

A score says how badly a label fits its prediction. Where the scores of n calibration rows and of a
new row are exchangeable, every rank of the new one is equally likely, and so

    P( new score ≤ the k-th smallest of n ) = k / (n + 1)

(at least that with ties), whatever the model and the data: k = ⌈(n + 1) level⌉ covers `level`.

Where the new row comes from another distribution of x, its rank is not uniform: with weights w_i of
the calibration rows and w of the new one (`shift.py`), the smallest score whose rows and all below
hold a share `level` of Σ w_i + w covers it (Tibshirani et al. 2019).
"""

import math

from jaxtyping import Float, Int
from torch import Tensor

from gpn.core.checks import require_classes, require_level, require_shapes
from gpn.core.types import Outputs

Scores = Float[Tensor, "n o"]
Weights = Float[Tensor, "m o"]  # m = n + 1

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


def weighted_quantile(scores: Scores, weights: Weights, level: float) -> Float[Tensor, "o"]:
    """The smallest score of each output up to which a share `level` of all weights lies.

    Scores ascend. The last weight is that of the new row, whose score may be infinite.
    """
    require_shapes(scores=(scores, "n o"), weights=(weights, "m o"))
    require_level(level)
    shares = weighted_levels(weights)
    if float(shares[-1].min()) < level - ROUNDING:
        raise ValueError(
            f"a level of {level:g} needs more calibration rows like the target rows, got enough "
            f"for {float(shares[-1].min()):.3g}; calibrate with more rows, or use a lower level."
        )
    first = (shares >= level - ROUNDING).double().argmax(0)
    return scores.gather(0, first[None])[0]


def weighted_levels(weights: Weights) -> Scores:
    """The level of the interval that ends at each score, with the new row's weight last."""
    require_shapes(weights=(weights, "m o"))
    return weights.cumsum(0)[:-1] / weights.sum(0)


def conformal_rank(n: int, level: float) -> int:
    """k = ⌈(n + 1) level⌉."""
    require_level(level)
    return math.ceil((n + 1) * level - ROUNDING)


def fewest_rows(level: float) -> int:
    """The smallest n with ⌈(n + 1) level⌉ ≤ n, which is ⌈level / (1 − level)⌉."""
    require_level(level)
    return math.ceil(level / (1 - level) - ROUNDING)
