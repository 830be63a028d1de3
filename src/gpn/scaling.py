"""Columns brought to mean 0 and standard deviation 1, and back."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler


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
        with np.errstate(over="ignore", invalid="ignore"):
            scaler = StandardScaler().fit(values)
        if not np.isfinite(scaler.var_).all():  # its scale_ is 1 where the square overflows
            raise ValueError(
                f"values must be small enough to be squared, got {np.abs(values).max():.3g}; "
                "rescale the column, or take its logarithm."
            )
        return cls(scaler.mean_, scaler.scale_)

    @classmethod
    def none(cls) -> "Scale":
        """Values as they are."""
        return cls(np.zeros(()), np.ones(()))

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return (values - self.shift) / self.scale

    def undo(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Back to the units of the data; `values` ``(..., o)``."""
        return values * self.scale + self.shift
