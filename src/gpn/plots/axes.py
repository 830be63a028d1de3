"""What the plots share: values as tensors, the reference diagonal, and labels with a number."""

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

Array = Tensor | np.ndarray


def as_tensor(values: Any) -> Tensor:
    """A tensor or an array of numbers as a tensor that matplotlib can take."""
    try:
        return torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"what is drawn must be numbers in an array, got {type(values).__name__} ({error})."
        ) from error


def draw_diagonal(axes: Axes) -> None:
    """The reference line from (0, 0) to (1, 1), once per Axes."""
    if not any(line.get_gid() == "diagonal" for line in axes.lines):
        axes.plot([0, 1], [0, 1], ":", color="0.6", linewidth=1, gid="diagonal", zorder=1)


def label_with(label: str, measured: str) -> str:
    return f"{label}, {measured}" if label else measured
