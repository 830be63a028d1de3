"""How large a share of unknown rows the gate may assume: left-out labels decide.

A gate with doubt d(x) makes a label's density (1 − d) p(y) + d q(y), with q wider than p. Known
rows pay for it about −log(1 − d) each, where they are doubted and predicted well. The share of
outliers, which d grows with, is the largest one that labels left out can bear: 0.005 nats each, or
more where the pool surely teaches what is unknown, in proportion to the squared sureness. A pool
that says little costs nothing, and that of the superconductor table (19 standard errors) gets the
wide intervals that its unknown rows need.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from gpn.estimators.ood.detector import Detector

Rows = NDArray[np.float64]

MAX_COST, COST_OF_SURE = 0.005, 0.0003  # nats per label
SHARES = 0.7 ** np.arange(20)


def bearable_share(detector: Detector, log_odds: Rows, known: Rows, unknown: Rows) -> float:
    """The detector's share, or less where its gate makes left-out labels too unlikely.

    log_odds: of the labels ``(n,)``. known, unknown: log densities of each target ``(n, o)`` where
    the row is known, and where it is not.
    """
    assert detector.pool is not None
    shares = detector.share * SHARES
    most = max(MAX_COST, COST_OF_SURE * detector.pool.sureness**2)
    doubts = detector.atypical(log_odds)[:, None] * expit(log_odds[:, None] + logit(shares))
    costs = np.array([gate_cost(doubt, known, unknown) for doubt in doubts.T])
    bearable = np.flatnonzero(costs <= most)
    return float(shares[bearable[0]] if len(bearable) else shares[-1])


def gate_cost(doubt: Rows, known: Rows, unknown: Rows) -> float:
    """The mean over labels of log p − log((1 − d) p + d q), summed over targets."""
    ratio = np.exp(np.minimum(unknown - known, 700.0))
    return -float(np.log1p(doubt[:, None] * (ratio - 1)).sum(1).mean())
