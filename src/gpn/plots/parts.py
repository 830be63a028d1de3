"""What several plots share."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = Tensor | np.ndarray


def as_tensor(values: Any) -> Tensor:
    """A tensor or an array of numbers as a tensor that matplotlib can take."""
    try:
        return torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"what is drawn must be numbers in an array, got {type(values).__name__} ({error})."
        ) from error


def diagonal(axes: "Axes") -> None:
    """The line from (0, 0) to (1, 1) that a curve is judged by, once per Axes."""
    if any(line.get_gid() == "diagonal" for line in axes.lines):
        return
    axes.plot([0, 1], [0, 1], ":", color="0.6", linewidth=1, gid="diagonal", zorder=1)


def joined(label: str, measured: str) -> str:
    return f"{label}, {measured}" if label else measured
