"""Distances of rows from labeled ones, each seeing another kind of outlier.

    neighbours   log of the mean distance to the five nearest labels
    whitened     the same after a linear map that makes the labels' covariance the identity
    ellipsoid    log of the Mahalanobis distance from the labels' mean
    ranks        Σ_j −log of the two-sided tail rank of column j among the labels
    rarest       the largest of these terms
    outside      Σ_j log(1 + 10 · what column j exceeds the labels' range by)

At a labeled row itself each is what it would be without that row among the labels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Array = NDArray[Any]

NAMES = ("neighbours", "whitened", "ellipsoid", "ranks", "rarest", "outside")
N_DISTANCES = len(NAMES)
NEIGHBOURS = 5
SHRINKAGE = 0.1
CHUNK_NUMBERS = 2**22
TINY = 1e-9
MAX_LEVERAGE = 0.95
MAX_DISTANCE = 1e100  # squares stay finite


@dataclass(frozen=True)
class Distances:
    """Labels ``(n, d)`` in units of standard deviations, and what distances from them need."""

    labels: Rows
    centre: Rows
    whitening: Rows
    ordered: Rows

    @classmethod
    def of(cls, labels: Rows) -> "Distances":
        """A covariance is shrunk towards its diagonal where labels are few for their columns.

        A tenth of what estimates a covariance best: directions in which labels hardly differ are
        where new rows show that they are other combinations of the same values.
        """
        n, d = labels.shape
        covariance = np.cov(labels.T).reshape(d, d) if n > 1 else np.eye(d)
        shrinkage = SHRINKAGE * (d + 1) / (n + d)
        diagonal = np.diag(np.diag(covariance))
        covariance = (1 - shrinkage) * covariance + shrinkage * diagonal + 1e-6 * np.eye(d)
        variances, axes = np.linalg.eigh(covariance)
        whitening = axes / np.sqrt(np.maximum(variances, 1e-9))
        return cls(labels, labels.mean(0), whitening, np.sort(labels, axis=0))

    def __call__(self, rows: Rows) -> Rows:
        """All distances ``(n, 6)`` of new rows."""
        return self._in_chunks(rows, own=False)

    def of_labels(self) -> Rows:
        """The same of each label, among the others."""
        return self._in_chunks(self.labels, own=True)

    def _in_chunks(self, rows: Rows, *, own: bool) -> Rows:
        size = max(1, CHUNK_NUMBERS // len(self.labels))
        parts = [self._of(rows[i : i + size], own=own) for i in range(0, len(rows), size)]
        return np.concatenate(parts) if parts else np.zeros((0, N_DISTANCES))

    def _of(self, rows: Rows, *, own: bool) -> Rows:
        rows = np.clip(rows, -MAX_DISTANCE, MAX_DISTANCE)
        white = (rows - self.centre) @ self.whitening
        white_labels = (self.labels - self.centre) @ self.whitening
        tails = self._tails(rows, own=own)
        return np.stack(
            [
                np.log(_neighbour_distance(rows, self.labels, own=own) + TINY),
                np.log(_neighbour_distance(white, white_labels, own=own) + TINY),
                self._ellipsoid(white, own=own),
                tails.sum(1),
                tails.max(1),
                np.log1p(10 * self._excess(rows, own=own)).sum(1),
            ],
            axis=1,
        )

    def _ellipsoid(self, white: Rows, *, own: bool) -> Rows:
        """log ‖W(x − centre)‖; a label's leverage h on centre and covariance is undone."""
        squared = (white**2).sum(1)
        if own:
            leverage = np.minimum((squared + 1) / len(self.labels), MAX_LEVERAGE)
            squared = squared / (1 - leverage) ** 2
        return 0.5 * np.log(squared + TINY**2)

    def _tails(self, rows: Rows, *, own: bool) -> Rows:
        """−log min(share of labels at or below, share at or above, 1/2), column by column."""
        columns = list(zip(self.ordered.T, rows.T, strict=True))
        below = np.stack([np.searchsorted(a, b, "right") for a, b in columns], axis=1)
        before = np.stack([np.searchsorted(a, b, "left") for a, b in columns], axis=1)
        n = len(self.labels) - int(own)
        low, high = below - int(own) + 0.5, len(self.labels) - before - int(own) + 0.5
        return -np.log(np.minimum(np.minimum(low, high) / (n + 1), 0.5))

    def _excess(self, rows: Rows, *, own: bool) -> Rows:
        """How far each column lies outside the range of the labels, or of the other labels."""
        low, high = self.ordered[0], self.ordered[-1]
        if own and len(self.labels) > 1:
            low = np.where(rows <= low, self.ordered[1], low)
            high = np.where(rows >= high, self.ordered[-2], high)
        return np.maximum(np.maximum(rows - high, low - rows), 0.0)


def _neighbour_distance(rows: Rows, labels: Rows, *, own: bool) -> Rows:
    """The mean distance to the nearest labels; a label's own row is left out."""
    squared = (rows**2).sum(1)[:, None] + (labels**2).sum(1) - 2 * rows @ labels.T
    first = int(own)
    last = min(NEIGHBOURS + first, len(labels))
    nearest = np.sort(np.partition(squared, last - 1, axis=1)[:, :last], axis=1)[:, first:]
    if nearest.shape[1] == 0:
        return np.zeros(len(rows))
    means: Rows = np.sqrt(np.maximum(nearest, 0.0)).mean(1)
    return means
