"""Small problems with a known posterior."""

import torch

from gpn.core.pools.base import box
from gpn.core.task import Task

SIX_POINTS_NOISE_STD = 0.1


def six_points() -> Task:
    """The paper's small problem: six fixed observations of a sine, pool U[-2, 2]."""
    x = torch.tensor([-1.5, -1.0, -0.6, 0.3, 0.7, 1.2])[:, None]
    return Task(x, torch.sin(3.0 * x), pool=box([-2.0], [2.0]))
