"""Columns brought to mean 0 and standard deviation 1, and back."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

LARGEST = 1e150


@dataclass(frozen=True)
class Scale:
    """z = (value − shift) / scale, column by column; a column that never changes becomes 0."""

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> "Scale":
        """The scale of these rows; images and other arrays are left as they are."""
        if values.ndim != 2:
            return cls.none()
        peak = np.abs(values).max(0)
        if (peak > LARGEST).any():
            raise ValueError(
                f"values must be small enough to be squared, at most {LARGEST:g}, got "
                f"{peak.max():.3g}; rescale the column, or take its logarithm."
            )
        power = np.frexp(peak)[1]  # by powers of two, so that small squares are not lost
        scaler = StandardScaler().fit(np.ldexp(values, -power))
        scale = np.where(scaler.scale_ < 1, np.ldexp(scaler.scale_, power), 1.0)
        return cls(np.ldexp(scaler.mean_, power), np.where(scale > 0, scale, 1.0))

    @classmethod
    def none(cls) -> "Scale":
        """Values as they are."""
        return cls(np.zeros(()), np.ones(()))

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return (values - self.shift) / self.scale

    def undo(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Back to the units of the data; `values` ``(..., o)``."""
        return values * self.scale + self.shift
